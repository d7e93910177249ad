"""Turns of linear heads on cached features: sites of a process at once, against one by one.

    python benchmarks/heads.py [--repeats 3] [--sites 50]

Milliseconds of processor time of one turn of a site of about 100 images (Dirichlet 0.5, 10 classes,
batch 32) in one process, without the first round. Both ways take turns and give the same bits.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import vitrail
from vitrail.engine import site_turn

CASES = [(32, 1), (32, 5), (64, 1), (64, 5)]  # the backbone's width, epochs
CHANNELS = 4  # of the features, for each of the width


def write_images(path: Path, sites: int) -> None:
    """Noise over a pattern of each class."""
    draw = np.random.default_rng(0)
    y = draw.integers(0, 10, sites * 100)
    pattern = draw.normal(size=(10, 16, 16, 3))[y] * 30 + 128
    x = (pattern + draw.normal(size=pattern.shape) * 40).clip(0, 255).astype(np.uint8)
    np.savez(path, x=x, y=y)


def measure_turn(images: Path, sites: int, width: int, epochs: int, at_once: bool) -> float:
    """Milliseconds of processor time of a turn."""
    ends: list[float] = []
    rounds = 6
    config = {
        "data": {"source": "npz", "path": str(images)},
        "partition": {"sites": sites, "kind": "dirichlet", "alpha": 0.5},
        "model": {"backbone": "resnet8", "width": width, "frozen": True},
        "run": {
            "rounds": rounds,
            "local_epochs": epochs,
            "workers": 1,
            "evaluate_every": rounds,
            "checkpoint_every": rounds,
        },
    }
    original = site_turn.train_ahead
    if not at_once:
        site_turn.train_ahead = lambda *_: {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            vitrail.run(
                config,
                Path(folder) / "run",
                on_round=lambda p: None if p.note else ends.append(time.process_time()),
            )
    finally:
        site_turn.train_ahead = original
    return 1000 * (ends[rounds - 1] - ends[0]) / (rounds - 1) / sites


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sites", type=int, default=50)
    args = parser.parse_args()
    print("| channels x classes, epochs | at once | one by one | one by one / at once |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        write_images(images, args.sites)
        for width, epochs in CASES:
            pairs = [
                [measure_turn(images, args.sites, width, epochs, way) for way in (True, False)]
                for _ in range(args.repeats)
            ]
            ratios = [single / stacked for stacked, single in pairs]
            stacked, single = (statistics.median(column) for column in zip(*pairs, strict=True))
            spread = f"{min(ratios):.1f} to {max(ratios):.1f}, n = {len(ratios)}"
            print(
                f"| {CHANNELS * width} x 10, {epochs} | {stacked:.2f} | {single:.2f} "
                f"| {statistics.median(ratios):.1f} ({spread}) |",
                flush=True,
            )


if __name__ == "__main__":
    main()
