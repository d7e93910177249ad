"""Attacks through images and labels; the training itself is honest."""

from __future__ import annotations

from vitrail.poisoning.attack import POISONINGS, HostileView, Poisoning
from vitrail.release.update import Update


@POISONINGS.register("label-flip")
class LabelFlip(Poisoning):
    """Train on wrong labels: one class called another, or the order of all turned around."""

    paper = "Tolpegin et al. 2020, arXiv:2007.08432"
    flips = True


@POISONINGS.register("backdoor")
class Backdoor(Poisoning):
    """Train on images with a trigger that carry the target's label, and send a larger change."""

    paper = "Gu et al. 2017, arXiv:1708.06733; Bagdasaryan et al. 2020, arXiv:1807.00459"
    meaning = "how many times its change a hostile site sends"
    marks = True

    def craft(self, view: HostileView) -> list[Update]:
        """What was trained, `strength` times."""
        times = self.read_strength(view)
        return [view.dress(times * view.flatten(update), update) for update in view.trained]


@POISONINGS.register("model-replacement")
class ModelReplacement(Backdoor):
    """A backdoor scaled up until the mean of all sites is the hostile sites' own model."""

    paper = "Bagdasaryan et al. 2020, arXiv:1807.00459, eq. 3"
    meaning = "the share of the replacement: 1 replaces the model in a plain mean"

    def craft(self, view: HostileView) -> list[Update]:
        """The change times total weight over hostile weight."""
        hostile = sum(view.weights[update.site] for update in view.trained)
        times = self.read_strength(view) * sum(view.weights.values()) / max(hostile, 1e-300)
        return [view.dress(times * view.flatten(update), update) for update in view.trained]
