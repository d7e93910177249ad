"""Keys after a federation was made: added, rotated, revoked, listed; nothing is lost on the way."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner

pytest.importorskip("flwr")

from vitrail.cli.flower import flower
from vitrail.errors import ConfigError, RunError
from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.coordinator.server_command import ServerSettings
from vitrail.flower.key_roll import add_site, list_keys, revoke_site, rotate_site
from vitrail.flower.keys import Keys, find_certificate_problems, locate_peer_key, make_keys
from vitrail.flower.node_key import fingerprint_key, make_node_key, read_public
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.ports import find_free_port
from vitrail.flower.preflight import examine
from vitrail.flower.site.fleet_client import FleetClient
from vitrail.flower.trusted_keys import read_trusted_keys

SITES = ("east", "north", "west")


@pytest.fixture
def keys(tmp_path) -> Keys:
    return make_keys(tmp_path / "keys", SITES, ["localhost", "coordinator.example.org"])


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def refuses(call, match: str, kind=ConfigError) -> None:
    with pytest.raises(kind, match=match):
        call()


def list_private(keys: Keys) -> list[Path]:
    return [path for path in keys.folder.rglob("*") if path.suffix == ".key"]


def test_a_rotated_key_replaces_the_old_one_everywhere_and_keeps_it_aside(keys):
    old = keys.public("north").read_bytes()
    secret = (keys.site("north") / "node.key").read_bytes()
    lines = rotate_site(keys, "north")
    new = keys.public("north").read_bytes()
    assert new != old
    for site in SITES:
        assert locate_peer_key(keys.site(site), "north").read_bytes() == new
        assert any(f"hand over to {site}: {keys.site(site)}" in line for line in lines)
    statement = b"statement"
    signature = NodeSigner(keys.site("north")).sign(statement)
    assert NodeSigner(keys.site("east")).accepts("north", statement, signature)
    aside = snapshot(keys.folder)
    assert old in aside.values() and secret in aside.values()
    assert all(path.stat().st_mode & 0o077 == 0 for path in list_private(keys))
    assert keys.list_sites() == list(SITES)
    assert [key.site for key in list_keys(keys)] == [*SITES, "north"]
    assert set(read_trusted_keys(keys.folder).nodes["north"]) == {
        read.decode() for read in (old, new)
    }


def test_a_site_sends_the_public_half_of_a_key_it_made_anew(keys, tmp_path):
    public = make_node_key(tmp_path / "own")
    lines = rotate_site(keys, "north", public)
    assert keys.public("north").read_bytes() == read_public(public)
    assert not (keys.site("north") / "node.key").exists()  # the old one is aside
    assert len(list((keys.site("north") / "revoked").glob("node-*.key"))) == 1
    assert fingerprint_key(read_public(public)) in lines[-1]
    before = snapshot(keys.folder)
    refuses(lambda: rotate_site(keys, "north", public), "that this site has or had")
    refuses(lambda: rotate_site(keys, "east", public), "that 'north' has or had")
    refuses(lambda: rotate_site(keys, "nort"), "no site 'nort'")
    refuses(lambda: rotate_site(keys, "north", tmp_path / "none"), "cannot be read")
    assert snapshot(keys.folder) == before


def test_a_revoked_site_is_known_to_nobody_and_comes_back_with_a_new_key_only(keys, tmp_path):
    old = tmp_path / "old.pub"
    old.write_bytes(keys.public("north").read_bytes())
    lines = revoke_site(keys, "north")
    assert keys.list_sites() == ["east", "west"] == ServerSettings(keys=keys).list_sites()
    assert "to be deleted at east, west: peers/north.pub" in lines[1]
    assert not any(locate_peer_key(keys.site(site), "north").exists() for site in SITES)
    refuses(lambda: revoke_site(keys, "north"), "was revoked on")
    refuses(lambda: rotate_site(keys, "north"), "keys add")
    refuses(lambda: add_site(keys, "north", old), "has or had")
    add_site(keys, "north")
    assert sorted(keys.list_sites()) == list(SITES)
    assert old.read_bytes() in snapshot(keys.folder).values()
    assert [key.revoked != "" for key in list_keys(keys)] == [False, False, False, True]


def test_a_new_site_knows_the_others_and_they_know_it(keys, tmp_path):
    public = make_node_key(tmp_path / "own")
    lines = add_site(keys, "south", public)
    assert keys.list_sites() == [*SITES, "south"] and len(lines) == 5
    folder = keys.site("south")
    assert {path.stem for path in (folder / "peers").iterdir()} == {*SITES, "south"}
    assert (folder / "ca.pem").read_bytes() == keys.authority.read_bytes()
    for site in SITES:
        assert locate_peer_key(keys.site(site), "south").read_bytes() == read_public(public)
    refuses(lambda: add_site(keys, "south"), "already")
    refuses(lambda: add_site(keys, "South"), "too much alike")
    refuses(lambda: add_site(keys, ""), "needs a name")
    refuses(lambda: add_site(Keys(tmp_path), "x"), "no folder of a federation", RunError)


def test_an_older_roll_is_a_list_of_names(keys):
    keys.roll.write_text(json.dumps(list(SITES)))
    assert keys.list_sites() == list(SITES)
    rotate_site(keys, "west")
    assert keys.list_sites() == list(SITES)
    keys.roll.write_text("{")
    refuses(lambda: keys.list_sites(), "cannot be read", RunError)


def read_names(keys: Keys) -> list[str]:
    issued = x509.load_pem_x509_certificate(keys.certificate.read_bytes())
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def test_the_certificate_is_renewed_by_the_same_authority(keys):
    authority, names = keys.authority.read_bytes(), read_names(keys)
    old = (keys.certificate.read_bytes(), keys.private.read_bytes())
    words = ["keys", "rotate", str(keys.folder), "--server", "--days", "30"]
    done = CliRunner().invoke(flower, words)
    assert done.exit_code == 0 and "nothing is to be handed over" in done.output
    assert keys.authority.read_bytes() == authority and read_names(keys) == names
    assert find_certificate_problems(keys.certificate, keys.authority, keys.private) == []
    ServerSettings(keys=keys).check()
    assert set(old) <= set(snapshot(keys.revoked).values())
    assert all(path.stat().st_mode & 0o077 == 0 for path in list_private(keys))
    done = CliRunner().invoke(flower, [*words, "--host", "other.example.org"])
    assert read_names(keys) == ["other.example.org", "localhost", "127.0.0.1"]
    keys.authority_key.unlink()
    before = snapshot(keys.folder)
    done = CliRunner().invoke(flower, words)
    assert done.exit_code and "off line" in str(done.exception)
    assert snapshot(keys.folder) == before


def test_a_certificate_does_not_outlive_its_authority(keys):
    words = ["keys", "rotate", str(keys.folder), "--server", "--days", "36500"]
    done = CliRunner().invoke(flower, words)
    assert "the authority itself is valid for" in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [[], ["--server", "--site", "east"], ["--server", "--public", "x"], ["--site", "a", "--host"]],
)
def test_words_that_do_not_go_together_are_refused(words, keys):
    words = [*words, "h"] if words[-1:] == ["--host"] else words
    done = CliRunner().invoke(flower, ["keys", "rotate", str(keys.folder), *words])
    assert isinstance(done.exception, ConfigError)


def test_the_list_names_every_key(keys):
    rotate_site(keys, "east")
    revoke_site(keys, "west")
    lines = CliRunner().invoke(flower, ["keys", "list", str(keys.folder)]).output.splitlines()
    assert [line.split()[0] for line in lines] == ["east", "north", "east", "west"]
    assert all("SHA256:" in line for line in lines)
    assert ["revoked" in line for line in lines] == [False, False, True, True]


def test_the_commands_of_the_guide_work_in_its_order(project, tmp_path, monkeypatch):
    page = (project / "docs" / "how-to" / "manage-keys.md").read_text()
    commands = re.findall(r"^    vitrail flower (keys .*)$", page, re.M)
    assert len(commands) == 7
    monkeypatch.chdir(tmp_path)
    make_keys("keys", SITES, ["localhost"])
    for number, command in enumerate(commands):
        if "node.pub" in command:  # what a site has just sent
            public = make_node_key(tmp_path / str(number))
            (tmp_path / "node.pub").write_bytes(public.read_bytes())
        done = CliRunner().invoke(flower, shlex.split(command))
        assert done.exit_code == 0, (command, done.exception)
    assert sorted(Keys(tmp_path / "keys").list_sites()) == [*SITES[:2], "south", "west"]
    said = {line.what: line.says for line in examine(None, None, None, tmp_path / "keys")}
    assert said["certificate"].startswith("valid until 20")


def wait_until(true, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def test_a_running_coordinator_refuses_a_key_from_when_it_is_revoked(keys, tmp_path):
    """Over TLS on loopback: connected, revoked and refused; the new key of another is let in."""
    port, leaving, said = find_free_port(), threading.Event(), []
    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        link = FleetLink(server)
        client = FleetClient(f"localhost:{port}", keys.site("north"), tmp_path)
        work = (lambda raw: raw, leaving, said.append)
        thread = threading.Thread(target=client.serve, args=work, daemon=True)
        thread.start()
        try:
            wait_until(lambda: link.present() == ("north",))
            assert list(link.ask(["north"], lambda _: b"hello", 30.0)) == [("north", b"hello")]
            revoke_site(keys, "north")
            assert link.present() == ()
            wait_until(lambda: any("does not know this site's key" in line for line in said))
            add_site(keys, "north")
            assert link.present() == ()  # read again: the new key is registered
            wait_until(lambda: link.present() == ("north",))  # the folder has the new key by now
        finally:
            leaving.set()
            thread.join(20)


def test_a_key_that_is_revoked_while_it_is_waited_for_costs_the_round_alone(keys, tmp_path):
    port, leaving = find_free_port(), threading.Event()
    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        link = FleetLink(server)
        client = FleetClient(f"localhost:{port}", keys.site("north"), tmp_path)

        def answer(raw: bytes) -> None:
            revoke_site(keys, "north")

        work = (answer, leaving, lambda _: None)
        thread = threading.Thread(target=client.serve, args=work, daemon=True)
        thread.start()
        try:
            wait_until(lambda: link.present() == ("north",))
            ((site, missing),) = link.ask(["north"], lambda _: b"hello", 30.0)
            assert (site, missing.reason) == ("north", "its key is no longer accepted")
        finally:
            leaving.set()
            thread.join(20)
