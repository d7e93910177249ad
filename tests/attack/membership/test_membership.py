"""Membership: figures against slow formulas, an overfitted run is caught, a fresh model is not."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from vitrail.attack.choice import Choice
from vitrail.attack.findings import MembershipResult, estimate_area_error
from vitrail.attack.membership.lira import (
    assign_shadow_halves,
    balance_classes,
    compare_scores,
    compute_lira_scores,
    compute_loss_scores,
    confidence,
    tpr_at,
)
from vitrail.attack.run_attacks import run_attacks
from vitrail.errors import DataError, RunError
from vitrail.rng import derive_server_key

DRAW = torch.Generator().manual_seed(3)


def test_figures_are_those_of_sklearn_and_of_counting():
    members = torch.randn(50, generator=DRAW).round(decimals=1) + 0.5
    others = torch.randn(70, generator=DRAW).round(decimals=1)
    truth = [1] * 50 + [0] * 70
    result = compare_scores("loss", "model", members, others)
    assert result.auc == pytest.approx(roc_auc_score(truth, torch.cat([members, others]).numpy()))
    assert (result.members, result.others) == (50, 70)
    assert result.tpr == tpr_at(members, others)
    for fpr in (0.0, 0.01, 0.1, 0.5):
        best = max(
            float((members > t).float().mean())
            for t in [*others.tolist(), 99.0]
            if float((others > t).float().mean()) <= fpr
        )
        assert tpr_at(members, others, fpr) == pytest.approx(best)


def test_candidates_of_both_kinds_are_of_the_same_classes():
    """Refuted if a site's label skew alone tells its images from others."""
    members, others = torch.tensor([0, 0, 1, 2, 2, 2, 5]), torch.tensor([2, 0, 1, 1, 3, 2, 0, 0])
    mine, theirs = balance_classes(members, others)
    assert members[mine].tolist() == others[theirs].tolist() == [0, 0, 1, 2, 2]
    assert len(set(mine.tolist())) == len(set(theirs.tolist())) == 5
    assert [len(x) for x in balance_classes(members, torch.empty(0, dtype=torch.long))] == [0, 0]


