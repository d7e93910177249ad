"""Defenses that add noise to what leaves, at a scale of their own or at a stated energy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from vitrail.config.schema import Section
from vitrail.errors import ConfigError
from vitrail.local.session import Context, Metrics, Site
from vitrail.release.defenses.defense import Defense
from vitrail.release.defenses.noise_options import Noise
from vitrail.release.setting import MODEL, Setting
from vitrail.release.update import Update


class Additive(Defense):
    """Adds `noise` to some tensors; `release.energy` sets its length relative to the change.

    The change is what leaves minus what was received, over the floating tensors of the model.
    A change of zero has no energy to be relative to: with `release.energy` nothing is added.
    An update that is not finite leaves as NaN throughout, so that nothing can be read from it.
    """

    additive = True
    Options: ClassVar[type[Section]] = Noise

    def noise(self, update: Update, site: Site, ctx: Context) -> dict[str, Tensor]:
        """The noise by tensor, before the schedule and the energy; a subclass gives it."""
        raise NotImplementedError(f"{type(self).__name__} must define noise")

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """The update with the noise added, and how much of it there is."""
        if not update.tensors:  # the closing turn sends figures only
            return update, {}
        if not is_finite(update.tensors):
            return withhold_update(update), {"withheld": 1.0}
        noise = self.noise(update, site, ctx)
        change = compute_norm(compute_changes(update, site))
        scale = self.options.factor(ctx.round)
        if self.energy is not None:
            length = compute_norm(noise)
            scale *= self.energy * change / length if length else 0.0
        noised = {
            name: _add_noise(update.tensors[name], scale * value) for name, value in noise.items()
        }
        added = {name: noised[name] - update.tensors[name] for name in noised}
        return replace(update, tensors={**update.tensors, **noised}), compute_noise_metrics(
            added, change
        )

    def check(self, setting: Setting) -> None:
        """Refuse a run where it touches nothing, or where its noise could be taken off again."""
        self.options.check(self.name, setting)
        check_touches(self, setting)
        exact = [name for name in setting.beside if name.startswith("control/")]
        if exact:
            raise ConfigError(
                f"{setting.method} also sends {exact[0]!r}, computed from the model before "
                f"{self.name!r} noises it: whoever receives both can take the noise off",
                where="release.defenses",
                hint="Choose a method without control variates.",
            )


def _add_noise(tensor: Tensor, noise: Tensor) -> Tensor:
    """What gets no noise keeps its bits, the sign of a zero too."""
    return torch.where(noise == 0, tensor, tensor + noise)


def check_touches(defense: Defense, setting: Setting, why: str = "") -> None:
    """Refuse a defense that would change nothing in this run."""
    if not defense.touches(setting):
        reason = why or (
            "nothing that it could change leaves a site"
            if setting.leaves
            else f"{setting.method} sends no tensor"
        )
        raise ConfigError(
            f"{defense.name!r} would touch nothing: {reason}",
            where="release.defenses",
            hint=f'Take "{defense.name}" out, or train and share more of the model.',
        )


def compute_changes(update: Update, site: Site) -> dict[str, Tensor]:
    """What leaves minus what was received, by tensor: the floating tensors of the model."""
    received = site.model.layout.views(site.received.detach().cpu())
    return {
        name: tensor - received[name.removeprefix(MODEL)]
        for name, tensor in update.tensors.items()
        if name.startswith(MODEL) and tensor.is_floating_point()
    }


def compute_norm(tensors: Mapping[str, Tensor]) -> float:
    """The L2 norm of all of them together, in float64."""
    parts = [float(torch.linalg.vector_norm(t, dtype=torch.float64)) for t in tensors.values()]
    return math.hypot(*parts)


def is_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether no tensor holds a NaN or an infinity."""
    return all(bool(torch.isfinite(t).all()) for t in tensors.values() if t.is_floating_point())


def withhold_update(update: Update) -> Update:
    """The update with nothing in it but NaN and zeros; the server's guard refuses it."""
    nothing = {
        name: torch.full_like(t, float("nan")) if t.is_floating_point() else torch.zeros_like(t)
        for name, t in update.tensors.items()
    }
    return replace(update, tensors=nothing)


def compute_noise_metrics(added: Mapping[str, Tensor], change: float) -> Metrics:
    """What the ledger says of noise: its length, the change's, their ratio, numbers touched."""
    metrics = {
        "noise_l2": compute_norm(added),
        "update_l2": change,
        "touched": float(sum(int((t != 0).sum()) for t in added.values())),
    }
    return metrics | ({"energy": metrics["noise_l2"] / change} if change else {})
