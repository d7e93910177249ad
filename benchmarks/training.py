"""A step of local training: as it is, with maps channels first, and as a hand-written step.

    python benchmarks/training.py [--repeats 3]

Milliseconds of this process's own time, batch 32, one thread, the median of some turns. The
hand-written step has its weights channels last too and adds gradients by one multi-tensor call.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.config.schema import Model
from vitrail.local.loop import train
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.terms import Terms
from vitrail.models.flat import FlatModel
from vitrail.models.network import Network, make_network
from vitrail.rng import derive_server_key

PRETRAINED = {"backbone": "efficientnet-lite0", "weights": "imagenet"}
MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "efficientnet-lite0 at 96 px, from stage5 on": (96, {**PRETRAINED, "frozen": "stage4"}),
    "efficientnet-lite0 at 96 px, after stage5": (96, {**PRETRAINED, "frozen": "stage5"}),
    "resnet8, width 16, 32 px": (32, {"backbone": "resnet8", "width": 16}),
    "resnet18, 32 px": (32, {"backbone": "resnet18"}),
    "small-cnn, width 32, 32 px": (32, {"backbone": "small-cnn", "width": 32}),
}
BATCH, STEPS, RATE = 32, 3, 0.001


def build(settings: dict[str, Any]) -> Network:
    return make_network(Model(**settings), "linear", 3, 10, derive_server_key(1))[0]


def time_steps(run: Callable[[], object]) -> float:
    """Milliseconds of a step."""
    began = time.process_time()
    run()
    return 1000 * (time.process_time() - began) / STEPS


def step_by_hand(network: Network, weights: list[Tensor], x: Tensor, y: Tensor) -> None:
    for _ in range(STEPS):
        loss = F.cross_entropy(network.rest(x)["logits"], y)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            torch._foreach_add_(weights, gradients, alpha=-RATE)


def compare(size: int, settings: dict[str, Any], repeats: int) -> list[float]:
    """Medians: channels last, channels first, by hand."""
    network, other = build(settings), build(settings).to(memory_format=torch.channels_last).train()
    model, weights = FlatModel(network), [p for p in other.parameters() if p.requires_grad]
    x = torch.randn(BATCH, 3, size, size).to(memory_format=torch.channels_last)
    z, y = network.eval().prefix(x), torch.randint(0, 10, (BATCH,))
    last, first = z.contiguous(memory_format=torch.channels_last), z.contiguous()

    def step(maps: Tensor) -> None:
        train(model, [(maps, y)] * STEPS, Terms(), OptimizerSettings(lr=RATE))

    ways = (
        lambda: step(last),
        lambda: step(first),
        lambda: step_by_hand(other, weights, last, y),
    )
    turns = [[time_steps(way) for way in ways] for _ in range(repeats + 1)][1:]
    return [statistics.median(column) for column in zip(*turns)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| trained | channels last, as it is | channels first | by hand |")
    print("|---|---|---|---|")
    for name, (size, settings) in MODELS.items():
        cells = " | ".join(f"{value:.1f}" for value in compare(size, settings, args.repeats))
        print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
