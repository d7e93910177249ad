"""A site's two processes, watched by Python's own audit hooks: they connect to the coordinator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from vitrail.flower.coordinator.fleet_link import FleetLink
from vitrail.flower.coordinator.fleet_server import FleetServer
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.keys import make_keys
from vitrail.flower.ports import find_free_port
from vitrail.flower.run_terms import make_terms, resolve_terms
from vitrail.flower.versions import list_versions

pytestmark = pytest.mark.timeout(300)
HOOK = """
import json, os, sys
def note(*words):
    handle = os.open(os.environ["HOOK_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, json.dumps([os.getpid(), *words]).encode() + b"\\n")
    os.close(handle)
def watch(event, args):
    if event in ("socket.connect", "socket.sendto"):
        note(event, str(args[1]))
    elif event == "socket.getaddrinfo":
        note(event, str(args[:2]))
sys.addaudithook(watch)
note("start", " ".join(sys.orig_argv))
"""


def test_a_site_connects_to_its_coordinator_and_nowhere_else(birds, tmp_path):
    """One hello, answered by the resident process; nothing is looked up but the coordinator."""
    home, port = birds.home("north", tmp_path), find_free_port()
    keys = make_keys(tmp_path / "keys", ["north"], ["localhost"])
    hook, log = tmp_path / "hook", tmp_path / "hook.log"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    paths = os.pathsep.join([str(hook), *(path for path in sys.path if path)])
    words = ["--file", str(home.file), "--server", f"localhost:{port}", "--yes"]
    words += ["--keys", str(keys.site("north"))]
    hello = {"terms": make_terms(resolve_terms(birds.coordinator()).config)}
    hello |= {"versions": list_versions(), "patience": 60.0}
    with FleetServer("127.0.0.1", port, keys, tmp_path / "scratch") as server:
        site = subprocess.Popen(
            [sys.executable, "-m", "vitrail", "flower", "site", *words],
            env={**os.environ, "HOOK_LOG": str(log), "PYTHONPATH": paths},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            link = FleetLink(server)
            deadline = time.monotonic() + 120
            while not link.present() and time.monotonic() < deadline and site.poll() is None:
                time.sleep(0.1)
            message = seal("hello", "run", "north", hello)
            ((_, reply),) = link.ask(["north"], lambda _: message, 120)
        finally:
            site.terminate()
            site.wait(30)
    assert isinstance(reply, bytes) and unseal(reply).kind == "hello"
    check_seen(log, port)


def check_seen(log: Path, port: int) -> None:
    """Both processes were watched, and one address was asked for."""
    seen = [json.loads(line) for line in log.read_text().splitlines()]
    assert any("site.resident" in words for _, event, words in seen if event == "start")
    reached = {words for _, event, words in seen if event != "start"}
    allowed = {f"('127.0.0.1', {port})", f"('localhost', {port})"}
    allowed |= {f"('::1', {port}, 0, 0)"}
    assert f"('127.0.0.1', {port})" in reached and reached <= allowed, reached
