"""Seconds of a round over Flower against the engine's, on the same work.

    python benchmarks/flower_overhead.py [--images 1100] [--epochs 8] [--rounds 11] [--repeats 1]

Two sites, images of 3x32x32, ResNet8, FedAvg. The engine plays them in two worker processes; the
federation is a coordinator and two sites as processes of their own on loopback, with TLS and node
keys. So both have two processes that train, on two cores that slow each other alike. Rounds are
timed by whoever leads them, the first of each run is left out, and the median is told. What a round
costs beyond its training is the time of the round less that of its slowest turn. Processor time is
read from the system for all processes of a contestant, from the end of its first round to the end
of its last, so that neither start nor end counts; what a site costs is the difference of the two,
by site. Then the pieces of a turn at a site are timed one by one.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from vitrail.config import Loaded, dump, parse
from vitrail.data.load_images import load
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.keys import make_keys
from vitrail.flower.link import Answered, MakeMessage
from vitrail.flower.ports import find_free_port
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer
from vitrail.models.flat import Layout
from vitrail.models.parts import list_tensors
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run

SITES = ("east", "north")
_ENGINE, _FEDERATION = "engine, 2 workers", "processes, TLS and keys"
_LOOK_SECONDS = 0.05


class InProcessLink:
    """A link inside this process."""

    def __init__(self, site_servers: dict[str, SiteServer]) -> None:
        self.site_servers = site_servers

    def present(self) -> tuple[str, ...]:
        return tuple(self.site_servers)

    def ask(
        self, sites: Sequence[str], make_message: MakeMessage, patience: float
    ) -> Iterator[Answered]:
        del patience
        for name in sites:
            yield name, self.site_servers[name].answer(make_message(name))


class WillingSite(SiteConfig):
    """A site whose operator says yes."""

    def wait(self, run: str, terms: Any, lines: Any, patience: float) -> bool:
        del run, terms, lines, patience
        return True


class BenchmarkFederation:
    """Images and files of a federation, and its configurations."""

    def __init__(self, root: Path, images: int, epochs: int) -> None:
        self.root = root
        self.epochs = epochs
        data = {"aviary": {"images": images, "classes": 3}, "image_size": 32}
        birds = load(parse({"data": data}).config.data, root, derive_server_key(1))
        rows = []
        for i, (pixels, label) in enumerate(zip(birds.images, birds.labels, strict=True)):
            Image.fromarray(pixels).save(root / f"{i:05d}.png")
            split = "test" if i % 5 == 0 else "train"
            rows.append((f"{i:05d}.png", birds.classes[label], SITES[i % 2], split))
        for name in ("all", *SITES):
            with (root / f"{name}.csv").open("w", newline="") as handle:
                out = csv.writer(handle)
                out.writerow(["path", "label", "site", "split"])
                out.writerows(row for row in rows if name in ("all", row[2]))
        for name in SITES:
            (root / f"{name}.toml").write_text(
                f'[site]\nname = "{name}"\n[data]\nsource = "manifest"\n'
                f'path = "{name}.csv"\nsplit = "split"\n'
            )
        self.terms: dict[str, Any] = {
            "data": {"classes": list(birds.classes), "image_size": 32, "channels": 3},
            "model": {"backbone": "resnet8"},
        }

    def load(self, simulated: bool, rounds: int, workers: int = 1) -> Loaded:
        run = {"rounds": rounds, "local_epochs": self.epochs, "seed": 5, "device": "cpu"}
        tree = {**self.terms, "run": run}
        if simulated:
            run["workers"] = workers
            source = {"source": "manifest", "path": str(self.root / "all.csv")}
            source |= {"site": "site", "split": "split"}
            tree |= {"data": {**tree["data"], **source}, "partition": {"kind": "column"}}
        return parse(tree, self.root)

    def make_site_config(self, name: str, folder: Path, called: str = "") -> SiteConfig:
        site_config = SiteConfig.open(self.root / f"{name}.toml")
        return WillingSite(
            site_config.file,
            site_config.name,
            site_config.data,
            site_config.run,
            folder / (called or name),
        )


Started = list[subprocess.Popen[bytes]]


def start_engine(field: BenchmarkFederation, folder: Path, rounds: int) -> Started:
    """The simulation, with a worker process a site."""
    file = folder / "simulation.toml"
    file.write_text(dump(field.load(True, rounds, len(SITES)).config))
    return [_start_vitrail(["run", str(file), "--out", str(folder / "run")], folder / "run.log")]


def start_federation(field: BenchmarkFederation, folder: Path, rounds: int) -> Started:
    """A coordinator and the sites as processes of their own, with TLS and node keys."""
    port = str(find_free_port())
    file = folder / "federation.toml"
    file.write_text(dump(field.load(False, rounds).config))
    make_keys(folder / "keys", SITES, ["localhost"])
    words = ["flower", "server", str(file), "--out", str(folder / "run"), "--port", port]
    keys = ["--keys", str(folder / "keys")]
    started = [_start_vitrail([*words, *keys], folder / "run.log")]
    for name in SITES:
        site_folder = folder / name
        site_folder.mkdir()
        text = (field.root / f"{name}.toml").read_text()
        text = text.replace(f"{name}.csv", f"{field.root}/{name}.csv")
        (site_folder / "site.toml").write_text(text)
        keys = ["--keys", str(folder / "keys" / "sites" / name)]
        words = ["flower", "site", "--file", str(site_folder / "site.toml")]
        words += ["--server", f"localhost:{port}", "--yes", "--once"]
        started.append(_start_vitrail([*words, *keys], folder / f"{name}.log"))
    return started


def _start_vitrail(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from vitrail.cli import main; main()", *words]
    with log.open("wb") as handle:
        return subprocess.Popen(command, stdout=handle, stderr=subprocess.STDOUT)


@dataclass(frozen=True)
class Timing:
    """Of one contestant in one turn: seconds of a round, of its slowest turn, what is beyond it,
    and processor seconds a round."""

    whole: float
    training: float
    beyond: float
    processor: float


def measure_rounds(run: Path) -> tuple[float, float, float]:
    """Medians over the rounds but the first: of the round, of the slowest site's own turn in it,
    and of the difference."""
    rows = [row for row in Run(run).rows() if row.get("seconds") and row["round"] > 1]
    whole = {row["round"]: row["seconds"] for row in rows if row["site"] == "*"}
    training = {
        n: max(r["seconds"] for r in rows if r["round"] == n and r["site"] != "*") for n in whole
    }
    beyond = [whole[n] - training[n] for n in whole]
    return (
        statistics.median(whole.values()),
        statistics.median(training.values()),
        statistics.median(beyond),
    )


Play = Callable[[BenchmarkFederation, Path, int], Started]


def measure(play: Play, field: BenchmarkFederation, folder: Path, rounds: int) -> Timing:
    """Play so many rounds; processor time from the end of the first to that of the last."""
    folder.mkdir(parents=True)
    started = play(field, folder, rounds)
    lines = RunFolder(folder / "run").lines
    used: dict[int, float] = {}
    try:
        while started[0].poll() is None:
            done = sum(row["site"] == "*" and bool(row.get("seconds")) for row in lines())
            if done in (1, rounds) and done not in used:
                used[done] = sum(measure_tree(process.pid) for process in started)
            time.sleep(_LOOK_SECONDS)
        for process in started:
            if process.wait(120):
                sys.exit((folder / "run.log").read_text()[-2000:])
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
            process.wait()
    processor = (used[rounds] - used[1]) / (rounds - 1)
    return Timing(*measure_rounds(folder / "run"), processor)


def measure_tree(process: int) -> float:
    """Processor seconds of a process and of all below it that live."""
    place = Path("/proc") / str(process)
    try:
        words = (place / "stat").read_text().rpartition(")")[2].split()
        children = " ".join(path.read_text() for path in place.glob("task/*/children")).split()
    except OSError:
        return 0.0
    own = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(measure_tree(int(child)) for child in children)


def measure_pieces(field: BenchmarkFederation, folder: Path) -> dict[str, float]:
    """What a turn at a site costs beside its training, in CPU seconds, the least of a few tries."""
    site_server = SiteServer(field.make_site_config("north", folder), seeded=True)
    loaded = site_server.config.merge_terms(_make_terms(field))
    opened = site_server._open_run("x", loaded)
    tensors = {
        f"model/{n}": t.clone()
        for n, t in opened.network.state_dict().items()
        if t.is_floating_point()
    }
    raw = seal("turn", "run", "north", {}, tensors)
    size = Layout.of(list_tensors(opened.network)).size
    print(f"a message holds {size:,} numbers, {len(raw) / 1e6:.2f} MB")
    start = [sys.executable, "-c", "import vitrail.flower.site.resident"]
    return {
        "start of a process, imports": _find_least(lambda: subprocess.run(start, check=True), 3),
        "reading the data, building the network": _find_least(
            lambda: SiteServer(site_server.config, seeded=True)._open_run("x", loaded)
        ),
        "sealing a message": _find_least(lambda: seal("turn", "run", "north", {}, tensors)),
        "opening a message": _find_least(lambda: unseal(raw)),
    }


def _make_terms(field: BenchmarkFederation) -> dict[str, Any]:
    from vitrail.flower.run_terms import make_terms

    return make_terms(field.load(False, 1).config)


def measure_processor_time() -> float:
    """Seconds of processor time of this process and of all it has waited for."""
    return sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def _find_least(work: Callable[[], object], tries: int = 5) -> float:
    """The least processor time of some tries."""
    times = []
    for _ in range(tries):
        began = measure_processor_time()
        work()
        times.append(measure_processor_time() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("images", 1100), ("epochs", 8), ("rounds", 11), ("repeats", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    torch.set_num_threads(1)
    contestants: dict[str, Play] = {_ENGINE: start_engine, _FEDERATION: start_federation}
    took: dict[str, list[Timing]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
        root = Path(scratch)
        field = BenchmarkFederation(root, args.images, args.epochs)
        for turn in range(args.repeats):
            for name, play in contestants.items():
                folder = root / f"{turn}-{name}".replace(" ", "-").replace(",", "")
                took[name].append(measure(play, field, folder, args.rounds))
        piece_seconds = measure_pieces(field, root / "pieces")
    print(
        f"{args.images} images, {args.epochs} epochs, {len(SITES)} sites, {args.rounds - 1} rounds "
        f"timed, n = {args.repeats}:"
    )
    print_timings(took)
    for name, value in piece_seconds.items():
        print(f"  {name:<40} {value:8.4f} CPU s")


def print_timings(took: dict[str, list[Timing]]) -> None:
    """Seconds a round of both, then what a federation costs over the engine of the same turn."""
    for name, timings in took.items():
        print(
            f"  {name:<24} {_median(t.whole for t in timings):7.2f} s a round (its slowest turn "
            f"{_median(t.training for t in timings):.2f}, beyond it "
            f"{_median(t.beyond for t in timings):.2f}), "
            f"{_median(t.processor for t in timings):.2f} CPU s"
        )
    pairs = list(zip(took[_FEDERATION], took[_ENGINE], strict=True))
    ratios = sorted(ours.whole / theirs.whole for ours, theirs in pairs)
    extra = [(ours.processor - theirs.processor) / len(SITES) for ours, theirs in pairs]
    print(
        f"  ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
        f"{_median(extra):+.2f} CPU s a site and round"
    )


def _median(values: Iterable[float]) -> float:
    return statistics.median(list(values))


if __name__ == "__main__":
    main()
