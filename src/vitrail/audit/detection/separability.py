"""How well each place of an image, alone, tells the classes apart at one site.

A shortcut shows here before any model is asked: where a site's images of a class carry a mark,
the place of the mark tells that class from every other, and at no other site does it do so.
Only these areas under curves leave a site, no image and no feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitrail.rng import Key

FOLDS, REPEATS = 3, 4
TRAIN_PER_CLASS = 8  # images a class to learn from, at every site, or large sites would look better
MIN_PER_CLASS = (
    12  # images of a class below which nothing is said about it: 8 to learn from, 4 to judge
)
_SHRINK = 1.0  # of the covariance toward its mean variance; patches have many channels
_CHANNELS = 128  # more are brought down to so many by a random projection


@dataclass(frozen=True)
class Separability:
    """`area[a, b, p]`: the cross-validated area under the curve of class a against b at place p.

    Places are the cells of the map row by row, then the mean over them (what is image-wide) and
    the patch that most looks like one of class a, wherever it is. `counts` are images a class;
    NaN is unknown.
    """

    area: Tensor  # [classes, classes, places], float64
    counts: Tensor  # [classes], int64
    grid: tuple[int, int]

    @property
    def variance(self) -> Tensor:
        """Of each area (Hanley and McNeil 1982), half a pair added so that 1 is not certain."""
        a, b = self.counts[:, None, None].double(), self.counts[None, :, None].double()
        pairs = a * b
        area = (self.area * pairs + 0.5) / (pairs + 1)
        one, two = area / (2 - area), 2 * area**2 / (1 + area)
        spread = area * (1 - area) + (a - 1) * (one - area**2) + (b - 1) * (two - area**2)
        return spread.clamp_min(1e-6) / pairs.clamp_min(1)

    def to_json(self) -> dict[str, Any]:
        """What a site tells the others: areas to three digits, counts, and the grid."""
        rounded = [
            [[_round_number(v) for v in row] for row in block] for block in self.area.tolist()
        ]
        return {"area": rounded, "counts": self.counts.tolist(), "grid": list(self.grid)}

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Separability:
        """What another site told; KeyError, TypeError or ValueError if it is no such table."""
        rows, columns = (_check_count(n, 1) for n in raw["grid"])
        counts = [_check_count(n, 0) for n in raw["counts"]]
        area = [[[_parse_area(v) for v in row] for row in block] for block in raw["area"]]
        areas = torch.tensor(area, dtype=torch.float64)
        if tuple(areas.shape) != (len(counts), len(counts), rows * columns + 2):
            raise ValueError("areas, counts and grid do not belong together")
        return Separability(areas, torch.tensor(counts, dtype=torch.int64), (rows, columns))

    def is_comparable(self, other: Separability) -> bool:
        """Whether two tables have the same classes and places, so that they compare."""
        return self.grid == other.grid and self.area.shape == other.area.shape


def _round_number(value: float) -> float | None:
    return None if value != value else round(value, 3)


def _check_count(value: Any, least: int) -> int:
    if type(value) is not int or not least <= value < 2**31:
        raise ValueError("what should be a whole number is none")
    return value


def _parse_area(value: Any) -> float:
    if value is None:
        return float("nan")
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError("these are no areas under curves")
    return float(value)


def compute_separability(maps: Tensor, labels: Tensor, classes: int, key: Key) -> Separability:
    """Cross-validated linear discriminants (Fisher 1936), one for each place, and a prototype.

    `maps` [N, D, h, w] come from one extractor that all sites share. The pooled covariance
    within classes is shrunk; a class with fewer than 12 images is left out.
    """
    height, width = maps.shape[2:]
    counts = torch.bincount(labels, minlength=classes)
    known = torch.nonzero(counts >= MIN_PER_CLASS)[:, 0]
    if len(known) < 2:
        unknown = torch.full((classes, classes, height * width + 2), float("nan"))
        return Separability(unknown.double(), counts, (height, width))
    cells = _project(maps.flatten(2), key)
    cells = (cells - cells.mean((0, 2), keepdim=True)) / cells.std((0, 2), keepdim=True).clamp(1e-6)
    z = torch.cat([cells, cells.mean(2, keepdim=True)], 2).permute(2, 0, 1).double()  # [P, N, D]
    draw = key.at("folds").torch()
    repeats = [
        _cross_validate(
            z, cells, labels, known, torch.randperm(len(labels), generator=draw), classes
        )
        for _ in range(REPEATS)
    ]
    return Separability(torch.stack(repeats).mean(0), counts, (height, width))


def _cross_validate(
    z: Tensor, cells: Tensor, labels: Tensor, known: Tensor, order: Tensor, classes: int
) -> Tensor:
    """The areas of one way to deal the images out to folds, equal shares of every class."""
    fold = torch.empty_like(order)
    for label in range(classes):
        rows = order[labels[order] == label]
        fold[rows] = torch.arange(len(rows)) % FOLDS
    scores = torch.zeros(len(z), len(labels), classes, dtype=z.dtype)
    alike = torch.zeros(len(labels), classes, dtype=z.dtype)
    for part in range(FOLDS):
        held = fold == part
        learn = torch.cat(
            [
                _select_class(order, labels, ~held, label)[:TRAIN_PER_CLASS]
                for label in known.tolist()
            ]
        )
        scores[:, held] = z[:, held] @ _fit_directions(z[:, learn], labels[learn], known, classes)
        for label in known.tolist():
            patch = _find_prototype(cells[learn], labels[learn] == label)
            alike[held, label] = -_compute_nearest_distances(patch[None], cells[held])[0].to(
                z.dtype
            )
    area = torch.full((classes, classes, len(z) + 1), float("nan"), dtype=z.dtype)
    for a in known.tolist():
        for b in known.tolist():
            if a != b:
                margin = scores[..., a] - scores[..., b]
                area[a, b, :-1] = _compute_areas(margin[:, labels == a], margin[:, labels == b])
                near = alike[None, :, a]
                area[a, b, -1] = _compute_areas(near[:, labels == a], near[:, labels == b])[0]
    return area


def locate_class_patch(cells: Tensor, of_class: Tensor) -> Tensor:
    """For each image of [N, D, P], where the patch is that most looks like one which the images
    in `of_class` share and the others lack."""
    cells = (cells - cells.mean((0, 2), keepdim=True)) / cells.std((0, 2), keepdim=True).clamp(1e-6)
    patch = _find_prototype(cells, of_class)
    return (cells - patch[None, :, None]).square().sum(1).argmin(1)


def _find_prototype(cells: Tensor, of_class: Tensor) -> Tensor:
    """The patch of a class that is closest to a patch in each of its images, and in no other."""
    candidates = cells[of_class].transpose(1, 2).reshape(-1, cells.shape[1])
    distances = _compute_nearest_distances(candidates, cells)  # [patches, images]
    apart = distances[:, ~of_class].mean(1) - distances[:, of_class].mean(1)
    return candidates[int(apart.argmax())]


def _compute_nearest_distances(patches: Tensor, cells: Tensor) -> Tensor:
    """The distance of each patch [k, D] to the nearest one of each image [N, D, P], as [k, N]."""
    flat = cells.transpose(1, 2).reshape(-1, cells.shape[1])
    distances: Tensor = torch.cdist(patches, flat)
    return distances.view(len(patches), len(cells), -1).amin(2)


def _select_class(order: Tensor, labels: Tensor, among: Tensor, label: int) -> Tensor:
    """The positions of one class among some images, in a random order."""
    return order[(labels[order] == label) & among[order]]


def _project(z: Tensor, key: Key) -> Tensor:
    """At most so many channels, by a Gaussian projection that keeps distances about equal."""
    channels = z.shape[1]
    if channels <= _CHANNELS:
        return z
    draw = torch.randn(_CHANNELS, channels, generator=key.at("projection").torch())
    return torch.einsum("kd,ndp->nkp", draw / _CHANNELS**0.5, z)


def _fit_directions(z: Tensor, labels: Tensor, known: Tensor, classes: int) -> Tensor:
    """For each place and class, the covariance's inverse times the class's mean, [P, D, C]."""
    places, _, channels = z.shape
    means = torch.zeros(places, channels, classes, dtype=z.dtype)
    centered = z.clone()
    for label in known.tolist():
        of_class = labels == label
        means[:, :, label] = z[:, of_class].mean(1)
        centered[:, of_class] -= means[:, :, label][:, None]
    keep = torch.isin(labels, known)
    within = centered[:, keep].transpose(1, 2) @ centered[:, keep] / max(1, int(keep.sum()))
    scale = within.diagonal(dim1=1, dim2=2).mean(1).clamp_min(1e-12)
    ridge = _SHRINK * scale[:, None, None] * torch.eye(channels, dtype=z.dtype)
    directions: Tensor = torch.linalg.solve(within + ridge, means)
    return directions


def _compute_areas(above: Tensor, below: Tensor) -> Tensor:
    """The chance that one of `above` [P, n] exceeds one of `below` [P, m], place by place."""
    ranked, asked = below.sort(dim=1).values.contiguous(), above.contiguous()
    smaller = torch.searchsorted(ranked, asked) + torch.searchsorted(ranked, asked, right=True)
    return smaller.double().mean(1) / (2 * below.shape[1])
