"""A frozen backbone with a linear head: with the feature cache against without it.

    python benchmarks/features.py [--images 240] [--rounds 4]

The time of the rounds alone, and with the computing of the features once. One worker, one thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import vitrail


def measure_run(folder: Path, images: int, rounds: int, cached: bool) -> tuple[float, float]:
    """Seconds of the rounds, and of everything."""
    ends: list[float] = []
    began = time.perf_counter()
    config = {
        "data": {"image_size": 96, "aviary": {"images": images, "classes": 4}},
        "partition": {"sites": 4},
        "model": {
            "backbone": "efficientnet-lite0",
            "weights": "imagenet",
            "frozen": True,
            "cache_features": cached,
        },
        "run": {"rounds": rounds, "local_epochs": 3, "evaluate_every": rounds},
    }

    def tick(progress: object) -> None:
        if not getattr(progress, "note", ""):
            ends.append(time.perf_counter())

    vitrail.run(config, folder / f"run-{cached}", on_round=tick)
    return (ends[-1] - ends[0]) / (len(ends) - 1), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["VITRAIL_CACHE"] = name
        without, all_without = measure_run(Path(name), args.images, args.rounds, cached=False)
        with_cache, all_with = measure_run(Path(name), args.images, args.rounds, cached=True)
    ratio = without / with_cache
    print(f"a round: {without:.3f} s without, {with_cache:.4f} s with it; ratio {ratio:.0f}")
    print(f"all of {args.rounds} rounds: {all_without:.1f} s without, {all_with:.1f} s with")


if __name__ == "__main__":
    main()
