"""Flower's own processes on loopback: same bits, TLS and authentication, kills, no way out."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from vitrail.config import dump
from vitrail.engine.tasks import MissingReply
from vitrail.files import read_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import unseal
from vitrail.flower.key_roll import revoke_site
from vitrail.flower.keys import make_keys
from vitrail.flower.node_key import make_node_key
from vitrail.flower.ports import find_free_port
from vitrail.flower.trusted_keys import read_trusted_keys
from vitrail.release.ledger_heads import HEADS_FILE, HeadFile
from vitrail.runs.verify_ledgers import verify_ledgers

pytest.importorskip("flwr")
pytestmark = [pytest.mark.very_slow, pytest.mark.timeout(900)]

SITES = ("east", "north", "west")
HOOK = """
import importlib.abc, importlib.util, json, os, sys

def spy(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple):
        with open(os.environ["SPY_FILE"], "a") as handle:
            handle.write(f"{args[1][0]}\\n")

class Spoil(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "vitrail.flower.site.site_server":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        def loaded(module):
            load(module)
            from hostile import spoiled
            module.SiteServer.answer = spoiled(module.SiteServer.answer)
        spec.loader.exec_module = loaded
        return spec

sys.addaudithook(spy)
if "HOSTILE" in os.environ:
    sys.meta_path.insert(0, Spoil())
"""
HOSTILE = """
import hashlib, json, os, struct, time
from vitrail.flower.envelope import compute_message_id, seal, unseal

def spoiled(answer):
    def answers(self, raw):
        reply = answer(self, raw)
        letter, task = unseal(reply), unseal(raw).body.get("task")
        fault = json.loads(os.environ["HOSTILE"]).get(str(task and task["round"]))
        if fault is None or task["closing"]:
            return reply
        if fault == "sleep":
            time.sleep(float(os.environ["SLEEP"]))
            return reply
        body, tensors = dict(letter.body), dict(letter.tensors)
        if fault == "NaN":
            tensors = {n: t * float("nan") for n, t in tensors.items()}
        elif fault == "shapes":
            tensors = {n: t.reshape(-1)[:1] for n, t in tensors.items()}
        elif fault == "round":
            body["round"] = 7
        known = compute_message_id(raw)
        changed = seal(letter.kind, letter.run, letter.site, body, tensors, answers=known)
        return claim(changed) if fault == "claim" else changed
    return answers

def claim(raw):
    '''The same message, whose first tensor is said to have ten gigabytes.'''
    magic, version, length, payload = struct.unpack_from("<4sHIQ", raw)
    text = json.loads(raw[18 : 18 + length])
    text["tensors"][0][2] = [2_500_000_000]
    head = json.dumps(text).encode()
    body = struct.pack("<4sHIQ", magic, version, len(head), payload) + head + raw[18 + length : -16]
    return body + hashlib.blake2b(body, digest_size=16).digest()
"""
FAULTS = {
    "east": {"1": "NaN"},
    "north": {"2": "claim"},
    "west": {"1": "shapes", "2": "round", "3": "sleep"},
}
SAID = (
    r"round 1: refused east: tensor .* has values that are not finite",
    r"round 1: refused west: tensor .* has shape \[1\]",
    r"refused a message of north: .*the tensors are longer than the message",
    "round 2: refused west: it belongs to west, round 7",
    "round 3: without west: it was too late",
)


def deadline() -> float:
    """Seconds a turn may take here: three sites start at once, and a busy machine is slower."""
    began = time.monotonic()
    command = [sys.executable, "-c", "import vitrail.flower.site.resident"]
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    started = [subprocess.Popen(command, env={**os.environ, **paths}) for _ in SITES]
    assert not any(process.wait() for process in started)
    return 8.0 + 2.5 * (time.monotonic() - began)


def vitrail(*words: str, cwd: Path, log: Path, **more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from vitrail.cli import main; main()", "flower", *words]
    paths = os.pathsep.join([more.pop("HOOK", ""), *[p for p in sys.path if p]])
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


def until(true, seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.3)


def test_faults_and_kills_cost_what_they_must_and_no_more(birds, field) -> None:
    """Insecure, because only there may draws follow from the seed. Sites send rubbish or sleep;
    the server and a site are killed in the middle: the bits are those of a federation in one
    process in which the same sites were away in the same rounds."""
    root, go = field
    terms = {"method": {"name": "scaffold"}, "run": {"rounds": 3, "batch_size": 8, "seed": 5}}
    run_federation(
        absent(birds.loop(root / "loop")), birds.coordinator(**terms), root / "expected", 3
    )
    (root / "fed.toml").write_text(dump(birds.coordinator(**terms).config))
    (root / "hook").mkdir()
    (root / "hook" / "sitecustomize.py").write_text(HOOK)
    (root / "hook" / "hostile.py").write_text(HOSTILE)
    hook = {"HOOK": str(root / "hook"), "SPY_FILE": str(root / "connections")}
    port = str(find_free_port())
    serve = ("server", "fed.toml", "--out", "run", "--port", port, "--sites", "3", "--insecure")
    patience = deadline()
    serve = (*serve, "--timeout", str(patience))
    attend = ("--server", f"127.0.0.1:{port}", "--insecure", "--seeded", "--yes", "--once")

    def site(name: str) -> subprocess.Popen[bytes]:
        faults = {"HOSTILE": json.dumps(FAULTS[name]), "SLEEP": str(patience + 5)}
        return go("site", "--file", f"{name}.toml", *attend, log=f"{name}.log", **hook, **faults)

    server = go(*serve, log="server.log", **hook)
    sites = {name: site(name) for name in SITES}
    until((root / "run" / "server" / "checkpoints" / "round-00001.safetensors").exists)
    for process in (server, sites["north"]):
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    server, sites["north"] = go(*serve, log="server.log", **hook), site("north")
    assert server.wait(600) == 0, (root / "server.log").read_text()
    for name in ("east", "north"):  # the third may still be asleep
        assert sites[name].wait(120) == 0, (root / f"{name}.log").read_text()
    log = (root / "run" / "log.txt").read_text()
    assert all(re.search(said, log) for said in SAID), log
    assert same(root / "run", root / "expected")
    assert "INSECURE" in (root / "server.log").read_text()
    hosts = set((root / "connections").read_text().split())
    assert hosts <= {"127.0.0.1", "::1", "localhost"}, hosts


def absent(loop):
    """The same federation, in which a site with a fault in a round does not answer in it."""
    for name, faults in FAULTS.items():

        def away(raw, reply, faults=faults):
            task = unseal(raw).body.get("task")
            lost = task and not task["closing"] and str(task["round"]) in faults
            return MissingReply("away") if lost else reply

        loop.spoil[name] = away
    return loop


def test_keys_decide_who_takes_part(birds, field) -> None:
    root, go = field
    terms = {"run": {"rounds": 1, "batch_size": 8, "seed": 5}, "release": {"secure_sum": True}}
    (root / "fed.toml").write_text(dump(birds.coordinator(**terms).config))
    own = {"north": make_node_key(root / "own")}  # east's key is the coordinator's work
    names = ["east", "north", "west"]
    keys = make_keys(root / "keys", names, ["localhost", "127.0.0.1"], own=own)
    revoke_site(keys, "west")
    shutil.copytree(keys.site("north"), root / "own", dirs_exist_ok=True)
    make_keys(root / "others", ["west", "north"], ["localhost"])
    port = str(find_free_port())
    server = go(
        *("server", "fed.toml", "--out", "run", "--port", port, "--keys", "keys"), log="server.log"
    )
    address = f"localhost:{port}"

    def site(name: str, keys: str, log: str, file: str = "") -> subprocess.Popen[bytes]:
        words = ("--server", address, "--keys", keys, "--yes", "--once")
        return go("site", "--file", file or f"{name}.toml", *words, log=log)

    foreign = site("west", "others/sites/west", "foreign.log")  # another authority's certificate
    mixed = root / "mixed"
    mixed.mkdir(mode=0o700)
    (mixed / "ca.pem").write_bytes((root / "keys" / "ca.pem").read_bytes())
    (mixed / "node.key").write_bytes((root / "others/sites/west/node.key").read_bytes())
    (mixed / "node.key").chmod(0o600)
    other = (root / "west.toml").read_text().replace('"at-west"', '"at-other"')
    (root / "other.toml").write_text(other)  # one process answers for a folder
    unknown = site("west", "mixed", "unknown.log", "other.toml")  # a key nobody registered
    (root / "third.toml").write_text(other.replace('"at-other"', '"at-third"'))
    revoked = site("west", "keys/sites/west", "revoked.log", "third.toml")
    good = [site("east", "keys/sites/east", "east.log"), site("north", "own", "north.log")]
    assert server.wait(600) == 0, (root / "server.log").read_text()
    assert all(process.wait(60) == 0 for process in good)
    assert (root / "run" / "server" / "finished").exists()
    card = (root / "run" / "server" / "card.json").read_text()
    assert '"west"' not in card
    for process in (foreign, unknown, revoked):
        assert process.poll() is None  # still trying, and never let in
    assert "is not the coordinator that ca.pem is for" in (root / "foreign.log").read_text()
    assert "does not know this site's key" in (root / "unknown.log").read_text()
    assert "does not know this site's key" in (root / "revoked.log").read_text()
    for name, folder in (("east", "at-east"), ("north", "at-north")):
        site_run = next((root / folder).glob("runs/*"))
        files = [path for path in (root / folder).rglob("*") if not path.is_symlink()]
        assert not [path for path in files if path.stat().st_mode & 0o077]
        assert [len(HeadFile(site_run / "sites" / name / HEADS_FILE).read())] == [2]
    checks = verify_ledgers(root / "run", keys=read_trusted_keys(keys.folder))
    assert [check.site for check in checks] == ["east", "north"]
    assert not any(check.problem for check in checks)
    said = (root / "server.log").read_text()
    assert "does not accept this coordinator's certificate" in said  # of the foreign one
    assert "was not let in: its key is not registered here" in said
    assert "waiting for east, north" in said and "all 2 sites are there" in said
    for folder in ("at-west", "at-other", "at-third"):
        assert not list((root / folder).glob("runs/*"))
