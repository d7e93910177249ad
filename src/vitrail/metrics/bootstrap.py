"""How sure a figure is: percentile bootstrap over patients, or over images where none are named.

A resample is a row of weights: how often each example was drawn. A statistic takes many rows at
once, so a thousand resamples cost a few matrix products instead of a thousand evaluations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from vitrail.errors import DataError
from vitrail.metrics.classification import (
    Floats,
    Integers,
    Matrix,
    check_arrays,
    compute_separating_scores,
    finite_or_none,
    rank_scores,
    row_classes,
)
from vitrail.rng import Key

Statistic: TypeAlias = Callable[[Floats], Floats]  # weights [R, N] to values [R], NaN if undefined
BLOCK = 2_000_000  # weights held in memory at once


@dataclass(frozen=True)
class Interval:
    """A figure and its percentile interval; the limits are None where they would mean nothing.

    `groups` is what was resampled (patients or images) and `undefined` how many of `repeats`
    resamples had no value, for example because a class was missing; those are left out.
    """

    value: float | None
    low: float | None
    high: float | None
    level: float
    groups: int
    repeats: int
    undefined: int


def bootstrap(
    statistic: Statistic,
    groups: int | Sequence[object] | npt.NDArray[np.generic],
    key: Key,
    repeats: int = 1000,
    level: float = 0.95,
) -> Interval:
    """The figure on all examples and its percentile interval over resampled groups.

    `groups` names the patient of each example; a number N means N examples, each on its own.
    There are no limits with fewer than two groups, nor when over half of the resamples are
    undefined: the rest would be a biased choice. Nor are there any when all resamples agree, as
    they do when every answer is right: an interval of one point would claim to be certain.
    """
    if not 0 < level < 1 or repeats < 1:
        raise DataError(f"level must be between 0 and 1 and repeats at least 1: {level}, {repeats}")
    member, count = _number_groups(groups)
    if not len(member):
        return Interval(None, None, None, level, 0, repeats, repeats)
    value = finite_or_none(float(statistic(np.ones((1, len(member))))[0]))
    if count < 2:
        return Interval(value, None, None, level, count, repeats, 0)
    draws = [statistic(weights) for weights in draw_resamples(member, count, key, repeats)]
    values = np.concatenate(draws)
    values = values[np.isfinite(values)]
    undefined = repeats - len(values)
    is_same = len(values) > 0 and float(np.ptp(values)) == 0.0
    if value is None or 2 * undefined > repeats or is_same:
        return Interval(value, None, None, level, count, repeats, undefined)
    tail = (1 - level) / 2
    low, high = np.quantile(values, (tail, 1 - tail))
    return Interval(value, float(low), float(high), level, count, repeats, undefined)


def draw_resamples(member: Integers, groups: int, key: Key, repeats: int) -> Iterator[Floats]:
    """Blocks of weights [r, N]: each row draws as many groups as there are, with replacement."""
    generator = key.numpy()
    share = np.full(groups, 1.0 / groups)
    block = max(1, BLOCK // len(member))
    for start in range(0, repeats, block):
        drawn = generator.multinomial(groups, share, size=min(block, repeats - start))
        yield drawn[:, member].astype(np.float64)


def accuracy(logits: Matrix, labels: Matrix, classes: int) -> Statistic:
    """Share of correct examples; unusable rows of logits are never correct."""
    correct, _ = _find_correct(logits, labels, classes)

    def statistic(weights: Floats) -> Floats:
        return _divide(weights @ correct, weights.sum(axis=1))

    return statistic


def balanced_accuracy(logits: Matrix, labels: Matrix, classes: int) -> Statistic:
    """Mean recall over the classes that are present in a resample."""
    correct, y = _find_correct(logits, labels, classes)
    one_hot = np.eye(classes)[y]
    hits = one_hot * correct[:, None]

    def statistic(weights: Floats) -> Floats:
        return _mean_defined(_divide(weights @ hits, weights @ one_hot))

    return statistic


def auroc(logits: Matrix, labels: Matrix, classes: int) -> Statistic:
    """AUROC as in `metrics.classification`, by weighted ranks; logits must be usable."""
    scores, y = compute_separating_scores(logits, labels, classes)
    ranked = rank_scores(scores)
    is_positive = y[ranked.order] == row_classes(classes)[:, None]

    def one(weights: Floats, row: int) -> Floats:
        ordered = weights[:, ranked.order[row]]
        positive, negative = ordered * is_positive[row], ordered * ~is_positive[row]
        below = np.zeros((len(weights), len(y) + 1))
        np.cumsum(negative, axis=1, out=below[:, 1:])
        # negatives strictly below, and half of those in the same run of ties
        beaten = (below[:, ranked.first[row]] + below[:, ranked.last[row] + 1]) * 0.5
        return _divide((positive * beaten).sum(axis=1), positive.sum(axis=1) * below[:, -1])

    def statistic(weights: Floats) -> Floats:
        return _mean_defined(np.stack([one(weights, row) for row in range(len(scores))], axis=1))

    return statistic


def make_statistic(figure: Callable[[Integers], float | None]) -> Statistic:
    """A statistic from any function of row numbers, called once for each resample."""

    def statistic(weights: Floats) -> Floats:
        rows = [np.repeat(np.arange(len(w)), w.astype(np.int64)) for w in weights]
        values = [figure(chosen) for chosen in rows]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    return statistic


def _number_groups(
    groups: int | Sequence[object] | npt.NDArray[np.generic],
) -> tuple[Integers, int]:
    """The group number of each example, and how many groups there are."""
    if isinstance(groups, int):
        return np.arange(groups), groups
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    return member.astype(np.int64), len(names)


def _find_correct(logits: Matrix, labels: Matrix, classes: int) -> tuple[Floats, Integers]:
    z, y = check_arrays(logits, labels, classes)
    usable = np.isfinite(z.max(axis=1, initial=-np.inf))
    return ((z.argmax(axis=1) == y) & usable).astype(np.float64), y


def _divide(above: Floats, below: Floats) -> Floats:
    """Division where zero by zero is NaN without a warning."""
    result = np.full(above.shape, np.nan)
    np.divide(above, below, out=result, where=below > 0)
    return result


def _mean_defined(values: Floats) -> Floats:
    """Row means over the values that are not NaN; NaN when there are none."""
    known = ~np.isnan(values)
    return _divide(np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1).astype(np.float64))
