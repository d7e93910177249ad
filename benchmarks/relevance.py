"""Do attributions mark what tells the birds apart, and do they depend on what was learned?

    python benchmarks/relevance.py [ROUNDS]

A classifier is trained on the embedded birds; of each test image it gets right, the share of a
map's positive values on the parts that differ from the runner-up class is set against the share
of pixels there. The last column is the rank correlation of the maps with those of the same
network with random weights: near 1 would mean that a map does not look at the model.
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
from vitrail.rng import server

CLASSES = 6


def main() -> None:
    """Train, then print one line an attribution."""
    torch.set_num_threads(1)
    config = {
        "data": {"image_size": 48, "aviary": {"images": 1200, "classes": CLASSES}},
        "model": {"backbone": "resnet8", "width": 16},
        "method": {"name": "centralized"},
        "optimizer": {"lr": 0.05, "momentum": 0.9},
        "run": {"rounds": int(sys.argv[1]) if len(sys.argv) > 1 else 15, "device": "cpu"},
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
    right = torch.nonzero(order[:, 0] == labels)[:, 0]
    print(f"accuracy {len(right) / len(rows):.3f} on {len(rows)} test images")
    differs = discriminating(CLASSES, 7)
    parts = torch.from_numpy(np.array(images.extra["part_mask"][rows]))
    truth = []
    for at in right.tolist():
        wanted = np.flatnonzero(differs[int(labels[at]), int(order[at, 1])]) + 1
        truth.append(torch.isin(parts[at], torch.from_numpy(wanted).to(parts.dtype)))
    seen = [i for i, mask in enumerate(truth) if bool(mask.any())]
    area = float(np.mean([float(truth[i].double().mean()) for i in seen]))
    print(f"{len(seen)} images, {area:.3f} of their pixels on a part unlike the runner-up's")
    settings = Settings(start="logit")
    for name in ATTRIBUTIONS:
        maps = attribute(name, network, x[right], labels[right], settings)
        shown = maps.abs() if name in ("gradient", "smoothgrad") else maps
        share = float(np.nanmean([share_inside(shown[i], truth[i]) for i in seen]))
        few = right[:40]

        def again(net, name=name, few=few):  # type: ignore[no-untyped-def]
            return attribute(name, net, x[few], labels[few], settings).abs()

        alike = float(np.nanmean(sanity(again, network, server(1).at("sanity"))))
        print(
            f"{name:22} share {share:.3f}   lift {share / area:.2f}   random weights {alike:+.2f}"
        )


if __name__ == "__main__":
    main()
