"""Peak memory of a federation's coordinator, by the number of its sites.

    python benchmarks/flower_memory.py [--fleet 20 80] [--inside 160 1000] [--rounds 2]

Messages are about 4 MB. `--fleet`: a coordinator process on loopback with TLS and node keys, whose
process also holds Flower's state and port; the sites are threads of one other process that speak
Fleet and send back what they received, without training. `--inside`: the coordinator with a link
inside its process that answers the same way. Peak is the largest resident size of the coordinator.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vitrail.config import dump, parse
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import compute_message_id, seal, unseal
from vitrail.flower.keys import Keys, make_keys
from vitrail.flower.link import Answered, MakeMessage
from vitrail.flower.node_signer import NodeSigner
from vitrail.flower.ports import find_free_port
from vitrail.flower.site.fleet_client import FleetClient
from vitrail.release.ledger_chain import Head
from vitrail.release.ledger_heads import make_head_statement

TERMS: dict[str, Any] = {
    "data": {"classes": ["a", "b"], "image_size": 32, "channels": 3},
    "model": {"backbone": "resnet8", "width": 29},
}


class EchoSite:
    """Answers as a site does, with the model that it received."""

    def __init__(self, name: str, signer: NodeSigner | None = None) -> None:
        self.name = name
        self.signer = signer

    def answer(self, raw: bytes) -> bytes:
        message = unseal(raw)
        body: dict[str, Any] = {}
        tensors: dict[str, Any] = {}
        if message.kind == "hello":
            body = {"facts": {"examples": 10.0}, "lacks": []}
        elif message.kind == "turn":
            task = message.body["task"]
            body = self._make_turn(message.run, int(task["round"]), bool(task["closing"]))
            tensors = {} if task["closing"] else message.tensors
        mark = compute_message_id(raw)
        return seal(message.kind, message.run, self.name, body, tensors, answers=mark)

    def _make_turn(self, run: str, round_: int, closing: bool) -> dict[str, Any]:
        head = Head(round_, f"{round_:064x}")
        statement = make_head_statement(run, self.name, round_, head)
        signature = "" if self.signer is None else self.signer.sign(statement)
        return {
            "site": self.name,
            "round": round_,
            "stage": "train",
            "counts": {} if closing else {"examples": 10, "steps": 1},
            "metrics": {},
            "kept": False,
            "key": None,
            "withheld": "",
            "ledger": {"lines": head.lines, "hash": head.hash, "signature": signature},
        }


class EchoLink:
    """Sites inside this process; each is made when it is asked."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def present(self) -> tuple[str, ...]:
        return self.names

    def ask(
        self, sites: Sequence[str], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        del patience
        for name in sites:
            yield name, EchoSite(name).answer(make_message(name))


def list_names(count: int) -> list[str]:
    return [f"site-{number:04d}" for number in range(count)]


def run_inside(sites: int, rounds: int, folder: Path) -> float:
    """The coordinator with a link in its own process; its peak in MB."""
    loaded = parse({**TERMS, "run": {"rounds": rounds}})
    run_federation(EchoLink(list_names(sites)), loaded, folder / "run", sites)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def serve_sites(keys: Path, server: str, sites: int, folder: Path) -> None:
    """All sites as threads of this process, until it is ended."""
    leaving = threading.Event()
    for name in list_names(sites):
        own = Keys(keys).site(name)
        home = folder / name
        home.mkdir()
        client = FleetClient(server, own, home)
        site = EchoSite(name, NodeSigner(own))
        work = (site.answer, leaving, lambda _: None)
        threading.Thread(target=client.serve, args=work, daemon=True).start()
    leaving.wait()


def run_fleet(sites: int, rounds: int, folder: Path) -> float:
    """The coordinator as a process, its sites as threads of another; its peak in MB."""
    make_keys(folder / "keys", list_names(sites), ["localhost"])
    loaded = parse({**TERMS, "run": {"rounds": rounds}})
    (folder / "federation.toml").write_text(dump(loaded.config), encoding="utf-8")
    port = find_free_port()
    words = ["--sites-at", f"localhost:{port}", str(folder), str(sites)]
    with subprocess.Popen([sys.executable, __file__, *words]) as nodes:
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--coordinate", str(port), str(folder)],
                capture_output=True,
                text=True,
                timeout=1800,
            )
        finally:
            nodes.terminate()
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    peak, seconds = json.loads(done.stdout.splitlines()[-1])
    absent = (folder / "run" / "log.txt").read_text(encoding="utf-8").count(": without")
    print(f"  {sites:5d} sites: {seconds:.0f} s of processor time, {absent} turns without a site")
    return float(peak)


def coordinate(port: int, folder: Path) -> None:
    """`vitrail flower server` in this process, and what it took."""
    from vitrail.flower.coordinator.server_command import ServerSettings, run_server
    from vitrail.flower.events import EventTeller

    settings = ServerSettings("127.0.0.1", port, Keys(folder / "keys"))
    run_server(folder / "federation.toml", folder / "run", settings, EventTeller(print))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([used.ru_maxrss / 1024, used.ru_utime + used.ru_stime]))


def measure(kind: str, sites: int, rounds: int) -> float:
    """One size, in processes of its own."""
    with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
        if kind == "fleet":
            return run_fleet(sites, rounds, Path(scratch))
        words = ["--inside-here", str(sites), str(rounds), scratch]
        command = [sys.executable, __file__, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout.splitlines()[-1])


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["--inside-here"]:
        print(run_inside(int(words[1]), int(words[2]), Path(words[3])))
        return
    if words[:1] == ["--sites-at"]:
        serve_sites(Path(words[2]) / "keys", words[1], int(words[3]), Path(words[2]))
        return
    if words[:1] == ["--coordinate"]:
        coordinate(int(words[1]), Path(words[2]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--fleet", type=int, nargs="*", default=[20, 80])
    parser.add_argument("--inside", type=int, nargs="*", default=[160, 1000])
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    for kind, sizes in (("inside", args.inside), ("fleet", args.fleet)):
        for sites in sizes:
            print(f"  {kind}, {sites:5d} sites: peak {measure(kind, sites, args.rounds):.0f} MB")


if __name__ == "__main__":
    main()
