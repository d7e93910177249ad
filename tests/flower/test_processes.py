"""Flower's own processes on loopback: same bits, TLS and authentication, kills, no way out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vitrail.config import dump
from vitrail.engine.run import start
from vitrail.files import read_tensors
from vitrail.flower.keys import make_keys
from vitrail.flower.processes import free_port

pytest.importorskip("flwr")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SITES = ("east", "north", "west")
SPY = """
import os, sys
def hook(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        with open(os.environ["SPY_FILE"], "a") as handle:
            handle.write(f"{args[1][0]}\\n")
sys.addaudithook(hook)
"""


def vitrail(*words: str, cwd: Path, log: Path, **more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from vitrail.cli import main; main()", "flower", *words]
    paths = os.pathsep.join([more.pop("SPY", ""), *[p for p in sys.path if p]])
    with log.open("ab") as handle:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdout=handle,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": paths, **more},
        )


def final(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(sorted((run / "server" / "checkpoints").glob("*"))[-1])[0]


def same(ours: Path, theirs: Path) -> bool:
    a, b = final(ours), final(theirs)
    return set(a) == set(b) and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture
def field(birds, tmp_path):
    """A folder with everybody's files; whatever still runs at the end is ended."""
    started: list[subprocess.Popen[bytes]] = []
    for name in SITES:
        birds.home(name, tmp_path)

    def go(*words: str, log: str, **more: str) -> subprocess.Popen[bytes]:
        process = vitrail(*words, cwd=tmp_path, log=tmp_path / log, **more)
        started.append(process)
        return process

    yield tmp_path, go
    for process in started:
        if process.poll() is None:
            process.terminate()
    for process in started:
        process.wait(30)


def until(true, seconds: float = 400.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.3)


def test_same_bits_through_a_killed_server_and_a_killed_site(birds, field) -> None:
    """Insecure, because only there may draws follow from the seed; killed in the middle."""
    root, go = field
    terms = {"method": {"name": "scaffold"}, "run": {"rounds": 3, "batch_size": 8, "seed": 5}}
    start(birds.simulated(**terms), root / "simulated")
    (root / "fed.toml").write_text(dump(birds.coordinator(**terms).config))
    (root / "spy").mkdir()
    (root / "spy" / "sitecustomize.py").write_text(SPY)
    spy = {"SPY": str(root / "spy"), "SPY_FILE": str(root / "connections")}
    port = str(free_port())
    serve = ("server", "fed.toml", "--out", "run", "--port", port, "--sites", "3", "--insecure")
    attend = ("--server", f"127.0.0.1:{port}", "--insecure", "--seeded", "--yes", "--once")
    server = go(*serve, log="server.log", **spy)
    sites = {
        name: go("site", "--file", f"{name}.toml", *attend, log=f"{name}.log", **spy)
        for name in SITES
    }
    checkpoints = root / "run" / "server" / "checkpoints"
    until(lambda: (checkpoints / "round-00001.safetensors").exists())
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    server = go(*serve, log="server.log", **spy)
    assert server.wait(600) == 0, (root / "server.log").read_text()
    for name, site in sites.items():
        assert site.wait(60) == 0, (root / f"{name}.log").read_text()
    assert same(root / "run", root / "simulated")
    assert "INSECURE" in (root / "server.log").read_text()
    hosts = set((root / "connections").read_text().split())
    assert hosts <= {"127.0.0.1", "::1", "localhost"}, hosts


def test_keys_decide_who_takes_part(birds, field) -> None:
    root, go = field
    terms = {"run": {"rounds": 1, "batch_size": 8, "seed": 5}}
    (root / "fed.toml").write_text(dump(birds.coordinator(**terms).config))
    make_keys(root / "keys", ["east", "north"], ["localhost", "127.0.0.1"])
    make_keys(root / "others", ["west", "north"], ["localhost"])
    port = str(free_port())
    server = go(
        *("server", "fed.toml", "--out", "run", "--port", port, "--keys", "keys"), log="server.log"
    )
    address = f"localhost:{port}"

    def site(name: str, keys: str, log: str) -> subprocess.Popen[bytes]:
        words = ("--server", address, "--keys", keys, "--yes", "--once")
        return go("site", "--file", f"{name}.toml", *words, log=log)

    foreign = site("west", "others/sites/west", "foreign.log")  # another authority's certificate
    mixed = root / "mixed"
    mixed.mkdir(mode=0o700)
    (mixed / "ca.pem").write_bytes((root / "keys" / "ca.pem").read_bytes())
    (mixed / "node.key").write_bytes((root / "others/sites/west/node.key").read_bytes())
    (mixed / "node.key").chmod(0o600)
    unknown = site("west", "mixed", "unknown.log")  # right authority, a key nobody registered
    good = [site(name, f"keys/sites/{name}", f"{name}.log") for name in ("east", "north")]
    assert server.wait(600) == 0, (root / "server.log").read_text()
    assert all(process.wait(60) == 0 for process in good)
    assert (root / "run" / "server" / "finished").exists()
    card = (root / "run" / "server" / "card.json").read_text()
    assert '"west"' not in card
    for process in (foreign, unknown):
        assert process.poll() is None  # still trying, and never let in
    assert not list((root / "at-west").glob("runs/*"))