def test_confidence_is_the_log_odds():
    logits = torch.randn(6, 4, generator=DRAW, dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    p = logits.softmax(1)[torch.arange(6), labels]
    torch.testing.assert_close(confidence(logits, labels), (p / (1 - p)).log())
    torch.testing.assert_close(compute_loss_scores(logits, labels), p.log())
    assert torch.isfinite(confidence(torch.tensor([[800.0, -800.0]]), torch.tensor([0]))).all()


def test_lira_is_the_ratio_of_two_gaussians():
    labels = torch.zeros(3, dtype=torch.long)
    shadows = torch.randn(4, 3, 2, generator=DRAW, dtype=torch.float64)
    target = torch.randn(3, 2, generator=DRAW, dtype=torch.float64)
    seen = torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
    found = compute_lira_scores(target, shadows, seen, labels)
    stats = shadows[..., 0] - shadows[..., 1]
    means = [[stats[seen[:, i] == flag, i].mean() for i in range(3)] for flag in (True, False)]
    spreads = []
    for flag, mean in zip((True, False), means):
        gaps = [
            (stats[s, i] - mean[i]) ** 2 for s in range(4) for i in range(3) if seen[s, i] == flag
        ]
        spreads.append(torch.stack(gaps).mean().sqrt())
    own = target[:, 0] - target[:, 1]
    for i in range(3):
        a, b = (
            torch.distributions.Normal(mean[i], spread).log_prob(own[i])
            for mean, spread in zip(means, spreads)
        )
        assert float(found[i]) == pytest.approx(float(a - b), rel=1e-9)
    with pytest.raises(DataError, match="all shadow models"):
        compute_lira_scores(target, shadows, torch.ones_like(seen), labels)


def test_every_candidate_is_in_half_of_the_models():
    seen = assign_shadow_halves(31, 6, derive_server_key(1))
    assert (seen.sum(0) == 3).all()
    for wrong in (0, 3, 1):
        with pytest.raises(DataError, match="even"):
            assign_shadow_halves(4, wrong, derive_server_key(1))


@pytest.mark.parametrize(("members", "others"), [([], [1.0]), ([1.0], []), ([float("nan")], [0.0])])
def test_what_cannot_be_told_apart(members, others):
    with pytest.raises(DataError):
        compare_scores("loss", "model", torch.tensor(members), torch.tensor(others))


def test_an_overfitted_run_is_caught_a_private_one_and_an_untrained_one_are_not(recorded):
    """Refuted if images that were learned by heart cannot be told, or fresh ones can."""
    changes = {
        "data": {"aviary": {"images": 120, "classes": 6}, "image_size": 16},
        "partition": {"kind": "iid", "sites": 2, "minimum": 2, "test_fraction": 0.5},
        "model": {"backbone": "small-cnn", "width": 16},
        "optimizer": {"lr": 0.03, "momentum": 0.9},  # at 0.1 rounding decides what is learned
    }
    learned = recorded(
        "overfitted", **changes,
        run={"rounds": 4, "batch_size": 10, "record_updates": True, "local_epochs": 30},
    )  # fmt: skip
    losses = [row["train_loss"] for row in learned.rows() if row.get("train_loss") is not None]
    assert losses[-1] < 0.5, "learned by heart"
    found = run_attacks(
        learned, ["membership"], options={"membership": {"shadows": 16, "epochs": 20}}
    )
    threshold, lira = found.members
    assert threshold.auc > 0.65 and lira.auc > 0.6
    assert threshold.members == threshold.others > 40  # of each class as many
    update = run_attacks(
        learned, ["membership"], Choice(sites=("site-00",)),
        options={"membership": {"shadows": 0}},
    ).members  # fmt: skip
    assert [one.target for one in update] == ["global model", "update of site-00, round 4"]
    assert update[1].auc > 0.65
    private = recorded(
        "private-members", **changes, release={"defenses": ["client-dp"]},
        run={"rounds": 4, "batch_size": 10, "record_updates": True, "local_epochs": 30},
    )  # fmt: skip
    (hidden,) = run_attacks(private, ["membership"], options={"membership": {"shadows": 0}}).members
    assert 0.35 < hidden.auc < 0.65  # epsilon 1 for whole sites
    fresh = recorded("fresh", **changes, run={"rounds": 0, "record_updates": True})
    (one,) = run_attacks(fresh, ["membership"], options={"membership": {"shadows": 0}}).members
    assert 0.3 < one.auc < 0.7  # 60 against 60: a standard error of 0.05 around 0.5


def test_a_run_without_test_images_has_no_outsiders(recorded):
    with pytest.raises(RunError, match="test_fraction"):
        run_attacks(recorded(), ["membership"])


def test_few_candidates_are_not_made_to_say_more_than_they_know():
    few = MembershipResult("loss", "global model", 10, 10, 0.62, 0.1)
    assert "cannot be told below 100 others" in few.sentence()
    assert "10.0 %" not in few.sentence() and "chance, 0.5, is in it" in few.sentence()
    many = MembershipResult("loss", "global model", 400, 400, 0.62, 0.1)
    assert "10.0 % of members found at 1 % false alarms" in many.sentence()
    assert "chance, 0.5" not in many.sentence()


def test_the_error_of_an_area_is_what_redrawing_gives():
    draw = np.random.default_rng(0)
    areas = []
    for _ in range(2000):
        members, others = draw.exponential(2.0, 30), draw.exponential(1.0, 40)
        areas.append(float((members[:, None] > others).mean()))
    wanted, found = np.std(areas), estimate_area_error(float(np.mean(areas)), 30, 40)
    assert found == pytest.approx(wanted, rel=0.15)
    assert 0 < estimate_area_error(1.0, 5, 5) < 0.5
