"""Seconds of a round over Flower against the engine in one process, on the same work.

    python benchmarks/flower_overhead.py [--images 600] [--epochs 1] [--rounds 3] [--repeats 3]

Three sites, images of 3x32x32, ResNet8, FedAvg. Contestants take turns: the engine in one process,
the same with secure sums, a link inside one process (every message sealed, opened and played as at
a site, data read anew), and Flower's own processes on loopback, with TLS and node keys and without.
Rounds are timed by the coordinator; the first of each run is left out, where imports are cold. The
processor time of a whole run, all its processes and both ends of it included, is divided by its
rounds: it is what to compare on a machine with busy neighbors.
Then the pieces of a turn at a site are timed one by one.
"""

from __future__ import annotations

import argparse
import csv
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from vitrail.config import Loaded, dump, parse
from vitrail.data.source import load
from vitrail.engine.loaded import Run
from vitrail.engine.run import start
from vitrail.engine.tasks import Missing
from vitrail.flower.coordinator import coordinate
from vitrail.flower.envelope import seal, unseal
from vitrail.flower.home import Home
from vitrail.flower.keys import make_keys
from vitrail.flower.processes import free_port
from vitrail.flower.station import Station
from vitrail.models.flat import Layout
from vitrail.models.parts import inventory
from vitrail.rng import server

SITES = ("east", "north", "west")


class Inside:
    """A link inside this process."""

    def __init__(self, stations: dict[str, Station]) -> None:
        self.stations = stations

    def present(self) -> tuple[str, ...]:
        return tuple(self.stations)

    def ask(self, messages: Mapping[str, bytes], patience: float) -> dict[str, bytes | Missing]:
        del patience
        return {name: self.stations[name].answer(raw) for name, raw in messages.items()}


class Willing(Home):
    """A site whose operator says yes."""

    def wait(self, run: str, terms: dict[str, Any], patience: float) -> bool:
        del run, terms, patience
        return True


class Field:
    """Images and files of a federation, and its configurations."""

    def __init__(self, root: Path, images: int, epochs: int, rounds: int) -> None:
        self.root = root
        data = {"aviary": {"images": images, "classes": 3}, "image_size": 32}
        birds = load(parse({"data": data}).config.data, root, server(1))
        rows = []
        for i, (pixels, label) in enumerate(zip(birds.images, birds.labels, strict=True)):
            Image.fromarray(pixels).save(root / f"{i:05d}.png")
            split = "test" if i % 5 == 0 else "train"
            rows.append((f"{i:05d}.png", birds.classes[label], SITES[i % 3], split))
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
            "run": {"rounds": rounds, "local_epochs": epochs, "seed": 5, "device": "cpu"},
        }

    def loaded(self, simulated: bool, secure: bool = False) -> Loaded:
        tree = {**self.terms, "release": {"secure_sum": secure}}
        if simulated:
            own = {"source": "manifest", "path": str(self.root / "all.csv")}
            own |= {"site": "site", "split": "split"}
            tree |= {"data": {**tree["data"], **own}, "partition": {"kind": "column"}}
        return parse(tree, self.root)

    def home(self, name: str, folder: Path) -> Home:
        home = Home.open(self.root / f"{name}.toml")
        return Willing(home.file, home.name, home.data, home.run, folder / name)


def engine(field: Field, folder: Path, secure: bool = False) -> Path:
    return start(field.loaded(True, secure), folder / "run").path


def inside(field: Field, folder: Path) -> Path:
    stations = {name: Station(field.home(name, folder), seeded=True) for name in SITES}
    return coordinate(Inside(stations), field.loaded(False), folder / "run", 3).path


def processes(field: Field, folder: Path, tls: bool) -> Path:
    """A coordinator and three sites as processes of their own."""
    port = str(free_port())
    file = folder / "federation.toml"
    file.write_text(dump(field.loaded(False).config))
    make_keys(folder / "keys", SITES, ["localhost"])
    safe = ["--keys", str(folder / "keys")] if tls else ["--insecure"]
    words = ["server", str(file), "--out", str(folder / "run"), "--port", port, "--sites", "3"]
    started = [_vitrail([*words, *safe], folder / "server.log")]
    for name in SITES:
        own = folder / name
        own.mkdir()
        site = (
            (field.root / f"{name}.toml")
            .read_text()
            .replace(f"{name}.csv", f"{field.root}/{name}.csv")
        )
        (own / "site.toml").write_text(site)
        safe = ["--keys", str(folder / "keys" / "sites" / name)] if tls else ["--insecure"]
        words = ["site", "--file", str(own / "site.toml"), "--server", f"localhost:{port}"]
        started.append(_vitrail([*words, *safe, "--yes", "--once"], folder / f"{name}.log"))
    try:
        if started[0].wait(1800):
            sys.exit((folder / "server.log").read_text()[-2000:])
        for process in started[1:]:
            process.wait(120)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
            process.wait()
    return folder / "run"


