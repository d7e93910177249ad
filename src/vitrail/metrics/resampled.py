"""The figures of an evaluation as statistics that can be resampled a thousand times at once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vitrail.metrics.bootstrap import Statistic, accuracy, auroc, balanced_accuracy
from vitrail.metrics.classification import (
    CALIBRATION_BINS,
    Floats,
    Integers,
    rank_scores,
    row_classes,
)


def make_statistics(
    logits: Floats, probabilities: Floats, labels: Integers
) -> dict[str, Statistic]:
    """Every figure by name, for `local.intervals.bootstrap`; definitions as in `local.metrics`."""
    classes = logits.shape[1]
    statistics = {
        "auroc": auroc(logits, labels, classes),
        "auprc": auprc(probabilities, labels),
        "balanced_accuracy": balanced_accuracy(logits, labels, classes),
        "accuracy": accuracy(logits, labels, classes),
    }
    if classes == 2:
        right = logits.argmax(axis=1) == labels
        statistics["sensitivity"] = share(right, labels == 1)
        statistics["specificity"] = share(right, labels == 0)
    statistics["ece"] = calibration_error(probabilities, labels)
    squares = ((probabilities - np.eye(classes)[labels]) ** 2).sum(axis=1)
    statistics["brier"] = mean(squares / (2 if classes == 2 else 1))
    return statistics


def mean(values: Floats) -> Statistic:
    """The weighted mean of one value per example."""

    def statistic(weights: Floats) -> Floats:
        return ratio(weights @ values, weights.sum(axis=1))

    return statistic


def share(right: npt.NDArray[np.bool_], among: npt.NDArray[np.bool_]) -> Statistic:
    """The share of right examples among some of them."""
    hits, all_ = (right & among).astype(np.float64), among.astype(np.float64)

    def statistic(weights: Floats) -> Floats:
        return ratio(weights @ hits, weights @ all_)

    return statistic


def calibration_error(probabilities: Floats, labels: Integers) -> Statistic:
    """The expected calibration error over equal bins of the largest probability."""
    place = assign_bins(probabilities)
    gap = (probabilities.argmax(axis=1) == labels) - probabilities.max(axis=1)
    by_bin = np.eye(CALIBRATION_BINS)[place] * gap[:, None]

    def statistic(weights: Floats) -> Floats:
        return ratio(np.abs(weights @ by_bin).sum(axis=1), weights.sum(axis=1))

    return statistic


def assign_bins(probabilities: Floats) -> Integers:
    """The calibration bin (low, high] of each example."""
    edges = np.linspace(0.0, 1.0, CALIBRATION_BINS + 1)
    place = np.searchsorted(edges, probabilities.max(axis=1), side="left") - 1
    bins: Integers = np.clip(place, 0, CALIBRATION_BINS - 1).astype(np.int64)
    return bins


def auprc(probabilities: Floats, labels: Integers) -> Statistic:
    """Average precision of class 1, or the mean over the classes that occur in a resample."""
    problems = row_classes(probabilities.shape[1])
    ranked = rank_scores(np.ascontiguousarray(-probabilities.T[problems]))
    positive = labels[ranked.order] == problems[:, None]

    def one(weights: Floats, row: int) -> Floats:
        ordered = weights[:, ranked.order[row]]
        counted = ordered * positive[row]
        # precision where the run of ties ends, so that the order within it does not matter
        end = ranked.last[row]
        precision = ratio(np.cumsum(counted, axis=1)[:, end], np.cumsum(ordered, axis=1)[:, end])
        return ratio((counted * np.nan_to_num(precision)).sum(axis=1), counted.sum(axis=1))

    def statistic(weights: Floats) -> Floats:
        values = np.stack([one(weights, row) for row in range(len(problems))], axis=1)
        known = ~np.isnan(values)
        return ratio(np.where(known, values, 0.0).sum(axis=1), known.sum(axis=1).astype(np.float64))

    return statistic


def ratio(above: Floats, below: Floats) -> Floats:
    """Division in which zero by zero is NaN without a warning."""
    result = np.full(above.shape, np.nan)
    np.divide(above, below, out=result, where=below > 0)
    return result
