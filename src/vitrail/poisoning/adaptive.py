"""An attack that knows the rule: it tries its steps on the server's own aggregation first."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.sums import Aggregator
from vitrail.poisoning.attack import POISONINGS, HostileView
from vitrail.poisoning.update_poisoning import Colluding
from vitrail.release.update import Update

_STEPS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@POISONINGS.register("adaptive")
class Adaptive(Colluding):
    """Of many steps against the honest mean, the one that the server's rule lets through worst.

    Two directions are tried, minus the mean and minus the deviations, in several lengths; each is
    added up with the honest updates by the run's own rule, guard included, and the one whose
    result goes farthest backwards along the honest mean is sent.
    """

    paper = "Fang et al. 2020, arXiv:1911.11815; Shejwalkar and Houmansadr 2021, NDSS"
    meaning = "a factor on all lengths that are tried"

    def aim(self, view: HostileView, honest: Tensor) -> Tensor:
        """The change with the least progress."""
        mean = honest.mean(0)
        norm = float(torch.linalg.vector_norm(mean)) or 1.0
        spread = honest.std(0, correction=0)
        length = float(torch.linalg.vector_norm(spread)) or 1.0
        directions = (-mean / norm, -spread * mean.sign() / length)
        choices = [mean] + [
            self.read_strength(view) * step * norm * direction
            for direction in directions
            for step in _STEPS
        ]
        progress = [self._measure(view, choice, mean / norm) for choice in choices]
        return choices[min(range(len(choices)), key=progress.__getitem__)]

    def _guess_trusted(self, view: HostileView) -> dict[str, Tensor]:
        """What the server may have trained on images that nobody else has: the honest mean."""
        updates = view.honest or view.trained
        return {
            field.name: torch.stack([u.tensors[field.name].double() for u in updates]).mean(0)
            for field in view.fields
        }

    def _measure(self, view: HostileView, change: Tensor, forward: Tensor) -> float:
        """How far the model goes along the honest mean when this is sent."""
        total = Aggregator(
            view.schema, view.sent, view.aggregate, key=view.key, trusted=self._guess_trusted(view)
        )
        crafted = [view.dress(change, update) for update in view.trained]
        for update in (*view.honest, *crafted):
            expected = (update.site, update.round, update.stage)
            total.offer(update, view.weights[update.site], expected)
        sums = total.finish()
        if not sums.tensors:
            return float("inf")
        result = Update("", 0, "", {**view.sent, **sums.tensors})
        return float(view.flatten(result) @ forward)
