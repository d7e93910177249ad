import json
import warnings

import numpy as np
import pytest
import torch
from sklearn import metrics as sk

from vitrail.errors import DataError
from vitrail.metrics.classification import (
    compute_classification_metrics,
    compute_detailed_metrics,
    rank_scores,
)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def literal_auroc(score, positive):
    """Share of (positive, negative) pairs in the right order, a tie counting one half."""
    wins = [
        1.0 if a > b else 0.5 if a == b else 0.0 for a in score[positive] for b in score[~positive]
    ]
    return sum(wins) / len(wins)


def expected(z, y, classes):
    p = softmax(z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        balanced = sk.balanced_accuracy_score(y, z.argmax(1))
    rows = [1] if classes == 2 else range(classes)
    usable = [c for c in rows if 0 < (y == c).sum() < len(y)]
    areas = [sk.roc_auc_score(y == c, p[:, c]) for c in usable]
    return {
        "loss": sk.log_loss(y, p, labels=range(classes)),
        "accuracy": sk.accuracy_score(y, z.argmax(1)),
        "balanced_accuracy": balanced,
        "auroc": np.mean(areas) if areas else None,
        "examples": len(y),
    }


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("examples", [1, 2, 7, 60])
@pytest.mark.parametrize("ties", [False, True])
def test_agrees_with_sklearn(classes, examples, ties):
    draw = np.random.default_rng(examples * 100 + classes)
    for _ in range(5):
        z = draw.normal(size=(examples, classes))
        if ties:
            z = z[draw.integers(0, examples // 3 + 1, examples)]  # whole rows occur again
        y = draw.integers(0, classes, examples)
        y[y == classes - 1] = 0 if classes > 2 else classes - 1  # a class nobody has
        ours = compute_classification_metrics(z, y, classes)
        for name, value in expected(z, y, classes).items():
            assert ours[name] == (None if value is None else pytest.approx(value, abs=1e-9)), name


def test_auroc_of_equal_rows_is_one_half_and_of_rare_pairs_literal():
    draw = np.random.default_rng(3)
    y = draw.integers(0, 4, 50)
    assert compute_classification_metrics(np.zeros((50, 4)), y, 4)["auroc"] == 0.5
    z = draw.integers(0, 3, (50, 2)).astype(float)
    two = y % 2
    score = z[:, 1] - z[:, 0]
    assert compute_classification_metrics(z, two, 2)["auroc"] == pytest.approx(
        literal_auroc(score, two == 1), abs=1e-12
    )


def test_two_classes_have_sensitivity_and_specificity():
    z = np.array([[0, 1], [0, 1], [1, 0], [1, 0], [0, 1]], dtype=float)
    y = np.array([1, 1, 1, 0, 0])
    figures = compute_classification_metrics(z, y, 2)
    assert figures["sensitivity"] == pytest.approx(2 / 3)
    assert figures["specificity"] == pytest.approx(1 / 2)
    assert "sensitivity" not in compute_classification_metrics(np.zeros((1, 3)), [0], 3)
    alone = compute_classification_metrics(z[:3], y[:3], 2)
    assert alone["specificity"] is None and alone["auroc"] is None
    assert alone["balanced_accuracy"] == alone["sensitivity"]


def test_saturated_probabilities_still_rank():
    z = np.array([[0.0, 800.0], [0.0, 801.0], [0.0, 799.0], [0.0, 798.0]])
    assert compute_classification_metrics(z, [1, 1, 0, 0], 2)["auroc"] == 1.0


@pytest.mark.parametrize("classes", [1, 2, 5])
def test_empty_input_has_no_figures_but_all_names(classes):
    figures = compute_classification_metrics(
        torch.zeros(0, classes), torch.zeros(0, dtype=torch.int64), classes
    )
    some = compute_classification_metrics(
        torch.zeros(3, classes), torch.zeros(3, dtype=torch.int64), classes
    )
    assert figures.pop("examples") == 0
    assert set(figures.values()) == {None}
    assert set(figures) | {"examples"} == set(some)


@pytest.mark.parametrize("bad", [[np.nan, 0, 0], [0, np.nan, 0], [0, np.inf, 0], [-np.inf] * 3])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_unusable_logits_are_never_correct(bad, label):
    z = np.array([[5.0, 0, 0], bad])
    figures = compute_classification_metrics(z, [0, label], 3)
    assert figures["accuracy"] == 0.5
    assert figures["loss"] is None and figures["auroc"] is None
    json.dumps(figures, allow_nan=False)


def test_minus_infinity_is_a_class_of_probability_zero():
    z = np.array([[1.0, -np.inf, 0.0], [2.0, 1.0, -np.inf]])
    assert compute_classification_metrics(z, [0, 0], 3)["loss"] == pytest.approx(
        np.log1p(np.exp(-1))
    )
    impossible = compute_classification_metrics(z, [1, 0], 3)
    assert impossible["loss"] is None and impossible["accuracy"] == 0.5


def test_torch_numpy_and_half_precision_agree():
    z = torch.tensor([[1.0, 2.0], [3.0, 0.5], [0.25, 0.5]], requires_grad=True)
    y = torch.tensor([1, 0, 0])
    base = compute_classification_metrics(z, y, 2)
    assert compute_classification_metrics(z.detach().numpy(), y.numpy(), 2) == base
    assert compute_classification_metrics(z.to(torch.bfloat16), y.to(torch.uint8), 2) == base
    assert compute_classification_metrics(z.tolist(), y.tolist(), 2) == base
    assert all(value is None or type(value) in (int, float) for value in base.values())


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (np.zeros((2, 3)), [0, 3]),
        (np.zeros((2, 3)), [0, -1]),
        (np.zeros((2, 3)), [0]),
        (np.zeros((2, 2)), [0, 1]),
        (np.zeros(3), [0, 1, 2]),
        (np.zeros((2, 3)), [0.0, 1.5]),
        (np.zeros((2, 3)), [[0], [1]]),
    ],
)
def test_mismatches_are_refused(logits, labels):
    with pytest.raises(DataError):
        compute_classification_metrics(logits, labels, 3)


def test_ranking_marks_runs_of_ties():
    order, first, last = rank_scores(np.array([[3.0, 1.0, 3.0, 2.0, 1.0, -np.inf]]))
    assert np.array([3.0, 1.0, 3.0, 2.0, 1.0, -np.inf])[order[0]].tolist() == [
        -np.inf,
        1,
        1,
        2,
        3,
        3,
    ]
    assert first[0].tolist() == [0, 1, 1, 3, 4, 4]
    assert last[0].tolist() == [0, 2, 2, 3, 5, 5]


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("ties", [False, True])
def test_details_agree_with_sklearn(classes, ties):
    draw = np.random.default_rng(classes)
    z = draw.normal(size=(80, classes)) * 2
    p = softmax(z.round() if ties else z)
    y = draw.integers(0, max(2, classes - 1), 80)  # the last of many classes is absent
    ours = compute_detailed_metrics(p, y, classes)
    rows = [1] if classes == 2 else sorted(set(y.tolist()))
    precision = [sk.average_precision_score(y == c, p[:, c]) for c in rows]
    assert ours["auprc"] == pytest.approx(np.mean(precision), abs=1e-12)
    assert ours["confusion"] == sk.confusion_matrix(y, p.argmax(1), labels=range(classes)).tolist()
    brier = sk.brier_score_loss(y, p[:, 1] if classes == 2 else p, labels=list(range(classes)))
    assert ours["brier"] == pytest.approx(brier, abs=1e-12)


def test_calibration_error_is_the_sum_over_bins():
    draw = np.random.default_rng(0)
    p = softmax(draw.normal(size=(200, 4)) * 3)
    p[0] = [1, 0, 0, 0]
    p[1] = [0.2, 0.4, 0.3, 0.1]  # 0.4 is the upper edge of the sixth bin
    y = draw.integers(0, 4, 200)
    total = 0.0
    for b in range(15):
        inside = [
            i
            for i in range(200)
            if np.linspace(0, 1, 16)[b] < p[i].max() <= np.linspace(0, 1, 16)[b + 1]
        ]
        if inside:
            right = np.mean([p[i].argmax() == y[i] for i in inside])
            total += len(inside) / 200 * abs(right - np.mean([p[i].max() for i in inside]))
    assert compute_detailed_metrics(p, y, 4)["ece"] == pytest.approx(total, abs=1e-12)
    sure = np.eye(4)[y]
    assert (
        compute_detailed_metrics(sure, y, 4)["ece"] == 0.0
        and compute_detailed_metrics(sure, y, 4)["brier"] == 0.0
    )


def test_details_without_a_usable_answer():
    p = np.array([[0.5, 0.5], [np.nan, 0.5]])
    figures = compute_detailed_metrics(p, [0, 1], 2)
    assert figures["auprc"] is None and figures["ece"] is None and figures["brier"] is None
    assert figures["unusable"] == 1 and figures["confusion"] == [[1, 0], [0, 0]]
    empty = compute_detailed_metrics(np.zeros((0, 2)), [], 2)
    assert empty["examples"] == 0 and empty["ece"] is None
    assert compute_detailed_metrics([[1.0, 0.0]], [0], 2)["auprc"] is None  # nobody of class 1
    with pytest.raises(DataError, match="softmax"):
        compute_detailed_metrics(np.array([[3.0, -1.0]]), [0], 2)
