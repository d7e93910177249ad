"""What a site tells of its A half: counts and mean features of each class, and one spread."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_LARGEST = 6e4  # what float16 holds


@dataclass(frozen=True)
class ClassSummary:
    """`means` [classes, features] of the images in A, NaN for classes with too few; `variance`
    [features] within classes; `counts` [classes] of images in A and `tested` of those in B.
    `correlations` are those within classes, one matrix for each unit that wants them."""

    counts: npt.NDArray[np.int64]
    tested: npt.NDArray[np.int64]
    means: Floats
    variance: Floats
    correlations: tuple[Floats, ...] = ()

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the variance."""
        return int(np.maximum(self.counts - 1, 0).sum())

    def to_json(self) -> dict[str, Any]:
        """As text: counts, and the numbers in half precision."""
        known = self.counts > 0
        return {
            "counts": self.counts.tolist(),
            "tested": self.tested.tolist(),
            "means": _pack(self.means[known]),
            "variance": _pack(self.variance),
            "correlations": [_pack(m[np.triu_indices(len(m), 1)]) for m in self.correlations],
        }

    @staticmethod
    def from_json(raw: dict[str, Any]) -> ClassSummary:
        """What another site told; KeyError, TypeError or ValueError if it is no such summary."""
        counts, tested = (_parse_counts(raw[name]) for name in ("counts", "tested"))
        if len(counts) != len(tested):
            raise ValueError("counts of both halves do not belong together")
        variance = _unpack(raw["variance"])
        known = counts > 0
        rows = _unpack(raw["means"])
        if len(rows) != known.sum() * len(variance) or not len(variance):
            raise ValueError("means, counts and variance do not belong together")
        if (variance < 0).any():
            raise ValueError("a variance is negative")
        means = np.full((len(counts), len(variance)), np.nan)
        means[known] = rows.reshape(-1, len(variance))
        correlations = tuple(_parse_correlations(text) for text in raw["correlations"])
        return ClassSummary(counts, tested, means, variance, correlations)

    def is_comparable(self, other: ClassSummary) -> bool:
        """Whether two summaries have the same classes and features."""
        sizes = [[len(m) for m in table.correlations] for table in (self, other)]
        return self.means.shape == other.means.shape and sizes[0] == sizes[1]


def compute_summary(
    features: Floats,
    labels: npt.NDArray[np.int64],
    tested: npt.NDArray[np.int64],
    classes: int,
    least: int,
    joint: Sequence[npt.NDArray[np.int64]] = (),
) -> ClassSummary:
    """Of rows [N, F], one an image or a patient; classes with fewer than `least` are left out.

    `tested` [classes] counts those of the other half; `joint` are columns whose correlations are
    told.
    """
    counts = np.bincount(labels, minlength=classes).astype(np.int64)
    counts[counts + tested < least] = 0
    counts[(counts < 2) | (tested < 1)] = 0
    tested = np.where(counts > 0, tested, 0)
    means = np.full((classes, features.shape[1]), np.nan)
    centered = np.zeros_like(features)
    for label in np.flatnonzero(counts):
        means[label] = features[labels == label].mean(0)
        centered[labels == label] = features[labels == label] - means[label]
    freedom = max(1, int(np.maximum(counts - 1, 0).sum()))
    variance = (centered**2).sum(0) / freedom
    correlations = []
    for columns in joint:
        part = centered[:, columns] / np.sqrt(np.maximum(variance[columns] * freedom, 1e-12))
        correlations.append(_round(np.clip(part.T @ part, -1, 1)))
        np.fill_diagonal(correlations[-1], 1)
    return ClassSummary(counts, tested, _round(means), _round(variance), tuple(correlations))


def _round(values: Floats) -> Floats:
    """As they will be told, so that a site computes with what the others have."""
    return np.clip(values, -_LARGEST, _LARGEST).astype(np.float16).astype(np.float64)


def _pack(values: Floats) -> str:
    return base64.b64encode(values.astype("<f2").tobytes()).decode()


def _unpack(text: Any) -> Floats:
    if not isinstance(text, str):
        raise ValueError("what should be numbers as text is none")
    raw = base64.b64decode(text, validate=True)
    if len(raw) % 2:
        raise ValueError("half a number is missing")
    values = np.frombuffer(raw, "<f2").astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    return values


def _parse_correlations(text: Any) -> Floats:
    values = _unpack(text)
    size = round((1 + np.sqrt(1 + 8 * len(values))) / 2)
    if size * (size - 1) // 2 != len(values) or (np.abs(values) > 1).any():
        raise ValueError("these are no correlations")
    matrix = np.eye(size)
    matrix[np.triu_indices(size, 1)] = values
    return matrix + matrix.T - np.eye(size)


def _parse_counts(raw: Any) -> npt.NDArray[np.int64]:
    if not isinstance(raw, list) or not all(type(n) is int and 0 <= n < 2**31 for n in raw):
        raise ValueError("what should be whole numbers are none")
    return np.array(raw, np.int64)
