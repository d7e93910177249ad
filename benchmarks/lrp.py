"""What relevance propagation costs: its time over that of a plain forward and backward pass.

    python benchmarks/lrp.py

Both in one sitting, one thread, the shortest of several; the plain pass goes back to the image and
computes no gradient of the weights, which is the cheaper of the two one could compare with.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from vitrail.explain.attribution import attribute
from vitrail.models import build
from vitrail.rng import derive_server_key

BACKBONES = {
    "small-cnn": (32, 32),
    "lenet": (12, 32),
    "resnet8": (16, 32),
    "resnet18": (64, 32),
    "resnet50": (16, 64),
    "densenet121": (16, 64),
    "vgg19": (16, 64),
    "efficientnet-lite0": (32, 64),
}
IMAGES = 16
REPEATS = 5


def measure_seconds(work: Callable[[], object]) -> float:
    """The shortest of several runs, the first of which does not count."""
    work()
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Print one line a backbone."""
    torch.set_num_threads(1)
    for name, (width, size) in BACKBONES.items():
        net = build(name, 10, width=width, key=derive_server_key(0)).eval()
        net.requires_grad_(False)
        x = torch.randn(IMAGES, 3, size, size, generator=derive_server_key(0).at("images").torch())
        labels = torch.arange(IMAGES) % 10
        plain = measure_seconds(lambda: attribute("gradient", net, x, labels))  # noqa: B023
        ours = measure_seconds(lambda: attribute("lrp", net, x, labels))  # noqa: B023
        print(
            f"{name:20} gradient {1e3 * plain:7.1f} ms   lrp {1e3 * ours:7.1f} ms   "
            f"ratio {ours / plain:.2f}"
        )


if __name__ == "__main__":
    main()
