"""The work every system does here, and how its speed is counted. Plain PyTorch, Linux."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import models

SITES = 100
SITES_A_ROUND = 10
IMAGES = 100
CLASSES = 10
BATCH = 32
RATE = 0.05


def make_images(seed: int = 7) -> tuple[Tensor, Tensor]:
    """Normalized float images [site * image, 3, 32, 32] and labels; noise over a class pattern."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, CLASSES, (SITES * IMAGES,), generator=draw)
    coarse = torch.randn(CLASSES, 3, 4, 4, generator=draw)
    pattern = F.interpolate(coarse, size=32, mode="bilinear", align_corners=False)
    x = torch.randn(SITES * IMAGES, 3, 32, 32, generator=draw)
    return x.add_(pattern[y]).mul_(0.7), y


def get_rows(site: int) -> slice:
    """Where a site's images lie."""
    return slice(site * IMAGES, (site + 1) * IMAGES)


def parse_arguments(**more: dict[str, Any]) -> argparse.Namespace:
    """The options every script takes, and those of one script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(models.MODELS), default="small-cnn")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    for name, options in more.items():
        parser.add_argument(f"--{name}", **options)
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error("--rounds must be 2 or more: the first is not counted in the steady speed")
    return chosen


def measure_age() -> float:
    """Seconds since this process was started, the interpreter's own start included."""
    fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class Clock:
    """The age of the process at the end of each round."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def tick(self) -> None:
        """A round is over."""
        self.ends.append(measure_age())

    def figures(self) -> dict[str, float]:
        """Rounds per second: all in, and from the end of the first round on."""
        steady = (len(self.ends) - 1) / (self.ends[-1] - self.ends[0])
        return {
            "rounds": len(self.ends),
            "rounds_per_second_all_in": len(self.ends) / self.ends[-1],
            "rounds_per_second_steady": steady,
            "startup_seconds": self.ends[-1] - len(self.ends) / steady,
        }


def compute_loss(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Cross-entropy of 1,000 images by batch statistics: proof that something was learned."""
    with torch.no_grad():
        return F.cross_entropy(model.train()(x[:1000]), y[:1000]).item()


def report(args: argparse.Namespace, clock: Clock, final: float, **facts: Any) -> None:
    """Print the figures, and write them as JSON where asked to."""
    figures = {
        **facts,
        "model": args.model,
        **clock.figures(),
        "final_loss": final,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    print(
        f"{figures['system']:<18} {args.model:<10} "
        f"{figures['rounds_per_second_steady']:.3f} rounds/s without start-up, "
        f"{figures['rounds_per_second_all_in']:.3f} with; loss {final:.3f}"
    )
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")
