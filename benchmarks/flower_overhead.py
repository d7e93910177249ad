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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from vitrail.config import Loaded, dump, parse
from vitrail.data.load_images import load
from vitrail.engine.run import start
from vitrail.flower.coordinator.coordinate import run_federation
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

SITES = ("east", "north", "west")


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

    def __init__(self, root: Path, images: int, epochs: int, rounds: int) -> None:
        self.root = root
        data = {"aviary": {"images": images, "classes": 3}, "image_size": 32}
        birds = load(parse({"data": data}).config.data, root, derive_server_key(1))
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

    def load(self, simulated: bool, secure: bool = False) -> Loaded:
        tree = {**self.terms, "release": {"secure_sum": secure}}
        if simulated:
            source = {"source": "manifest", "path": str(self.root / "all.csv")}
            source |= {"site": "site", "split": "split"}
            tree |= {"data": {**tree["data"], **source}, "partition": {"kind": "column"}}
        return parse(tree, self.root)

    def make_site_config(self, name: str, folder: Path) -> SiteConfig:
        site_config = SiteConfig.open(self.root / f"{name}.toml")
        return WillingSite(
            site_config.file, site_config.name, site_config.data, site_config.run, folder / name
        )


def run_engine(field: BenchmarkFederation, folder: Path, secure: bool = False) -> Path:
    return start(field.load(True, secure), folder / "run").path


def run_link(field: BenchmarkFederation, folder: Path) -> Path:
    site_servers = {
        name: SiteServer(field.make_site_config(name, folder), seeded=True) for name in SITES
    }
    return run_federation(InProcessLink(site_servers), field.load(False), folder / "run", 3).path


def run_processes(field: BenchmarkFederation, folder: Path, tls: bool) -> Path:
    """A coordinator and three sites as processes of their own."""
    port = str(find_free_port())
    file = folder / "federation.toml"
    file.write_text(dump(field.load(False).config))
    make_keys(folder / "keys", SITES, ["localhost"])
    safe = ["--keys", str(folder / "keys")] if tls else ["--insecure"]
    words = ["server", str(file), "--out", str(folder / "run"), "--port", port, "--sites", "3"]
    started = [_start_vitrail([*words, *safe], folder / "server.log")]
    for name in SITES:
        site_folder = folder / name
        site_folder.mkdir()
        site = (
            (field.root / f"{name}.toml")
            .read_text()
            .replace(f"{name}.csv", f"{field.root}/{name}.csv")
        )
        (site_folder / "site.toml").write_text(site)
        safe = ["--keys", str(folder / "keys" / "sites" / name)] if tls else ["--insecure"]
        words = ["site", "--file", str(site_folder / "site.toml"), "--server", f"localhost:{port}"]
        started.append(_start_vitrail([*words, *safe, "--yes", "--once"], folder / f"{name}.log"))
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


def _start_vitrail(words: list[str], log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from vitrail.cli import main; main()", "flower", *words]
    with log.open("wb") as handle:
        return subprocess.Popen(command, stdout=handle, stderr=subprocess.STDOUT)


def measure_rounds(run: Path) -> tuple[float, float]:
    """Median seconds of a round but the first, and of the slowest site's own turn in it."""
    rows = [row for row in Run(run).rows() if row.get("seconds") and row["round"] > 1]
    rounds = [row["seconds"] for row in rows if row["site"] == "*"]
    training = {
        n: max(r["seconds"] for r in rows if r["round"] == n and r["site"] != "*")
        for n in {row["round"] for row in rows}
    }
    return statistics.median(rounds), statistics.median(training.values())


def measure_pieces(field: BenchmarkFederation, folder: Path) -> dict[str, float]:
    """What a turn at a site costs beside its training, in CPU seconds, the least of a few tries."""
    site_server = SiteServer(field.make_site_config("north", folder), seeded=True)
    loaded = site_server.config.merge_terms(_make_terms(field))
    opened = site_server._open_run(site_server.config.run_folder("x"), loaded)
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
            lambda: site_server._open_run(opened.folder, loaded)
        ),
        "sealing a message": _find_least(lambda: seal("turn", "run", "north", {}, tensors)),
        "opening a message": _find_least(lambda: unseal(raw)),
    }


def _make_terms(field: BenchmarkFederation) -> dict[str, Any]:
    from vitrail.flower.run_terms import make_terms

    return make_terms(field.load(False).config)


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
    for name, value in (("images", 600), ("epochs", 1), ("rounds", 3), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-processes", action="store_true", help="leave Flower's processes out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    contestants: dict[str, Callable[[BenchmarkFederation, Path], Path]] = {
        "engine": run_engine,
        "engine, secure sums": lambda field, folder: run_engine(field, folder, secure=True),
        "link in one process": run_link,
    }
    if not args.no_processes:
        contestants["processes, no TLS"] = lambda field, folder: run_processes(
            field, folder, tls=False
        )
        contestants["processes, TLS and keys"] = lambda field, folder: run_processes(
            field, folder, tls=True
        )
    took: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contestants}
    with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
        root = Path(scratch)
        field = BenchmarkFederation(root, args.images, args.epochs, args.rounds)
        for turn in range(args.repeats):
            for name, play in contestants.items():
                folder = root / f"{turn}-{name}".replace(" ", "-").replace(",", "")
                folder.mkdir()
                before = measure_processor_time()
                run = play(field, folder)
                took[name].append(
                    (*measure_rounds(run), (measure_processor_time() - before) / args.rounds)
                )
        piece_seconds = measure_pieces(field, root / "pieces")
    print(f"{args.images} images, {args.epochs} epochs, {args.rounds} rounds, n = {args.repeats}:")
    base = [whole for whole, _, _ in took["engine"]]
    for name, measured in took.items():
        whole, training, cpu = (statistics.median(values) for values in zip(*measured, strict=True))
        ratios = sorted(
            turn_figures[0] / other for turn_figures, other in zip(measured, base, strict=True)
        )
        print(
            f"  {name:<24} {whole:7.2f} s a round (a site's turn {training:.2f}), ratio "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); "
            f"{cpu:.2f} CPU s a round"
        )
    for name, value in piece_seconds.items():
        print(f"  {name:<40} {value:8.4f} CPU s")


if __name__ == "__main__":
    main()
