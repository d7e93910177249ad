"""Whether an explanation is true: does it point at the part, does the model need what it marks,
and does it change when the model does."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import DataError
from vitrail.models.network import Network
from vitrail.rng import Key

Predict = Callable[[Tensor], Tensor]  # images [N, C, H, W] to one score each, [N]
Maps = Callable[[Network], Tensor]  # a network to maps [N, H, W] of some fixed images


def find_center(place: Sequence[float]) -> tuple[int, int]:
    """The pixel (x, y) in the middle of a box (x0, y0, x1, y1), or of a point (x, y)."""
    if len(place) == 4:
        x0, y0, x1, y1 = place
        place = ((x0 + x1) / 2, (y0 + y1) / 2)
    if len(place) != 2 or not all(np.isfinite(place)):
        raise DataError(f"a place is a point (x, y) or a box (x0, y0, x1, y1), not {place}")
    return int(np.floor(place[0])), int(np.floor(place[1]))


def points_at_region(box_or_center: Sequence[float], truth_mask: Tensor) -> bool:
    """The pointing game: whether the middle lies on the true region, [H, W] of bool."""
    x, y = find_center(box_or_center)
    height, width = truth_mask.shape
    return 0 <= x < width and 0 <= y < height and bool(truth_mask[y, x])


def compute_pointing_chance(box: Sequence[int], truth_mask: Tensor) -> float:
    """How often a box of this size would point at the region, slid over the whole image."""
    height, width = truth_mask.shape
    wide, high = int(box[2]) - int(box[0]), int(box[3]) - int(box[1])
    if not (0 < wide <= width and 0 < high <= height):
        raise DataError(f"a box of {wide} x {high} does not fit {width} x {height} pixels")
    rows = slice(high // 2, height - high + high // 2 + 1)
    columns = slice(wide // 2, width - wide + wide // 2 + 1)
    return float(truth_mask[rows, columns].double().mean())


def share_inside(map_: Tensor, truth_mask: Tensor) -> float:
    """How much of what a map [H, W] says for the class lies on the true region: the share of its
    positive values there; NaN if it says nothing."""
    positive = map_.to(torch.float64).clamp(min=0)
    total = float(positive.sum())
    return float(positive[truth_mask].sum()) / total if total > 0 else float("nan")


@dataclass(frozen=True)
class Curve:
    """The model's score by the share of the image that was taken away, or put in."""

    shares: tuple[float, ...]
    scores: tuple[float, ...]

    @property
    def area(self) -> float:
        """The area under the curve, by trapezoids: small for a good deletion, large for a good
        insertion."""
        return float(np.trapezoid(self.scores, self.shares))


def rank_regions(map_: Tensor, cells: int = 8) -> Tensor:
    """The rank of every pixel [H, W], strongest first, in `cells` x `cells` regions.

    A region has the mean of the map over it; equal ones keep the order of reading.
    """
    regions = _regions(map_.shape[0], map_.shape[1], cells)
    flat, values = regions.flatten(), map_.to(torch.float64).flatten()
    count = int(flat.max()) + 1
    sums = torch.zeros(count, dtype=torch.float64).index_add_(0, flat, values)
    means = sums / torch.bincount(flat, minlength=count)
    order = torch.argsort(means, descending=True, stable=True)
    return _ranks(order)[regions]


def rank_regions_randomly(height: int, width: int, cells: int, key: Key) -> Tensor:
    """Ranks of the same regions in an order drawn from `key`."""
    regions = _regions(height, width, cells)
    order = torch.randperm(int(regions.max()) + 1, generator=key.torch())
    return _ranks(order)[regions]


def deletion_curve(
    predict: Predict, image: Tensor, order: Tensor, steps: int = 16, fill: Tensor | float = 0.0
) -> Curve:
    """The score of an image [C, H, W] while pixels are replaced by `fill`, first ranks first
    (Petsiuk et al. 2018, arXiv:1806.07421)."""
    return _curve(predict, image, image.new_zeros(()) + fill, order, steps)


def insertion_curve(
    predict: Predict, image: Tensor, order: Tensor, steps: int = 16, fill: Tensor | float = 0.0
) -> Curve:
    """The score while the pixels of an image are put into `fill`, first ranks first."""
    blank = (image.new_zeros(()) + fill).expand_as(image)
    return _curve(predict, blank, image, order, steps)


@dataclass(frozen=True)
class RandomComparison:
    """An area under a curve, beside the areas of orders drawn at random."""

    area: float
    random: tuple[float, ...]

    @property
    def gain(self) -> float:
        """How much larger the area is than the mean of the random ones."""
        return self.area - float(np.mean(self.random))


def compare_with_random(
    curve: Callable[[Tensor], Curve], map_: Tensor, key: Key, cells: int = 8, repeats: int = 10
) -> RandomComparison:
    """The area of a map's order and those of `repeats` random orders of the same regions."""
    height, width = map_.shape
    orders = [rank_regions_randomly(height, width, cells, key.at(i)) for i in range(repeats)]
    return RandomComparison(
        curve(rank_regions(map_, cells)).area, tuple(curve(o).area for o in orders)
    )


def randomize_network(network: Network, key: Key) -> Network:
    """A copy whose parameters are drawn anew, each tensor with its own mean and SD."""
    randomized = copy.deepcopy(network)
    randomized.runtime = "torch"  # used once: not worth an export
    with torch.no_grad():
        for name, tensor in randomized.named_parameters():
            noise = torch.randn(tensor.shape, generator=key.at(name).torch()).to(tensor)
            spread = tensor.std() if tensor.numel() > 1 else tensor.abs().sum()
            tensor.copy_(tensor.mean() + spread * noise)
    return randomized


def run_sanity_check(maps: Maps, network: Network, key: Key) -> list[float]:
    """Rank correlation of each map with that of a randomized copy of the network: near 1 means
    that the map does not depend on what was learned (Adebayo et al. 2018, arXiv:1810.03292)."""
    before, after = maps(network), maps(randomize_network(network, key))
    return [rank_correlation(a, b) for a, b in zip(before, after)]


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Spearman's correlation of two maps; NaN where one of them is constant or not finite."""
    from scipy.stats import rankdata  # a second to import, seldom needed

    one, other = a.flatten().double().numpy(), b.flatten().double().numpy()
    if not (np.isfinite(one).all() and np.isfinite(other).all()) or not len(one):
        return float("nan")
    x, y = rankdata(one), rankdata(other)
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else float("nan")


def _regions(height: int, width: int, cells: int) -> Tensor:
    """The number of the region each pixel belongs to, [H, W], row by row."""
    if not 1 <= cells <= min(height, width):
        raise DataError(f"{cells} x {cells} regions do not fit {width} x {height} pixels")
    rows = torch.arange(height) * cells // height
    columns = torch.arange(width) * cells // width
    return rows[:, None] * cells + columns


def _ranks(order: Tensor) -> Tensor:
    """The place of each region in an order."""
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order))
    return ranks


@torch.no_grad()
def _curve(predict: Predict, start: Tensor, end: Tensor, order: Tensor, steps: int) -> Curve:
    if steps < 1 or order.shape != start.shape[1:]:
        raise DataError(
            f"a curve needs a step and a rank for each pixel: {steps}, {tuple(order.shape)}"
        )
    count = int(order.max()) + 1
    limits = [round(step * count / steps) for step in range(steps + 1)]
    changed = torch.stack([torch.where(order < limit, end, start) for limit in limits])
    shares = [float((order < limit).double().mean()) for limit in limits]
    return Curve(tuple(shares), tuple(predict(changed).double().tolist()))
