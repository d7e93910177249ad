"""What a kill leaves behind at either end, and that both go on from there."""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from vitrail.files import is_locked
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.run_terms import make_terms, resolve_terms
from vitrail.flower.site.resident_process import ResidentLostError, ResidentProcess
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.versions import list_versions

pytest.importorskip("flwr")

from vitrail.flower.coordinator.fleet_link import FleetLink, _Question
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.coordinator.server_command import _make_scratch_folder
from vitrail.flower.keys import make_keys
from vitrail.flower.ports import find_free_port
from vitrail.flower.site.fleet_client import FleetClient


def make_hello(birds) -> bytes:
    terms = make_terms(resolve_terms(birds.coordinator()).config)
    body = {"terms": terms, "versions": list_versions("torch"), "patience": 1.0}
    return seal("hello", "abc", "east", {**body, "signatures": {}, "weights": ""})


def test_a_site_that_agreed_before_its_coordinator_was_killed_agrees_again(birds, tmp_path):
    """A coordinator that is killed before the first round puts the same terms before it again."""
    home = birds.home("east", tmp_path)
    first = unseal(SiteServer(home, seeded=True).answer(make_hello(birds)))
    again = unseal(SiteServer(home, seeded=True).answer(make_hello(birds)))
    assert (first.kind, again.kind) == ("hello", "hello"), again.body
    assert first.body == again.body


def test_a_site_that_was_killed_while_it_made_its_folder_makes_the_rest(birds, tmp_path):
    home = birds.home("east", tmp_path)
    SiteServer(home, seeded=True).answer(make_hello(birds))
    server = home.run_folder("abc").server
    kept = {path.name for path in server.rglob("*") if path.is_file()}
    for path in server.rglob("*"):  # as if it had ended right after its configuration was written
        if path.is_file():
            path.unlink()
    assert unseal(SiteServer(home, seeded=True).answer(make_hello(birds))).kind == "hello"
    assert {path.name for path in server.rglob("*") if path.is_file()} == kept


def make_resident(tmp_path, said) -> ResidentProcess:
    log = tmp_path / "resident.log"
    return ResidentProcess(tmp_path / "site.toml", None, False, log, said.append)


def test_a_resident_process_that_is_killed_while_it_starts_is_started_again(tmp_path, monkeypatch):
    said: list[str] = []
    codes = [-9, -9, None]
    resident = make_resident(tmp_path, said)
    monkeypatch.setattr(resident, "_start_once", lambda: codes.pop(0))
    resident.start()
    assert codes == [] and len(said) == 2 and "it is started again" in said[0]


def test_a_resident_process_that_ends_by_itself_is_not_started_again(tmp_path, monkeypatch):
    """It has said why, and would say the same again."""
    codes = [2]
    resident = make_resident(tmp_path, [])
    resident.log.write_text("the lock is held\n")
    monkeypatch.setattr(resident, "_start_once", lambda: codes.pop(0))
    with pytest.raises(ResidentLostError, match="the lock is held"):
        resident.start()


def test_a_resident_process_whose_node_died_while_it_started_takes_no_lock(birds, tmp_path):
    """It would hold the lock of its site when the next one starts, which then ends for good."""
    home = birds.home("east", tmp_path)
    ours, theirs = socket.socketpair()
    settings = {"file": str(home.file), "keys": None, "seeded": False, "parent": 2**22 + 1}
    words = ["-m", "vitrail.flower.site.resident", str(theirs.fileno()), json.dumps(settings)]
    with ours, theirs:
        done = subprocess.run(
            [sys.executable, *words],
            pass_fds=(theirs.fileno(),),
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 1 and "is gone" in done.stderr
    assert not (home.folder / "lock").exists()


def test_a_lock_that_is_about_to_be_let_go_is_waited_for(birds, tmp_path):
    """Of a process whose parent was killed a moment ago, and that is not gone yet."""
    home, held = birds.home("east", tmp_path), threading.Event()

    def hold_for_a_moment() -> None:
        with home.hold_lock():
            held.set()
            time.sleep(0.5)

    thread = threading.Thread(target=hold_for_a_moment)
    thread.start()
    held.wait()
    with home.hold_lock(patience=20.0):
        assert is_locked(home.folder / "lock")
    thread.join()


def test_a_node_that_was_silent_for_a_while_is_heard_again(tmp_path):
    """Its heartbeats came too late on a busy machine; it had not gone, and will answer."""
    keys = make_keys(tmp_path / "keys", ["north"], ["localhost"])
    with FleetServer("127.0.0.1", find_free_port(), keys, tmp_path / "scratch") as server:
        (node,) = server.names
        state, link = server.state, FleetLink(server)
        state.acknowledge_node_heartbeat(node, 1e6)
        activated = link._get_activation(node)
        waiting = {link._push(node, b"question", 60.0): _Question("north", node, activated)}
        state.nodes[node].online_until = time.time() - 60
        assert list(link._pull(waiting)) == []  # Flower says that the node is gone
        (question,) = waiting.values()
        assert question.lost is not None
        state.nodes[node].online_until = time.time() + 60
        assert list(link._ask_again(waiting, lambda _: b"question", 60.0)) == []
        assert list(waiting.values()) == [question] and question.lost is None


def test_a_message_that_nobody_could_answer_is_asked_again(tmp_path):
    """The site connects anew, which the coordinator takes as a reason to ask again."""
    keys = make_keys(tmp_path / "keys", ["north"], ["localhost"])
    port, leaving, tries = find_free_port(), threading.Event(), []

    def answer(raw: bytes) -> bytes | None:
        tries.append(raw)
        return raw if len(tries) > 1 else None

    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        link = FleetLink(server)
        client = FleetClient(f"localhost:{port}", keys.site("north"), tmp_path)
        work = (answer, leaving, lambda _: None)
        thread = threading.Thread(target=client.serve, args=work, daemon=True)
        thread.start()
        try:
            while link.present() != ("north",):
                pass
            assert list(link.ask(["north"], lambda _: b"hello", 60.0)) == [("north", b"hello")]
            assert tries == [b"hello", b"hello"]
            left = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
            assert left == []  # neither message nor reply waits for anybody
        finally:
            leaving.set()
            thread.join(20)


def test_messages_that_a_killed_coordinator_left_behind_are_deleted(tmp_path):
    """They are updates of sites; those of a coordinator that still runs stay."""
    out = tmp_path / "run"
    dead, alive = tmp_path / ".run-messages-dead", tmp_path / ".run-messages-alive"
    for folder in (dead, alive):
        folder.mkdir()
        (folder / "lock").write_text("")
        (folder / "message").write_bytes(b"an update")
    with (alive / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with _make_scratch_folder(out) as scratch:
            assert scratch.parent == tmp_path and scratch.stat().st_mode & 0o077 == 0
            assert not dead.exists() and alive.exists()
    assert not scratch.exists()
