"""Do attributions mark what tells the birds apart, and do they depend on what was learned?

    python benchmarks/relevance.py [ROUNDS] [SEEDS]

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

import vitrail
from vitrail.data.aviary import discriminating
from vitrail.engine.reference import images_of
from vitrail.explain.attribution import ATTRIBUTIONS, Settings, attribute
from vitrail.explain.fidelity import sanity, share_inside
from vitrail.report.tables import averaged, markdown
from vitrail.rng import server

CLASSES = 4
LOOKED_AT, STIRRED = 48, 12
FORMS = (".3f", ".2f", "+.2f")


def main() -> None:
    """Train and measure for each seed, then print one row an attribution as Markdown."""
    torch.set_num_threads(1)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    seeds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(1, seeds + 1):
        for name, figures in measured(rounds, seed).items():
            found.setdefault(name, []).append(figures)
    rows = [
        [name, *(averaged(column, form) for column, form in zip(zip(*own), FORMS))]
        for name, own in found.items()
    ]
    print(markdown(["attribution", "share", "lift", "random weights"], rows))


def measured(rounds: int, seed: int) -> dict[str, tuple[float, float, float]]:
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
        birds = images_of(run)
        model = run.model()
    rows = np.concatenate([site.test for site in birds.sites.values()])
    images, labels = birds.images, torch.from_numpy(birds.images.labels[rows])
    x = torch.from_numpy(images.images[rows]).permute(0, 3, 1, 2) / 255
    x = ((x - model.shift) / model.scale).float()
    network = model.network.eval()
    with torch.no_grad():
        order = network(x).topk(2).indices
    every = torch.nonzero(order[:, 0] == labels)[:, 0]
    told = f"seed {seed}: accuracy {len(every) / len(rows):.3f} on {len(rows)} test images"
    right = every[:LOOKED_AT]
    differs = discriminating(CLASSES, 7)
    parts = torch.from_numpy(np.array(images.extra["part_mask"][rows]))
    truth = []
    for at in right.tolist():
        wanted = np.flatnonzero(differs[int(labels[at]), int(order[at, 1])]) + 1
        truth.append(torch.isin(parts[at], torch.from_numpy(wanted).to(parts.dtype)))
    seen = [i for i, mask in enumerate(truth) if bool(mask.any())]
    area = float(np.mean([float(truth[i].double().mean()) for i in seen]))
    print(
        f"{told}; {len(seen)} looked at, {area:.3f} of their pixels on a deciding part", flush=True
    )
    found = {}
    settings = Settings(start="logit")
    for name in ATTRIBUTIONS:
        maps = attribute(name, network, x[right], labels[right], settings)
        shown = maps.abs() if name in ("gradient", "smoothgrad") else maps
        share = float(np.nanmean([share_inside(shown[i], truth[i]) for i in seen]))
        few = right[:STIRRED]

        def again(net, name=name, few=few):  # type: ignore[no-untyped-def]
            return attribute(name, net, x[few], labels[few], settings).abs()

        alike = float(np.nanmean(sanity(again, network, server(1).at("sanity"))))
        found[name] = share, share / area, alike
    return found


if __name__ == "__main__":
    main()
