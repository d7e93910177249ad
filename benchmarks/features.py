"""Features of a frozen EfficientNet-Lite0: PyTorch against onnxruntime, and what a cache saves.

    python benchmarks/features.py [--repeats 5] [--images 240] [--rounds 4]

Images of 224 px, one thread a process; contestants take turns and a ratio is the median over the
turns, with the smallest and the largest beside it. Then a whole run at 96 px with and without the
cache of features.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch

import vitrail
from vitrail.config.schema import Model
from vitrail.models.network import Network, make_network
from vitrail.rng import derive_server_key

BACKBONE = {"backbone": "efficientnet-lite0", "weights": "imagenet", "frozen": True}
SIZE = 224
EAGER, LAST, ONE, TWO = (
    "PyTorch, channels first",
    "PyTorch, channels last",
    "onnxruntime",
    "onnxruntime, a run with two workers",
)


def time_images(compute: Callable[[torch.Tensor], object], x: torch.Tensor) -> float:
    """Images a second of this process's own time, which neighbors take little of."""
    began = time.process_time()
    with torch.inference_mode():
        compute(x)
    return len(x) / (time.process_time() - began)


def build_network() -> Network:
    """The frozen backbone with an open session."""
    model = Model(**BACKBONE, runtime="onnx")
    network, _ = make_network(model, "linear", 3, 4, derive_server_key(1))
    return network.eval()


def time_two_workers(folder: Path, images: int) -> float:
    """Images a second while a run of two workers computes its features, from the first chunk on."""
    ends: list[float] = []

    def tick(progress: vitrail.engine.Progress) -> None:  # type: ignore[name-defined]
        if progress.note.startswith("computing features"):
            ends.append(time.perf_counter())

    config = {
        "data": {"image_size": SIZE, "aviary": {"images": images, "classes": 4}},
        "partition": {"sites": 2},
        "model": {**BACKBONE, "runtime": "onnx"},
        "run": {"rounds": 0, "workers": 2, "local_reference": False},
    }
    with tempfile.TemporaryDirectory(dir=folder) as name:  # a cache of its own: nothing is known
        os.environ["VITRAIL_CACHE"] = name
        vitrail.run(config, Path(name) / "run", on_round=tick)
    return images * (len(ends) - 1) / len(ends) / (ends[-1] - ends[0])


def compare_runtimes(folder: Path, repeats: int, workers: bool) -> list[str]:
    """Lines on images a second, and on the ratios to PyTorch as it is by itself."""
    os.environ["VITRAIL_CACHE"] = str(folder)
    network, x = build_network(), torch.randn(64, 3, SIZE, SIZE)
    torch.set_num_threads(1)
    network.prefix(x[:8])  # exported here
    turns: list[dict[str, float]] = []
    for _ in range(repeats):
        turn = {
            EAGER: time_images(network.run_prefix_in_torch, x),
            LAST: time_images(network.run_prefix_in_torch, x.to(memory_format=torch.channels_last)),
            ONE: time_images(network.prefix, x),
        }
        turns.append({**turn, TWO: time_two_workers(folder, 1280)} if workers else turn)
        print("  ".join(f"{name} {rate:.0f}" for name, rate in turns[-1].items()), flush=True)
    lines = []
    for name in turns[0]:
        rate = statistics.median(turn[name] for turn in turns)
        ratios = [turn[name] / turn[EAGER] for turn in turns]
        spread = f"{min(ratios):.1f} to {max(ratios):.1f}, n={repeats}"
        lines.append(f"{name}: {rate:.0f} images/s, {statistics.median(ratios):.1f} ({spread})")
    return lines


def time_run(folder: Path, images: int, rounds: int, cached: bool) -> tuple[float, float]:
    """Seconds of the rounds, and of everything."""
    ends: list[float] = []
    began = time.perf_counter()
    config = {
        "data": {"image_size": 96, "aviary": {"images": images, "classes": 4}},
        "partition": {"sites": 4},
        "model": {**BACKBONE, "cache_features": cached},
        "run": {"rounds": rounds, "local_epochs": 3, "evaluate_every": rounds},
    }

    def tick(progress: object) -> None:
        if not getattr(progress, "note", ""):
            ends.append(time.perf_counter())

    vitrail.run(config, folder / f"run-{cached}", on_round=tick)
    return (ends[-1] - ends[0]) / (len(ends) - 1), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--images", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--one-process", action="store_true", help="no run with two workers")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        for line in compare_runtimes(Path(name), args.repeats, not args.one_process):
            print(line)
        os.environ["VITRAIL_CACHE"] = name
        without, all_without = time_run(Path(name), args.images, args.rounds, cached=False)
        with_cache, all_with = time_run(Path(name), args.images, args.rounds, cached=True)
    ratio = without / with_cache
    print(f"a round: {without:.3f} s without, {with_cache:.4f} s with it; ratio {ratio:.0f}")
    print(f"all of {args.rounds} rounds: {all_without:.1f} s without, {all_with:.1f} s with")


if __name__ == "__main__":
    main()
