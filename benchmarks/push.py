"""The push: one running minimum per class against a loop over prototypes, same result.

    python benchmarks/push.py [--prototypes 500] [--images 1500] [--repeats 5]

The loop is how code for ProtoPNet usually does it: for each batch of images the distances of all
prototypes, then in Python, for each prototype, the nearest patch among the batch's images of its
class. `usual` sums the squares of a patch by a second convolution, with ones, as that code does;
`lean` by one channel sum, as we do, so that only the loop is compared. Random features of
128 x 7 x 7, 10 prototypes a class. CPU seconds of one thread, so that neighbors on the machine
count less; all take turns.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail import rng
from vitrail.config.schema import Prototypes
from vitrail.data.normalize import Normalize
from vitrail.local.inputs import Inputs
from vitrail.local.phases.push import find_nearest_patches
from vitrail.models.build import build_backbone
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.network import Network

DEPTH, SIDE, PER_CLASS, BATCH = 128, 7, 10, 80
KEY = rng.derive_server_key(1)


def make_network(prototypes: int, images: int) -> tuple[Network, Inputs]:
    """Prototypes right on top of random features."""
    classes = prototypes // PER_CLASS
    with rng.seed_torch(KEY.at("network")):
        backbone = build_backbone("small-cnn", width=8)
        head = ProtoHead(DEPTH, classes, Prototypes(per_class=PER_CLASS))
    draw = KEY.at("features").numpy()
    features = draw.random((images, 1, DEPTH, SIDE, SIDE), np.float32)
    labels = draw.integers(0, classes, images)
    pixels = np.zeros((images, 1, 1, 3), np.uint8)
    inputs = Inputs(pixels, labels, Normalize.from_name("unit", 3), features=features)
    return Network(backbone, nn.Identity(), head, cut=3), inputs


def compute_distances(z: Tensor, vectors: Tensor, lean: bool) -> Tensor:
    """Of every patch to every prototype."""
    filters = vectors[:, :, None, None]
    squares = z.square()
    patches = squares.sum(1, keepdim=True) if lean else F.conv2d(squares, torch.ones_like(filters))
    vector_squares = vectors.square().sum(1)[:, None, None]
    return (patches - 2 * F.conv2d(z, filters) + vector_squares).clamp_min_(0)


@torch.no_grad()
def find_by_loop(
    network: Network, inputs: Inputs, rows: np.ndarray, lean: bool
) -> tuple[np.ndarray, Tensor]:
    """Row and patch of each prototype, batch by batch and prototype by prototype."""
    head = network.head
    assert isinstance(head, ProtoHead)
    count = len(head.owner)
    best = np.full(count, np.inf)
    row = np.full(count, -1)
    vector = head.vectors.detach().clone()
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        z = network.features(inputs.plain(part))
        distances = compute_distances(z, head.vectors, lean).numpy()
        labels = inputs.labels[part]
        for j in range(count):
            class_rows = np.flatnonzero(labels == int(head.owner[j]))
            if not len(class_rows):
                continue
            class_distances = distances[class_rows, j]
            smallest = class_distances.min()
            if smallest < best[j]:
                image, y, x = np.unravel_index(class_distances.argmin(), class_distances.shape)
                best[j] = smallest
                row[j] = part[class_rows[image]]
                vector[j] = z[class_rows[image], :, y, x]
    return row, vector


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prototypes", type=int, default=500)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    network, inputs = make_network(args.prototypes, args.images)
    rows = np.arange(args.images)
    find_nearest_patches(network, inputs, rows)  # both start warm
    ours: list[float] = []
    loops: dict[str, list[float]] = {"lean": [], "usual": []}
    for _ in range(args.repeats):
        began = time.process_time()
        nearest = find_nearest_patches(network, inputs, rows)
        ours.append(time.process_time() - began)
        for name, times in loops.items():
            began = time.process_time()
            row, vector = find_by_loop(network, inputs, rows, name == "lean")
            times.append(time.process_time() - began)
            assert nearest.row.tolist() == row.tolist() and torch.equal(nearest.vector, vector)
    print(f"{args.prototypes} prototypes, {args.images} images, same result, n = {args.repeats}:")
    print(f"  ours        {statistics.median(ours):.4f} CPU s (median)")
    for name, times in loops.items():
        ratios = sorted(slow / quick for slow, quick in zip(times, ours, strict=True))
        print(
            f"  {name:<5} loop  {statistics.median(times):.4f} CPU s, ratio "
            f"{statistics.median(ratios):.0f} ({ratios[0]:.0f} to {ratios[-1]:.0f})"
        )


if __name__ == "__main__":
    main()
