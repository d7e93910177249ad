"""What the network reaches of a coordinator: Fleet routes of registered nodes, nothing else."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from flwr.superlink.main import create_app

from vitrail.errors import ConfigError
from vitrail.flower.coordinator.allowed_routes import OPEN_ROUTES, ROUTES
from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.keys import make_keys
from vitrail.flower.ports import find_free_port

pytestmark = pytest.mark.timeout(300)


def list_routes() -> set[tuple[str, str]]:
    """Every method and path that Flower's own application answers."""
    schema = create_app().openapi()
    return {
        (method.upper(), path) for path, methods in schema["paths"].items() for method in methods
    }


@pytest.fixture
def closed(tmp_path):
    keys = make_keys(tmp_path / "keys", ["east", "north"], ["localhost"])
    port = find_free_port()
    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        yield server, keys, f"https://localhost:{port}"


def stranger(keys) -> httpx.Client:
    """Whoever holds nothing but the public certificate."""
    return httpx.Client(verify=ssl.create_default_context(cafile=str(keys.authority)), timeout=20)


@pytest.mark.very_slow
def test_a_stranger_with_the_certificate_reaches_no_route_but_those_of_nodes(closed):
    _, keys, address = closed
    routes = list_routes()
    assert len(routes) > 20  # Flower's whole application: control, runtime, fleet, health
    with stranger(keys) as client:
        for method, path in sorted(routes | {("GET", "/docs"), ("GET", "/openapi.json")}):
            url = address + re.sub(r"\{\w+\}", "1", path)
            answer = client.request(method, url, content=b"")
            if method == "POST" and path in ROUTES:
                assert answer.status_code in (400, 401, 415, 422), (method, path)
            else:
                assert answer.status_code == 404, (method, path)


def test_a_new_route_of_flower_does_not_open_by_itself():
    """What is open is a list of ours; each of its entries exists in this Flower."""
    paths = {path for method, path in list_routes() if method == "POST"}
    assert paths >= ROUTES | OPEN_ROUTES
    fleet = {path for path in paths if path.startswith("/v1/fleet/")}
    assert fleet - ROUTES == OPEN_ROUTES | {"/v1/fleet/get-run", "/v1/fleet/get-fab"}, (
        "Flower has other Fleet routes than when this list was made: decide about each"
    )


@pytest.mark.very_slow
def test_flwr_itself_gets_nothing(closed, tmp_path):
    """`flwr run` with an app of one's own, as a stranger would: nothing is executed anywhere."""
    _, keys, address = closed
    (tmp_path / "flower").mkdir()
    (tmp_path / "flower" / "config.toml").write_text(
        f'[superlink]\ndefault = "target"\n[superlink.target]\n'
        f'address = "{address.removeprefix("https://")}"\n'
        f'root-certificates = "{keys.authority.resolve()}"\n'
    )
    command = [str(Path(sys.executable).parent / "flwr")]
    for words in (["ls", "target"], ["supernode", "list", "target"]):
        done = subprocess.run(
            [*command, *words],
            env={
                **os.environ,
                "FLWR_HOME": str(tmp_path / "flower"),
                "FLWR_TELEMETRY_ENABLED": "0",
                "FLWR_DISABLE_UPDATE_CHECK": "1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode != 0, done.stdout


@pytest.mark.very_slow
def test_names_come_from_registered_keys_alone(closed, tmp_path):
    server, _, _ = closed
    assert sorted(server.names.values()) == ["east", "north"]
    assert FleetLink(server).present() == ()  # registered, not there


def test_one_key_under_two_names_is_refused(tmp_path):
    keys = make_keys(tmp_path / "keys", ["east", "north"], ["localhost"])
    keys.public("north").write_bytes(keys.public("east").read_bytes())
    with (
        pytest.raises(ConfigError, match="is another site's too"),
        FleetServer("127.0.0.1", find_free_port(), keys, tmp_path / "scratch"),
    ):
        pass


def test_without_keys_only_this_machine_is_served(tmp_path):
    with pytest.raises(ConfigError, match="anybody who reaches"):
        FleetServer("0.0.0.0", find_free_port(), None, tmp_path)


@pytest.mark.very_slow
def test_a_port_in_use_is_said_at_once(closed, tmp_path):
    _, keys, address = closed
    port = int(address.rpartition(":")[2])
    with (
        pytest.raises(Exception, match="cannot listen"),
        FleetServer("127.0.0.1", port, keys, tmp_path / "other"),
    ):
        pass
