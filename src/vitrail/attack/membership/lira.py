"""Was this image among those a model was trained on? Thresholds on the loss, and LiRA.

The likelihood-ratio attack (Carlini et al. 2022, arXiv:2112.03570) trains shadow models on
random halves of the candidates and asks, for each, under which of two Gaussians the target's
confidence is likelier: that of models that saw the image, or that of models that did not.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.attack.budget import Tell, tell_nobody
from vitrail.attack.findings import MembershipResult
from vitrail.errors import DataError
from vitrail.metrics.ranking import auc
from vitrail.rng import Key

Logits = Tensor  # [N, classes]
Train = Callable[[Tensor, Key], Logits]  # which candidates to train on [N] bool -> logits of all


def tpr_at(members: Tensor, others: Tensor, fpr: float = 0.01) -> float:
    """The largest share of members above a threshold that at most `fpr` of the others pass."""
    _check(members, others)
    ranked = others.double().sort(descending=True).values
    allowed = int(fpr * len(ranked))
    return float((members.double() > ranked[allowed]).double().mean())


def balance_classes(members: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of as many members as others of each class, by their labels, the first of each.

    A site whose classes are not everybody's would be told by them, whatever its model remembers.
    """
    inside, outside = [], []
    for label in torch.unique(members).tolist():
        members_of_class, others_of_class = (
            torch.nonzero(x == label)[:, 0] for x in (members, others)
        )
        count = min(len(members_of_class), len(others_of_class))
        inside.append(members_of_class[:count])
        outside.append(others_of_class[:count])
    empty = torch.empty(0, dtype=torch.int64)
    return torch.cat([empty, *inside]), torch.cat([empty, *outside])


def _check(members: Tensor, others: Tensor) -> None:
    if not len(members) or not len(others):
        raise DataError(
            "membership needs images of both kinds",
            hint="Members are a site's training images; the others are test images of the run.",
        )
    if not bool(torch.isfinite(members).all() and torch.isfinite(others).all()):
        raise DataError("a model gives scores that are no numbers")


def compute_loss_scores(logits: Logits, labels: Tensor) -> Tensor:
    """Minus the loss (Yeom et al. 2018, arXiv:1709.01604): a low loss speaks for a member."""
    return -F.cross_entropy(logits.double(), labels, reduction="none")


def confidence(logits: Logits, labels: Tensor) -> Tensor:
    """log(p / (1 - p)) of the true class, LiRA's statistic; computed without p."""
    logits = logits.double()
    right = logits.gather(1, labels[:, None])[:, 0]
    rest = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    return right - rest


def compute_lira_scores(target: Logits, shadows: Tensor, seen: Tensor, labels: Tensor) -> Tensor:
    """The log-likelihood ratio of every candidate.

    `shadows` [S, N, classes] are logits of shadow models, `seen` [S, N] says who trained on
    what. Each image has its own two means; the spreads are shared, as few shadows allow.
    """
    stats = torch.stack([confidence(logits, labels) for logits in shadows])
    inside, outside = seen.double(), 1 - seen.double()
    if bool((inside.sum(0) < 1).any() or (outside.sum(0) < 1).any()):
        raise DataError("a candidate was in all shadow models or in none: train more of them")
    mean_in = (stats * inside).sum(0) / inside.sum(0)
    mean_out = (stats * outside).sum(0) / outside.sum(0)
    spread_in = _spread(stats - mean_in, inside)
    spread_out = _spread(stats - mean_out, outside)
    observed = confidence(target, labels)
    return _normal(observed, mean_in, spread_in) - _normal(observed, mean_out, spread_out)


def _spread(gaps: Tensor, weights: Tensor) -> Tensor:
    return ((gaps.square() * weights).sum() / weights.sum()).sqrt().clamp_min(1e-6)


def _normal(x: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / spread).square() - spread.log()


def assign_shadow_halves(count: int, shadows: int, key: Key) -> Tensor:
    """Who trains on what, [shadows, count]: every candidate is in exactly half of the models."""
    if shadows < 2 or shadows % 2:
        raise DataError(f"LiRA needs an even number of shadow models, 2 or more, not {shadows}")
    draw = key.torch()
    order = torch.stack([torch.randperm(shadows, generator=draw) for _ in range(count)], 1)
    return order < shadows // 2


def infer_membership(
    target: Logits,
    labels: Tensor,
    member: Tensor,
    name: str,
    train: Train | None = None,
    shadows: int = 8,
    key: Key | None = None,
    tell: Tell = tell_nobody,
) -> list[MembershipResult]:
    """Both attacks on one model: its logits on candidates, their labels, and who was a member.

    Without `train` there are no shadow models and no LiRA.
    """
    results = [
        score_membership("loss threshold", name, compute_loss_scores(target, labels), member)
    ]
    if train is None or key is None:
        return results
    seen = assign_shadow_halves(len(labels), shadows, key.at("halves"))
    logits = []
    for number, chosen in enumerate(seen):
        logits.append(train(chosen, key.at("shadow", number)))
        tell(number + 1, shadows, "shadow models")
    scores = compute_lira_scores(target, torch.stack(logits), seen, labels)
    return [*results, score_membership(f"LiRA, {shadows} shadow models", name, scores, member)]


def score_membership(attack: str, target: str, scores: Tensor, member: Tensor) -> MembershipResult:
    """How well scores tell the candidates that are members, [N] bool, from the others."""
    return compare_scores(attack, target, scores[member], scores[~member])


def compare_scores(attack: str, target: str, members: Tensor, others: Tensor) -> MembershipResult:
    """How well the scores of members stand out among those of others."""
    _check(members, others)
    area = auc(members.double().numpy(), others.double().numpy())
    tpr = tpr_at(members, others)
    return MembershipResult(attack, target, len(members), len(others), area, tpr)
