"""kill -9 at random moments of a real federation: the same bits and the same ledgers at its end.

    python benchmarks/flower_kills.py [--kills 30] [--rounds 120] [--seed 1] [--pause 4]

A coordinator and two sites are processes on loopback, without keys, because only there may draws
follow from the seed. Again and again one of five processes is killed: the coordinator, a site's
node (which takes its resident process along), or a resident process alone. What was killed is
started again, but for a resident process, which its node starts. The end is compared with the same
federation in one process that nobody disturbed: each number of the model, each line of the ledgers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from flower_overhead import SITES, BenchmarkFederation, InProcessLink

from vitrail.config import dump
from vitrail.files import read_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.ports import find_free_port
from vitrail.flower.site.site_server import SiteServer

_LONGEST, _LONGEST_ROUND = 1800.0, 300.0


class KilledFederation:
    """The processes of a federation, each with the command that starts it again."""

    def __init__(self, field: BenchmarkFederation, folder: Path, rounds: int) -> None:
        port = str(find_free_port())
        file = folder / "federation.toml"
        file.write_text(dump(field.load(False, rounds).config), encoding="utf-8")
        server = ["server", str(file), "--out", str(folder / "run"), "--port", port]
        self.commands = {"coordinator": [*server, "--sites", str(len(SITES)), "--insecure"]}
        for name in SITES:
            text = (field.root / f"{name}.toml").read_text(encoding="utf-8")
            text = text.replace(f'"{name}.csv"', f'"{field.root / name}.csv"')
            (folder / f"{name}.toml").write_text(
                text.replace("[data]", f'folder = "at-{name}"\n[data]'), encoding="utf-8"
            )
            words = ["--file", str(folder / f"{name}.toml"), "--server", f"127.0.0.1:{port}"]
            self.commands[name] = ["site", *words, "--insecure", "--seeded", "--yes", "--once"]
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, who: str) -> None:
        words = [sys.executable, "-c", "from vitrail.cli import main; main()", "flower"]
        with (self.folder / f"{who}.log").open("ab") as log:
            self.running[who] = subprocess.Popen(
                [*words, *self.commands[who]], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self, who: str, alone: bool) -> bool:
        """Kill a process, or the one that answers for a site `alone`; whether there was one."""
        process = self.running[who]
        if process.poll() is not None:
            return False
        if not alone:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.start(who)
            return True
        killed = False
        with contextlib.suppress(OSError):  # it may end while we look
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            for child in children.split():
                os.kill(int(child), signal.SIGKILL)
                killed = True
        return killed

    def is_over(self) -> bool:
        return (self.folder / "run" / "server" / "finished").exists()

    def count_rounds(self) -> int:
        checkpoints = self.folder / "run" / "server" / "checkpoints"
        names = [path.stem.rpartition("-")[2] for path in checkpoints.glob("round-*.safetensors")]
        return max(map(int, names), default=0)

    def wait_for_round(self) -> None:
        """Until one more round is on disk, or the run is over."""
        before, deadline = self.count_rounds(), time.monotonic() + _LONGEST_ROUND
        while self.count_rounds() == before and not self.is_over():
            if time.monotonic() > deadline:
                self.give_up()
            time.sleep(0.1)

    def give_up(self) -> None:
        logs = [path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log")]
        sys.exit("it does not go on:\n" + "\n\n".join(logs))

    def wait(self) -> None:
        deadline = time.monotonic() + _LONGEST
        while any(process.poll() is None for process in self.running.values()):
            if time.monotonic() > deadline:
                self.give_up()
            time.sleep(0.5)

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def disturb(
    federation: KilledFederation, kills: int, draw: random.Random, pause: float
) -> list[str]:
    """Kill until the run is over or enough were killed; who it was. Four kills of five wait until
    a round was finished since the last one, so that they hit all that a round does; the others
    come while processes still start."""
    done: list[str] = []
    while len(done) < kills and not federation.is_over():
        if draw.random() < 0.8:
            federation.wait_for_round()
        time.sleep(draw.uniform(0.0, pause))
        who = draw.choice(["coordinator", *SITES, *SITES])
        alone = who != "coordinator" and draw.random() < 0.5
        if not federation.is_over() and federation.kill(who, alone):
            done.append(f"{who}{' (resident)' if alone else ''}")
            print(f"{len(done)}: {done[-1]} after round {federation.count_rounds()}", flush=True)
    return done


def read_ledgers(folder: Path) -> dict[str, bytes]:
    return {
        name: next((folder / f"at-{name}").glob(f"runs/*/sites/{name}/ledger.jsonl")).read_bytes()
        for name in SITES
    }


def load_model(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(sorted((run / "server" / "checkpoints").glob("*"))[-1])[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("kills", 30), ("rounds", 120), ("seed", 1), ("images", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--pause", type=float, default=4.0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
        root = Path(scratch)
        field = BenchmarkFederation(root, args.images, 1)
        calm, wild = root / "calm", root / "wild"
        calm.mkdir(), wild.mkdir()
        stations = {
            name: SiteServer(field.make_site_config(name, calm, f"at-{name}"), seeded=True)
            for name in SITES
        }
        loaded = field.load(False, args.rounds)
        run_federation(InProcessLink(stations), loaded, calm / "run", len(SITES))
        federation = KilledFederation(field, wild, args.rounds)
        try:
            for who in federation.commands:
                federation.start(who)
            done = disturb(federation, args.kills, random.Random(args.seed), args.pause)
            federation.wait()
        finally:
            federation.stop()
        one, two = load_model(calm / "run"), load_model(wild / "run")
        bits = one.keys() == two.keys() and all(torch.equal(one[n], two[n]) for n in one)
        ledgers = read_ledgers(calm) == read_ledgers(wild)
        absent = (wild / "run" / "log.txt").read_text(encoding="utf-8").count(": without")
    print(f"{len(done)} kills: {', '.join(done)}")
    print(f"same bits: {bits}; same ledgers: {ledgers}; rounds without a site: {absent}")
    if not (bits and ledgers):
        sys.exit(1)


if __name__ == "__main__":
    main()