def _vitrail(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from vitrail.cli import main; main()", "flower", *words]
    with log.open("wb") as handle:
        return subprocess.Popen(command, stdout=handle, stderr=subprocess.STDOUT)


def seconds(run: Path) -> tuple[float, float]:
    """Median seconds of a round but the first, and of the slowest site's own turn in it."""
    rows = [row for row in Run(run).rows() if row.get("seconds") and row["round"] > 1]
    rounds = [row["seconds"] for row in rows if row["site"] == "*"]
    training = {
        n: max(r["seconds"] for r in rows if r["round"] == n and r["site"] != "*")
        for n in {row["round"] for row in rows}
    }
    return statistics.median(rounds), statistics.median(training.values())


def pieces(field: Field, folder: Path) -> dict[str, float]:
    """What a turn at a site costs beside its training, in CPU seconds, the least of a few tries."""
    station = Station(field.home("north", folder), seeded=True)
    loaded = station.home.joined(_terms(field))
    ground = station._ground(station.home.run_folder("x"), loaded)
    tensors = {
        f"model/{n}": t.clone()
        for n, t in ground.network.state_dict().items()
        if t.is_floating_point()
    }
    raw = seal("turn", "run", "north", {}, tensors)
    size = Layout.of(inventory(ground.network)).size
    print(f"a message holds {size:,} numbers, {len(raw) / 1e6:.2f} MB")
    start = [sys.executable, "-c", "import vitrail.flower.client_app"]
    return {
        "start of a process, imports": _best(lambda: subprocess.run(start, check=True), 3),
        "reading the data, building the network": _best(
            lambda: station._ground(ground.folder, loaded)
        ),
        "sealing a message": _best(lambda: seal("turn", "run", "north", {}, tensors)),
        "opening a message": _best(lambda: unseal(raw)),
    }


def _terms(field: Field) -> dict[str, Any]:
    from vitrail.flower.agreement import terms_of

    return terms_of(field.loaded(False).config)


def processor() -> float:
    """Seconds of processor time of this process and of all it has waited for."""
    return sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def _best(what: Callable[[], object], times: int = 5) -> float:
    """The least processor time of some tries."""
    found = []
    for _ in range(times):
        began = processor()
        what()
        found.append(processor() - began)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, value in (("images", 600), ("epochs", 1), ("rounds", 3), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-processes", action="store_true", help="leave Flower's processes out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    contestants: dict[str, Callable[[Field, Path], Path]] = {
        "engine": engine,
        "engine, secure sums": lambda field, folder: engine(field, folder, secure=True),
        "link in one process": inside,
    }
    if not args.no_processes:
        contestants["processes, no TLS"] = lambda field, folder: processes(field, folder, tls=False)
        contestants["processes, TLS and keys"] = lambda field, folder: processes(
            field, folder, tls=True
        )
    took: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
        root = Path(scratch)
        field = Field(root, args.images, args.epochs, args.rounds)
        for turn in range(args.repeats):
            for name, play in contestants.items():
                folder = root / f"{turn}-{name}".replace(" ", "-").replace(",", "")
                folder.mkdir()
                before = processor()
                run = play(field, folder)
                took[name].append((*seconds(run), (processor() - before) / args.rounds))
        found = pieces(field, root / "pieces")
    print(f"{args.images} images, {args.epochs} epochs, {args.rounds} rounds, n = {args.repeats}:")
    base = [whole for whole, _, _ in took["engine"]]
    for name, each in took.items():
        whole, training, cpu = (statistics.median(values) for values in zip(*each, strict=True))
        ratios = sorted(own[0] / other for own, other in zip(each, base, strict=True))
        print(
            f"  {name:<24} {whole:7.2f} s a round (a site's turn {training:.2f}), ratio "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
            f"{cpu:.2f} CPU s a round"
        )
    for name, value in found.items():
        print(f"  {name:<40} {value:8.4f} CPU s")


if __name__ == "__main__":
    main()
