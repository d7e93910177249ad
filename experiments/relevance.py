"""Do attributions mark what tells the birds apart, and do they depend on what was learned?

    python -m experiments.relevance [ROUNDS] [SEEDS]

A linear classifier on a frozen EfficientNet-Lite0 up to stage4 is trained on the embedded birds (a
small network that starts from nothing stays at chance on them), for each of 3 seeds; of 48 test
images that it gets right, the share of a map's positive values on the parts that differ from the
runner-up class is set against the share of pixels there. The last column is the rank
correlation of the maps with those of the same network with random weights: near 1 would mean that
a map does not look at the model. Figures are means over seeds with their standard deviation.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import vitrail
from experiments.tables.markdown import format_mean, to_markdown
from vitrail.data.aviary.birds import find_discriminating_parts
from vitrail.explain.attribution import ATTRIBUTIONS, Settings, attribute
from vitrail.explain.faithfulness import run_sanity_check, share_inside
from vitrail.rng import derive_server_key
from vitrail.runs.reopen import load_run_federation

CLASSES = 4
LOOKED_AT, STIRRED = 48, 12
FORMS = (".3f", ".2f", "+.2f")


def main() -> None:
    """Train and measure for each seed, then print one row an attribution as Markdown."""
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    metrics: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(1, seeds + 1):
        for name, figures in measure_attributions(rounds, seed).items():
            metrics.setdefault(name, []).append(figures)
    rows = [
        [name, *(format_mean(column, form) for column, form in zip(zip(*of_seeds), FORMS))]
        for name, of_seeds in metrics.items()
    ]
    print(to_markdown(["attribution", "share", "lift", "random weights"], rows))


def measure_attributions(rounds: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """By attribution: share on the parts that decide, over their area, likeness to chance."""
    config = {
        "data": {"image_size": 128, "aviary": {"images": 1000, "classes": CLASSES}},
        "model": {
            "backbone": "efficientnet-lite0",
            "weights": "imagenet",
            "frozen": True,
            "until": "stage4",
        },
        "method": {"name": "centralized"},
        "optimizer": {"name": "adam", "lr": 0.01},
        "run": {"rounds": rounds, "local_epochs": 2, "device": "cpu", "seed": seed},
    }
    with tempfile.TemporaryDirectory() as folder:
        run = vitrail.run(config, Path(folder) / "run")
        birds = load_run_federation(run)
        model = run.model()
    rows = np.concatenate([site.test for site in birds.sites.values()])
    images, labels = birds.images, torch.from_numpy(birds.images.labels[rows])
    x = torch.from_numpy(images.images[rows]).permute(0, 3, 1, 2) / 255
    x = ((x - model.shift) / model.scale).float()
    network = model.network.eval()
    with torch.no_grad():
        order = network(x).topk(2).indices
    correct = torch.nonzero(order[:, 0] == labels)[:, 0]
    line = f"seed {seed}: accuracy {len(correct) / len(rows):.3f} on {len(rows)} test images"
    right = correct[:LOOKED_AT]
    differs = find_discriminating_parts(CLASSES, 7)
    parts = torch.from_numpy(np.array(images.extra["part_mask"][rows]))
    truth = []
    for at in right.tolist():
        wanted = np.flatnonzero(differs[int(labels[at]), int(order[at, 1])]) + 1
        truth.append(torch.isin(parts[at], torch.from_numpy(wanted).to(parts.dtype)))
    seen = [i for i, mask in enumerate(truth) if bool(mask.any())]
    area = float(np.mean([float(truth[i].double().mean()) for i in seen]))
    print(
        f"{line}; {len(seen)} looked at, {area:.3f} of their pixels on a deciding part", flush=True
    )
    metrics = {}
    settings = Settings(start="logit")
    for name in ATTRIBUTIONS:
        maps = attribute(name, network, x[right], labels[right], settings)
        shown = maps.abs() if name in ("gradient", "smoothgrad") else maps
        share = float(np.nanmean([share_inside(shown[i], truth[i]) for i in seen]))
        few = right[:STIRRED]

        def again(net: nn.Module, name: str = name, few: Tensor = few) -> Tensor:
            return attribute(name, net, x[few], labels[few], settings).abs()

        alike = float(
            np.nanmean(run_sanity_check(again, network, derive_server_key(1).at("sanity")))
        )
        metrics[name] = share, share / area, alike
    return metrics


if __name__ == "__main__":
    main()
