"""A site against the others: at which place does a class stand out here and nowhere else?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.audit.detection.separability import Separability

_SHARP = 12  # of the weights around a place: its neighbors see a mark as well, from the side
_REACH = 1.5  # cells: a mark seldom ends where a cell does
_SLACK = 0.05  # a fixed place that tells the class nearly as well is the better account


@dataclass(frozen=True)
class Contrast:
    """The place at which a class stands out most. `score` is in standard errors.

    `place` is the center as shares of width and height, `reach` the size of what was looked at
    there; both are None for what is image-wide or anywhere.
    `here` and `elsewhere` are the mean areas under the curve at that place.
    """

    label: int
    score: float
    kind: str  # "place", "image-wide" or "anywhere"
    place: tuple[float, float] | None
    here: float
    elsewhere: float
    reach: tuple[float, float] | None = None


def compute_contrasts(tables: Mapping[str, Separability], site: str) -> list[Contrast]:
    """One contrast a class that this site and at least one other know about.

    At each place the median, over the other classes that both sides have, of the area here
    minus that of the other sites (weighed by their precision): a marked class is told from
    every other by its mark, the others only from the marked one. Its error is the median of the
    errors, because the pairs share the class's own images. What all other classes of this site
    have in common, at all places, is taken off: a site may simply have better images. (With two
    classes it is what the places have in common, so that image-wide shifts go unseen.) Sites
    differ without any bias, and more than by chance: how much the other sites differ among
    themselves, over all places, is part of the error.
    """
    table, others = tables[site], [t for name, t in tables.items() if name != site]
    if not others:
        return []
    stack = torch.stack([t.area for t in others])
    weight = torch.where(stack.isnan(), 0.0, 1 / torch.stack([t.variance for t in others]))
    total = weight.sum(0)
    elsewhere = (stack.nan_to_num() * weight).sum(0) / total.clamp_min(1e-12)
    between = _compute_between_variance(stack, torch.stack([t.variance for t in others]))
    spread = (table.variance + 1 / total.clamp_min(1e-12) + between[..., None]).sqrt()
    both = ~table.area.isnan() & (total > 0)
    gaps, errors, levels = {}, {}, {}
    for label in range(len(table.area)):
        pairs = both[label].all(1)
        if bool(pairs.any()):
            here, there = table.area[label][pairs], elsewhere[label][pairs]
            gaps[label] = (here - there).median(0).values
            levels[label] = (here.mean(0), there.mean(0))
            errors[label] = spread[label][pairs].median(0).values
    contrasts = []
    for label, gap in gaps.items():
        rest = [g for other, g in gaps.items() if other != label]
        common = (torch.cat(rest) if len(rest) > 1 else gap).median().clamp_min(0)
        z = (gap - common) / errors[label]
        best, (here, there) = int(z.argmax()), levels[label]
        where = int(z[: table.grid[0] * table.grid[1]].argmax())
        if z[where] < z[best] / 2 or here[where] < here[best] - _SLACK:
            where = best
        score, known = float(z[best]), (float(here[where]), float(there[where]))
        contrasts.append(_make_contrast(label, score, z, where, table.grid, known))
    return contrasts


def _compute_between_variance(areas: Tensor, variances: Tensor) -> Tensor:
    """The variance between sites beyond that of sampling, for each pair of classes.

    The moment estimate of DerSimonian and Laird (1986), a mean over places; 0 with fewer than
    two sites that know the pair.
    """
    known = ~areas.isnan()
    count = known.sum(0).clamp_min(1)
    center = areas.nan_to_num().sum(0) / count
    squares = torch.where(known, (areas - center) ** 2, 0.0).sum(0) / (count - 1).clamp_min(1)
    sampling = torch.where(known, variances, 0.0).sum(0) / count
    excess = torch.where(count > 1, squares - sampling, 0.0)
    return excess.mean(-1).clamp_min(0)


def _make_contrast(
    label: int,
    score: float,
    z: Tensor,
    where: int,
    grid: tuple[int, int],
    known: tuple[float, float],
) -> Contrast:
    height, width = grid
    cells = height * width
    if where >= cells:
        kind = "image-wide" if where == cells else "anywhere"
        return Contrast(label, score, kind, None, *known)
    center = _find_center(z[:cells].view(height, width), divmod(where, width))
    return Contrast(label, score, "place", center, *known, reach=(_REACH / width, _REACH / height))


def _find_center(z: Tensor, at: tuple[int, int]) -> tuple[float, float]:
    """The middle of what stands out around a cell; what is near the largest counts most."""
    height, width = z.shape
    rows = torch.arange(max(0, at[0] - 1), min(height, at[0] + 2))
    columns = torch.arange(max(0, at[1] - 1), min(width, at[1] + 2))
    near = (z[rows][:, columns] / z[at].clamp_min(1e-9)).clamp_min(0) ** _SHARP
    y = float((near.sum(1) * (rows + 0.5)).sum() / near.sum()) / height
    x = float((near.sum(0) * (columns + 0.5)).sum() / near.sum()) / width
    return x, y
