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
from vitrail.audit.map_fidelity import compute_explanations
from vitrail.engine.plan import make_plan
from vitrail.engine.workers.make_pool import make_host
from vitrail.explain.map_similarity import average_metrics, compare_maps
from vitrail.files import read_tensors
from vitrail.local.session import Site
from vitrail.release import DEFENSES, Update
from vitrail.rng import derive_site_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

NAMES = ("tip", "random-channels", "least-channels", "white-noise", "all-channels", "agp")
FIGURES = ("energy", "accuracy", "agreement", "mse", "psnr", "ssim", "rank_correlation")


def make_config(data: Path, seed: int, rounds: int, images: int) -> dict[str, Any]:
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


class TrainedFederation:
    """A trained run: the updates of its last round, and the images to judge by."""

    def __init__(self, run: Run, images: int) -> None:
        self.run = run
        federation = load_run_federation(run)
        self.plan, network = make_plan(run.loaded, run.classes, run.card["channels"])
        self.host = make_host(self.plan, network, federation, run.path)
        test_rows = [s.test for s in federation.sites.values()]
        self.rows = np.concatenate([federation.server_test, *test_rows])[:images]
        self.pixels = np.array(federation.images.images[self.rows])
        self.labels = federation.images.labels[self.rows]
        self.folder = run.path / "server" / "transcript" / f"round-{run.round:05d}"
        sent = read_tensors(self.folder / "sent.safetensors")[0]
        self.received = self._flatten(sent)
        self.updates = {
            site: read_tensors(self.folder / "updates" / f"{site}.safetensors")[0]
            for site in run.sites
        }
        self.base = self.explain(self.average(self.updates))

    def _flatten(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        flat = torch.zeros(self.plan.layout.size)
        for name, view in self.plan.layout.views(flat).items():
            view.copy_(tensors[f"model/{name}"])
        return flat

    def average(self, updates: dict[str, dict[str, torch.Tensor]]) -> torch.Tensor:
        """The global model: the mean weighed by images."""
        counts = [len(self.host.sites[site].train) for site in updates]
        flats = [self._flatten(tensors).double() for tensors in updates.values()]
        total = sum(count * flat for count, flat in zip(counts, flats, strict=True))
        assert isinstance(total, torch.Tensor)
        return (total / sum(counts)).float()

    def explain(self, values: torch.Tensor) -> Any:
        """Grad-CAM and predictions of a global model."""
        self.host.model.values.copy_(values)
        self.host.model.network.eval()
        model = DeployedModel(self.host.model.network, self.host.inputs.normalize, self.run.card)
        return compute_explanations(model, self.pixels, self.labels, curves=False)

    def apply_defense(self, name: str, energy: float, draw: int) -> dict[str, float | None]:
        """The figures of one defense with one draw of noise."""
        ctx = self.plan.context(self.run.round, len(self.run.sites))
        defense = DEFENSES[name](name, {}, energy=energy)
        noised, spent = {}, []
        for site, tensors in self.updates.items():
            self.host.model.values.copy_(self._flatten(tensors))
            key = derive_site_key(self.plan.config.run.seed, site).at("draw", draw)
            session = Site(
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
            passed, figures = defense.apply(update, session, ctx)
            noised[site] = dict(passed.tensors)
            spent.append(figures["energy"])
        view = self.explain(self.average(noised))
        pairs = [compare_maps(a, b) for a, b in zip(self.base.maps, view.maps, strict=True)]
        metrics = average_metrics([pair for pair in pairs if pair is not None])
        return {
            **metrics,
            "energy": float(np.mean(spent)),
            "accuracy": float(np.mean(view.predicted == self.labels)),
            "agreement": float(np.mean(view.predicted == self.base.predicted)),
            "failures": float(sum(pair is None for pair in pairs)),
        }


def measure(options: argparse.Namespace) -> None:
    """Train, release once under each defense, write the figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        raw = make_config(Path(options.files[0]), options.seed, options.rounds, options.limit)
        vitrail.run(raw, Path(folder) / "run")
        federation = TrainedFederation(Run(Path(folder) / "run"), options.images)
        accuracy = float(np.mean(federation.base.predicted == federation.labels))
        print(f"seed {options.seed}: accuracy {accuracy:.3f} without a defense", flush=True)
        rows = []
        for energy in map(float, options.energies.split(",")):
            for name in NAMES:
                for draw in range(options.draws):
                    metrics = federation.apply_defense(name, energy, draw)
                    rows.append({"name": name, "asked": energy, "draw": draw, **metrics})
                print(f"  energy {energy:g}, {name}", flush=True)
    Path(options.json).write_text(
        json.dumps({"seed": options.seed, "accuracy": accuracy, "rows": rows})
    )


def print_table(files: list[str]) -> None:
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
                seed_means = [
                    np.mean(
                        [
                            r[figure]
                            for r in run["rows"]
                            if (r["name"], r["asked"]) == (name, energy)
                        ]
                    )
                    for run in runs
                ]
                spread = f" ± {np.std(seed_means, ddof=1):.2g}" if len(seed_means) > 1 else ""
                cells.append(f"{np.mean(seed_means):.3g}{spread}")
            print(f"| {energy:g} | `{name}` | " + " | ".join(cells) + " |")


def main() -> None:
    """Measure one seed, or print the table of several."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--limit", type=int, default=2000)
    parser.add_argument("--images", type=int, default=150)
    parser.add_argument("--energies", default="1,3")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--json", default="")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    print_table(options.files) if options.table else measure(options)


if __name__ == "__main__":
    main()
