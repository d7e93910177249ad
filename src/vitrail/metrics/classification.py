"""Figures of a classifier from its logits: few, exact, and cheap enough for every site and round.

A row of logits is usable when its largest value is finite, so NaN, +inf and all -inf are not;
a single -inf is a class of probability zero. An unusable row is counted and is never correct.
It leaves loss and AUROC without a value. `None` always means "undefined here", never zero.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from vitrail.errors import DataError

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Matrix: TypeAlias = torch.Tensor | npt.ArrayLike
CALIBRATION_BINS = 15


class Ranking(NamedTuple):
    """Scores [rows, N] in ascending order, and for each place the ends of its run of ties."""

    order: Integers
    first: Integers
    last: Integers


class DetailedMetrics(TypedDict):
    """What `detailed` returns; rows of `confusion` are true classes, columns predicted ones."""

    auprc: float | None
    ece: float | None
    brier: float | None
    confusion: list[list[int]]
    unusable: int
    examples: int


def compute_classification_metrics(
    logits: Matrix, labels: Matrix, classes: int
) -> dict[str, float | None]:
    """Loss, accuracy, balanced accuracy, AUROC and the number of examples of one set of images.

    Balanced accuracy is the mean recall over the classes present. AUROC is that of class 1, or
    beyond two classes the mean over one-vs-rest problems that have both sides. With exactly two
    classes there are also `sensitivity` (recall of class 1) and `specificity` (of class 0).
    """
    z, y = check_arrays(logits, labels, classes)
    count = len(y)
    if count == 0:
        return _make_metrics(None, None, None, None, (None, None) if classes == 2 else (), 0)
    top = z.max(axis=1)
    usable = np.isfinite(top)
    correct = (z.argmax(axis=1) == y) & usable
    present = np.bincount(y, minlength=classes)
    hits = np.bincount(y[correct], minlength=classes)
    # Python numbers: for a handful of classes quicker than numpy, and plain in a JSON file
    recall = [h / n if n else None for h, n in zip(hits.tolist(), present.tolist())]
    known = [r for r in recall if r is not None]
    loss: float | None = None
    area: float | None = None
    if usable.all():
        log_total = _logsumexp(z, top)
        loss = finite_or_none(float((log_total - z[np.arange(count), y]).sum()) / count)
        area = _auroc(_separate_classes(z, log_total), y, present)
    accuracy = int(hits.sum()) / count
    sides = (recall[1], recall[0]) if classes == 2 else ()
    return _make_metrics(loss, accuracy, sum(known) / len(known), area, sides, count)


def _make_metrics(
    loss: float | None,
    accuracy: float | None,
    balanced: float | None,
    auroc: float | None,
    sides: tuple[float | None, ...],
    examples: int,
) -> dict[str, float | None]:
    figures = {"loss": loss, "accuracy": accuracy, "balanced_accuracy": balanced, "auroc": auroc}
    figures.update(zip(("sensitivity", "specificity"), sides))
    figures["examples"] = examples
    return figures


def compute_detailed_metrics(
    probabilities: Matrix, labels: Matrix, classes: int
) -> DetailedMetrics:
    """Average precision, calibration, Brier score and confusion matrix of probabilities [N, C].

    `auprc` is average precision (no interpolation) of class 1, or the mean over the classes that
    occur. `ece` is the sum over 15 equal bins (low, high] of the largest probability of
    |accuracy - mean confidence|, weighted by the share of examples. `brier` is the mean of
    (p1 - y)^2 with two classes, and of the sum over classes of (p - one-hot)^2 beyond.
    """
    p, y = check_arrays(probabilities, labels, classes)
    count = len(y)
    usable = np.isfinite(p).all(axis=1)
    _check_probabilities(p[usable])
    confusion = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(confusion, (y[usable], p[usable].argmax(axis=1)), 1)
    result = DetailedMetrics(
        auprc=None,
        ece=None,
        brier=None,
        confusion=confusion.tolist(),
        unusable=int(count - usable.sum()),
        examples=count,
    )
    if count and usable.all():
        squares = (p - np.eye(classes)[y]) ** 2
        result["auprc"] = _average_precision(p, y)
        result["ece"] = _calibration_error(p, y)
        result["brier"] = float(squares.sum(axis=1).mean()) / (2 if classes == 2 else 1)
    return result


def rank_scores(scores: Floats) -> Ranking:
    """Sort each row of scores ascending and find the runs of equal values."""
    order = scores.argsort(axis=1)
    ordered = scores[np.arange(len(scores))[:, None], order]
    places = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    tied = ordered[:, 1:] == ordered[:, :-1]
    if not tied.any():  # the usual case, and half of the work
        return Ranking(order, places, places)
    first, last = places.copy(), places.copy()
    first[:, 1:][tied] = 0
    last[:, :-1][tied] = scores.shape[1]
    first = np.maximum.accumulate(first, axis=1)
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    return Ranking(order, first, last)


def compute_separating_scores(
    logits: Matrix, labels: Matrix, classes: int
) -> tuple[Floats, Integers]:
    """One row of scores for each one-vs-rest problem that AUROC is made of, and the labels."""
    z, y = check_arrays(logits, labels, classes)
    top = z.max(axis=1, initial=-np.inf)
    if not np.isfinite(top).all():
        raise DataError(
            "some logits are NaN or infinite, so examples cannot be ranked",
            hint="Leave those examples out, or train with a smaller step.",
        )
    return _separate_classes(z, _logsumexp(z, top)), y


def check_arrays(values: Matrix, labels: Matrix, classes: int) -> tuple[Floats, Integers]:
    """Both arguments as numpy arrays of the right type, or an error that names the mismatch."""
    z = _to_numpy(values).astype(np.float64, copy=False)
    given = _to_numpy(labels)
    if given.dtype.kind not in "iub" and given.size:
        raise DataError(f"labels must be integers, not {given.dtype}")
    y = given.astype(np.int64, copy=False)
    if y.ndim != 1 or z.shape != (len(y), classes):
        raise DataError(
            f"{classes} classes need values [N, {classes}] and labels [N], "
            f"not {list(z.shape)} and {list(y.shape)}"
        )
    if len(y) and (y.min() < 0 or y.max() >= classes):
        raise DataError(f"labels must be 0 to {classes - 1}, not {y.min()} to {y.max()}")
    return z, y


def finite_or_none(value: float) -> float | None:
    """The value, or None in place of NaN and infinity, which JSON does not have."""
    return value if np.isfinite(value) else None


def _to_numpy(values: Matrix) -> npt.NDArray[np.generic]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        # numpy has no bfloat16
        return (values.float() if values.dtype is torch.bfloat16 else values).numpy()
    return np.asarray(values)


def _logsumexp(z: Floats, top: Floats) -> Floats:
    """The logarithm of the sum of exponentials of each row, without overflow."""
    total: Floats = np.log(np.exp(z - top[:, None]).sum(axis=1)) + top
    return total


def _separate_classes(z: Floats, log_total: Floats) -> Floats:
    """Rows of scores that rank like the probability of a class, where that would round to 0."""
    if z.shape[1] == 2:
        return (z[:, 1] - z[:, 0])[None]
    return np.ascontiguousarray((z - log_total[:, None]).T)


def row_classes(classes: int) -> Integers:
    """The class each row of scores stands for: class 1 alone when there are two."""
    return np.ones(1, dtype=np.int64) if classes == 2 else np.arange(classes)


def _auroc(scores: Floats, y: Integers, present: Integers) -> float | None:
    """Mean over rows of the normalized rank sum (Mann-Whitney U); ties share their mean rank."""
    positive_class = row_classes(len(present))
    order, first, last = rank_scores(scores)
    is_positive = y[order] == positive_class[:, None]
    sums = ((first + last) * is_positive).sum(axis=1) * 0.5  # of mean ranks, counted from zero
    positives = present[positive_class]
    areas = [
        (s - p * (p - 1) / 2) / (p * (len(y) - p))
        for s, p in zip(sums.tolist(), positives.tolist())
        if 0 < p < len(y)
    ]
    return sum(areas) / len(areas) if areas else None


def _average_precision(p: Floats, y: Integers) -> float | None:
    """Mean over positives of the precision at the end of their run of ties, from the top."""
    scores = np.ascontiguousarray(-p.T) if p.shape[1] != 2 else -p[:, 1][None]
    order, _, last = rank_scores(scores)
    positive = y[order] == row_classes(p.shape[1])[:, None]
    hits = np.take_along_axis(positive.cumsum(axis=1), last, axis=1)
    total = positive.sum(axis=1)
    if not total.any():
        return None
    precision = (positive * hits / (last + 1)).sum(axis=1)
    return float((precision[total > 0] / total[total > 0]).mean())


def _calibration_error(p: Floats, y: Integers) -> float:
    confidence = p.max(axis=1)
    gap = (p.argmax(axis=1) == y) - confidence
    edges = np.linspace(0.0, 1.0, CALIBRATION_BINS + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, CALIBRATION_BINS - 1)
    return float(np.abs(np.bincount(place, weights=gap, minlength=CALIBRATION_BINS)).sum() / len(y))


def _check_probabilities(p: Floats) -> None:
    if len(p) and (p.min() < -1e-6 or np.abs(p.sum(axis=1) - 1).max() > 1e-3):
        raise DataError(
            "rows must be probabilities: not negative, with sum 1",
            hint="Pass the softmax of the logits.",
        )
