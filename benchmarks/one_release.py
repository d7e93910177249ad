"""One release of a trained federation under every defense: accuracy and Grad-CAM, at one energy.

    python benchmarks/one_release.py DATA [--seed 1] [--energies 1,3] [--draws 4] --json FILE
    python benchmarks/one_release.py --table FILE FILE ...

A run without a defense is trained and its last round recorded. Then every site's update of that
round passes each defense, with fresh noise for each draw, and the server takes the mean: what the
global model would be had the defense stood there in this round only. So all defenses start from
the same weights, and nothing differs but the noise. ResNet8 of width 16, 5 sites, IID, 32 x 32;
DATA is an .npz or .parquet file.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitrail
from vitrail.audit.fidelity import seen
from vitrail.engine.deployed import Deployed
from vitrail.engine.hire import host_of
from vitrail.engine.loaded import Run
from vitrail.engine.plan import make_plan
from vitrail.engine.reference import images_of
from vitrail.explain.closeness import averaged, compared
from vitrail.files import read_tensors
from vitrail.local.session import Site
from vitrail.release import DEFENSES, Update
from vitrail.rng import simulated_site

NAMES = ("tip", "random-channels", "least-channels", "white-noise", "all-channels", "agp")
FIGURES = ("energy", "accuracy", "agreement", "mse", "psnr", "ssim", "rank_correlation")


def config(data: Path, seed: int, rounds: int, images: int) -> dict[str, Any]:
    """The federation that is trained without a defense."""
    source = "parquet" if data.suffix == ".parquet" else "npz"
    return {
        "data": {
            "source": source,
            "path": str(data.resolve()),
            "limit": images,
            "image_size": 32,
        },
        "partition": {"sites": 5},
        "model": {"backbone": "resnet8", "width": 16},
        "optimizer": {"lr": 0.1},
        "run": {
            "rounds": rounds,
            "seed": seed,
            "record_updates": True,
            "checkpoint_every": rounds,
            "evaluate_every": rounds,
        },
    }


class Bench:
    """A trained run: the updates of its last round, and the images to judge by."""

    def __init__(self, run: Run, images: int) -> None:
        self.run = run
        federation = images_of(run)
        self.plan, network = make_plan(run.loaded, run.classes, run.card["channels"])
        self.host = host_of(self.plan, network, federation, run.path)
        held = [s.test for s in federation.sites.values()]
        self.rows = np.concatenate([federation.server_test, *held])[:images]
        self.pixels = np.array(federation.images.images[self.rows])
        self.labels = federation.images.labels[self.rows]
        self.folder = run.path / "server" / "transcript" / f"round-{run.round:05d}"
        sent = read_tensors(self.folder / "sent.safetensors")[0]
        self.received = self._flat(sent)
        self.updates = {
            site: read_tensors(self.folder / "updates" / f"{site}.safetensors")[0]
            for site in run.sites
        }
        self.base = self.judged(self.mean(self.updates))

    def _flat(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        flat = torch.zeros(self.plan.layout.size)
        for name, view in self.plan.layout.views(flat).items():
            view.copy_(tensors[f"model/{name}"])
        return flat

    def mean(self, updates: dict[str, dict[str, torch.Tensor]]) -> torch.Tensor:
        """The global model: the mean weighed by images."""
        counts = [len(self.host.sites[site].train) for site in updates]
        flats = [self._flat(tensors).double() for tensors in updates.values()]
        total = sum(count * flat for count, flat in zip(counts, flats, strict=True))
        assert isinstance(total, torch.Tensor)
        return (total / sum(counts)).float()

    def judged(self, values: torch.Tensor) -> Any:
        """Grad-CAM and predictions of a global model."""
        self.host.model.values.copy_(values)
        self.host.model.network.eval()
        model = Deployed(self.host.model.network, self.host.inputs.normalize, self.run.card)
        return seen(model, self.pixels, self.labels, curves=False)

    def defended(self, name: str, energy: float, draw: int) -> dict[str, float | None]:
        """The figures of one defense with one draw of noise."""
        ctx = self.plan.context(self.run.round, len(self.run.sites))
        defense = DEFENSES[name](name, {}, energy=energy)
        noised, spent = {}, []
        for site, tensors in self.updates.items():
            self.host.model.values.copy_(self._flat(tensors))
            key = simulated_site(self.plan.config.run.seed, site).at("draw", draw)
            desk = Site(
                site,
                self.host.sites[site],
                self.host.inputs,
                self.host.model,
                {},
                key,
                self.plan.stages[-1].shared,
                self.received,
            )
            update = Update(site, self.run.round, "train", tensors)
            passed, figures = defense.apply(update, desk, ctx)
            noised[site] = dict(passed.tensors)
            spent.append(figures["energy"])
        view = self.judged(self.mean(noised))
        pairs = [compared(a, b) for a, b in zip(self.base.maps, view.maps, strict=True)]
        told = averaged([pair for pair in pairs if pair is not None])
        return {
            **told,
            "energy": float(np.mean(spent)),
            "accuracy": float(np.mean(view.predicted == self.labels)),
            "agreement": float(np.mean(view.predicted == self.base.predicted)),
            "failures": float(sum(pair is None for pair in pairs)),
        }


def measure(told: argparse.Namespace) -> None:
    """Train, release once under each defense, write the figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        raw = config(Path(told.files[0]), told.seed, told.rounds, told.limit)
        vitrail.run(raw, Path(folder) / "run")
        bench = Bench(Run(Path(folder) / "run"), told.images)
        accuracy = float(np.mean(bench.base.predicted == bench.labels))
        print(f"seed {told.seed}: accuracy {accuracy:.3f} without a defense", flush=True)
        rows = []
        for energy in map(float, told.energies.split(",")):
            for name in NAMES:
                for draw in range(told.draws):
                    found = bench.defended(name, energy, draw)
                    rows.append({"name": name, "asked": energy, "draw": draw, **found})
                print(f"  energy {energy:g}, {name}", flush=True)
    Path(told.json).write_text(json.dumps({"seed": told.seed, "accuracy": accuracy, "rows": rows}))


def table(files: list[str]) -> None:
    """Means over seeds of each seed's mean over draws, with the SD over seeds."""
    runs = [json.loads(Path(file).read_text()) for file in files]
    print("undefended accuracy:", ", ".join(f"{run['accuracy']:.3f}" for run in runs))
    asked = sorted({row["asked"] for run in runs for row in run["rows"]})
    print("| energy | defense | " + " | ".join(FIGURES[1:]) + " |")
    print("|---" * (len(FIGURES) + 1) + "|")
    for energy in asked:
        for name in NAMES:
            cells = []
            for figure in FIGURES[1:]:
                each = [
                    np.mean(
                        [
                            r[figure]
                            for r in run["rows"]
                            if (r["name"], r["asked"]) == (name, energy)
                        ]
                    )
                    for run in runs
                ]
                spread = f" ± {np.std(each, ddof=1):.2g}" if len(each) > 1 else ""
                cells.append(f"{np.mean(each):.3g}{spread}")
            print(f"| {energy:g} | `{name}` | " + " | ".join(cells) + " |")


def main() -> None:
    """Measure one seed, or print the table of several."""
    options = argparse.ArgumentParser()
    options.add_argument("files", nargs="+")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--limit", type=int, default=2000)
    options.add_argument("--images", type=int, default=150)
    options.add_argument("--energies", default="1,3")
    options.add_argument("--draws", type=int, default=4)
    options.add_argument("--json", default="")
    options.add_argument("--table", action="store_true")
    told = options.parse_args()
    table(told.files) if told.table else measure(told)


if __name__ == "__main__":
    main()
