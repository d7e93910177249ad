"""Was this image among those a model was trained on? Thresholds on the loss, and LiRA.

The likelihood-ratio attack (Carlini et al. 2022, arXiv:2112.03570) trains shadow models on
random halves of the candidates and asks, for each, under which of two Gaussians the target's
confidence is likelier: that of models that saw the image, or that of models that did not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitrail.attack.budget import Tell, quiet
from vitrail.errors import DataError
from vitrail.rng import Key

Logits = Tensor  # [N, classes]
Train = Callable[[Tensor, Key], Logits]  # which candidates to train on [N] bool -> logits of all


@dataclass(frozen=True)
class Membership:
    """How well members are told from others: area under the curve, and what is certain.

    `tpr` is the share of members found while at most `fpr` of the others are accused.
    """

    name: str
    target: str
    members: int
    others: int
    auc: float
    tpr: float
    fpr: float = 0.01

    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"{self.target}, {self.name}: AUC {self.auc:.3f}, {100 * self.tpr:.1f} % of members "
            f"found at {100 * self.fpr:.0f} % false alarms ({self.members} members, {self.others} "
            "others)"
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


def auc(members: Tensor, others: Tensor) -> float:
    """The chance that a member scores higher than another image; ties count half."""
    _check(members, others)
    a, b = members.double().numpy(), np.sort(others.double().numpy())
    below = np.searchsorted(b, a, "left") + np.searchsorted(b, a, "right")
    return float(below.mean() / (2 * len(b)))


def tpr_at(members: Tensor, others: Tensor, fpr: float = 0.01) -> float:
    """The largest share of members above a threshold that at most `fpr` of the others pass."""
    _check(members, others)
    ranked = others.double().sort(descending=True).values
    allowed = int(fpr * len(ranked))
    return float((members.double() > ranked[allowed]).double().mean())


def alike(members: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of as many members as others of each class, by their labels, the first of each.

    A site whose classes are not everybody's would be told by them, whatever its model remembers.
    """
    mine, theirs = [], []
    for label in torch.unique(members).tolist():
        own, rest = (torch.nonzero(x == label)[:, 0] for x in (members, others))
        count = min(len(own), len(rest))
        mine.append(own[:count])
        theirs.append(rest[:count])
    empty = torch.empty(0, dtype=torch.int64)
    return torch.cat([empty, *mine]), torch.cat([empty, *theirs])


def _check(members: Tensor, others: Tensor) -> None:
    if not len(members) or not len(others):
        raise DataError(
            "membership needs images of both kinds",
            hint="Members are a site's training images; the others are test images of the run.",
        )
    if not bool(torch.isfinite(members).all() and torch.isfinite(others).all()):
        raise DataError("a model gives scores that are no numbers")


def loss_scores(logits: Logits, labels: Tensor) -> Tensor:
    """Minus the loss (Yeom et al. 2018, arXiv:1709.01604): a low loss speaks for a member."""
    return -F.cross_entropy(logits.double(), labels, reduction="none")


def confidence(logits: Logits, labels: Tensor) -> Tensor:
    """log(p / (1 - p)) of the true class, LiRA's statistic; computed without p."""
    logits = logits.double()
    own = logits.gather(1, labels[:, None])[:, 0]
    rest = logits.scatter(1, labels[:, None], -torch.inf).logsumexp(1)
    return own - rest


def lira_scores(target: Logits, shadows: Tensor, seen: Tensor, labels: Tensor) -> Tensor:
    """The log-likelihood ratio of every candidate.

    `shadows` [S, N, classes] are logits of shadow models, `seen` [S, N] says who trained on
    what. Each image has its own two means; the spreads are shared, as few shadows allow.
    """
    stats = torch.stack([confidence(each, labels) for each in shadows])
    inside, outside = seen.double(), 1 - seen.double()
    if bool((inside.sum(0) < 1).any() or (outside.sum(0) < 1).any()):
        raise DataError("a candidate was in all shadow models or in none: train more of them")
    mean_in = (stats * inside).sum(0) / inside.sum(0)
    mean_out = (stats * outside).sum(0) / outside.sum(0)
    spread_in = _spread(stats - mean_in, inside)
    spread_out = _spread(stats - mean_out, outside)
    own = confidence(target, labels)
    return _normal(own, mean_in, spread_in) - _normal(own, mean_out, spread_out)


def _spread(gaps: Tensor, weights: Tensor) -> Tensor:
    return ((gaps.square() * weights).sum() / weights.sum()).sqrt().clamp_min(1e-6)


def _normal(x: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    return -0.5 * ((x - mean) / spread).square() - spread.log()


def halves(count: int, shadows: int, key: Key) -> Tensor:
    """Who trains on what, [shadows, count]: every candidate is in exactly half of the models."""
    if shadows < 2 or shadows % 2:
        raise DataError(f"LiRA needs an even number of shadow models, 2 or more, not {shadows}")
    draw = key.torch()
    order = torch.stack([torch.randperm(shadows, generator=draw) for _ in range(count)], 1)
    return order < shadows // 2


def membership(
    target: Logits,
    labels: Tensor,
    member: Tensor,
    name: str,
    train: Train | None = None,
    shadows: int = 8,
    key: Key | None = None,
    tell: Tell = quiet,
) -> list[Membership]:
    """Both attacks on one model: its logits on candidates, their labels, and who was a member.

    Without `train` there are no shadow models and no LiRA.
    """
    found = [judged("loss threshold", name, loss_scores(target, labels), member)]
    if train is None or key is None:
        return found
    seen = halves(len(labels), shadows, key.at("halves"))
    made = []
    for number, own in enumerate(seen):
        made.append(train(own, key.at("shadow", number)))
        tell(number + 1, shadows, "shadow models")
    scores = lira_scores(target, torch.stack(made), seen, labels)
    return [*found, judged(f"LiRA, {shadows} shadow models", name, scores, member)]


def judged(attack: str, target: str, scores: Tensor, member: Tensor) -> Membership:
    """How well scores tell the candidates that are members, [N] bool, from the others."""
    inside, outside = scores[member], scores[~member]
    return Membership(
        attack,
        target,
        len(inside),
        len(outside),
        auc(inside, outside),
        tpr_at(inside, outside),
    )
