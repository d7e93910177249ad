"""How odd each update of a round is beside the others, from what the server sees anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache

import torch
from torch import Tensor

from vitrail.aggregate.geometric_median import find_geometric_median
from vitrail.release.message import Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

FEWEST, MOST = 4, 1024
"""With fewer updates nobody is odd; of more in a round no score is made."""
LARGEST = 10.0
"""A score of one round is no larger, so that a single round does not decide alone."""
_BINS = 512
_LEAST_SPREAD = 0.1  # of logarithms and cosines: what sites that do the same differ by


@dataclass(frozen=True)
class Oddness:
    """How far one update is from the rest, in robust standard deviations, never below 0.

    `norm`: longer than the others; `distance`: farther from their median; `direction`: turned
    away from it; `twin`: closer to another one than honest updates are. `score` is the largest.
    `length` is the norm of the change itself.
    """

    norm: float
    distance: float
    direction: float
    twin: float
    length: float

    @property
    def score(self) -> float:
        """The largest of the four."""
        return max(self.norm, self.distance, self.direction, self.twin)

    def to_json(self) -> dict[str, float]:
        """Rounded numbers for the log."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


class UpdateWatch:
    """Sketches of a round's changes: 512 numbers a site instead of the whole update."""

    def __init__(self, schema: Schema, sent: Mapping[str, Tensor]) -> None:
        self._sent = sent
        self._names = [f.name for f in schema.up_added if f.name in sent]
        self._sketches: dict[str, Tensor] = {}
        self._lengths: dict[str, float] = {}

    def add(self, update: Update) -> float:
        """Remember what an update changes; returns how much that is."""
        if not self._names:
            return 0.0
        parts = [(update.tensors[n].double() - self._sent[n]).reshape(-1) for n in self._names]
        change = torch.cat(parts)
        length = float(torch.linalg.vector_norm(change))
        if len(self._sketches) <= MOST:
            self._sketches[update.site] = _sketch(change)
            self._lengths[update.site] = length
        return length

    def forget(self, site: str) -> None:
        """Leave out an update that was refused after all."""
        self._sketches.pop(site, None)
        self._lengths.pop(site, None)

    def compare(self) -> dict[str, Oddness]:
        """Every site's oddness; empty where there are too few or too many to compare."""
        if not FEWEST <= len(self._sketches) <= MOST:
            return {}
        stack = torch.stack(list(self._sketches.values()))
        if not bool(torch.isfinite(stack).all()):
            return {}
        lengths = torch.tensor(list(self._lengths.values()), dtype=torch.float64)
        share, _ = find_geometric_median(stack, torch.ones(len(stack), dtype=torch.float64))
        center = share @ stack
        away = torch.linalg.vector_norm(stack - center, dim=1)
        size = torch.linalg.vector_norm(stack, dim=1) * torch.linalg.vector_norm(center)
        cosine = torch.where(size > 0, stack @ center / size.clamp(min=1e-300), 0.0)
        between = torch.cdist(stack, stack).fill_diagonal_(math.inf).amin(1)
        scores = (
            _deviate(_log(lengths)),
            _deviate(_log(away)),
            _deviate(-cosine),
            _deviate(-_log(between)),
        )
        rows = zip(*(score.tolist() for score in scores), lengths.tolist(), strict=True)
        return {site: Oddness(*row) for site, row in zip(self._sketches, rows, strict=True)}


def _log(values: Tensor) -> Tensor:
    """Logarithms; what is 0 counts as a thousandth of the smallest that is not."""
    positive = values[values > 0]
    least = float(positive.min()) / 1000 if len(positive) else 1.0
    return values.clamp(min=least).log()


def _deviate(values: Tensor) -> Tensor:
    """How far above the median of the others, in their robust standard deviations, 0 to 10."""
    scores = []
    for at in range(len(values)):
        others = torch.cat([values[:at], values[at + 1 :]])
        middle = others.quantile(0.5)
        spread = 1.4826 * float((others - middle).abs().quantile(0.5))
        scores.append(float(values[at] - middle) / max(spread, _LEAST_SPREAD))
    return torch.tensor(scores, dtype=torch.float64).clamp(0.0, LARGEST)


@lru_cache(maxsize=4)
def _draw_bins(length: int) -> tuple[Tensor, Tensor]:
    """Where each number of a change goes in its sketch, and with which sign."""
    source = derive_server_key(length).at("sketch").torch()
    bins = torch.randint(_BINS, (length,), generator=source)
    signs = torch.randint(2, (length,), generator=source).double().mul_(2).sub_(1)
    return bins, signs


def _sketch(change: Tensor) -> Tensor:
    """A count sketch (Charikar et al. 2002): distances and angles stay, up to a few percent."""
    bins, signs = _draw_bins(len(change))
    return torch.zeros(_BINS, dtype=torch.float64).index_add_(0, bins, change * signs)
