"""Privacy of a whole site: its update is clipped and noised, whatever was done to make it.

McMahan et al. 2018, arXiv:1710.06963; noise at the site: Geyer et al. 2017, arXiv:1712.07557.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from vitrail.config.added_keys import added
from vitrail.config.schema import Positive
from vitrail.errors import ConfigError
from vitrail.grid_noise import add_noise
from vitrail.local.canaries import draw_direction, is_canary_site
from vitrail.local.session import Context, Metrics, Site
from vitrail.release.accounting.accountant import AccountantName, Event
from vitrail.release.accounting.discrete_sum import compute_distributed_noise
from vitrail.release.accounting.promise import DISTRIBUTED, OUTSIDE, SERVER, Promise
from vitrail.release.defenses.additive import (
    check_touches,
    compute_noise_metrics,
    compute_norm,
    is_finite,
)
from vitrail.release.defenses.defense import DEFENSES
from vitrail.release.defenses.private import Budget, PrivateDefense
from vitrail.release.setting import MODEL, Setting
from vitrail.release.update import Update

VARIANCE = "running_var"
GRID_STEP = 2.0**-32  # of the numbers in a secure sum
LEAST_CANARIES = 10
_ROUNDING = 2.0**-10  # of a clip: more than float32 makes a change longer in the guard's eyes
SUMMABLE_RULES = ("mean", "uniform")  # rules under which a site moves the sum by its change


class ClientDpOptions(Budget):
    """`[release.client-dp]`."""

    clip: Positive = 1.0
    """The largest norm of a site's change; what is beyond is cut."""
    where: Literal["site", "sum", "distributed"] = "site"
    """Noise at the site, against the server; in the sum, by a server that is trusted; or
    distributed: each site adds its share inside a secure sum, and nobody is trusted with it."""
    colluding: NonNegativeInt = added(0)
    """How many sites of a sum may tell the server their noise, where it is distributed."""
    canary_sites: Annotated[float, Field(ge=0, le=1)] = added(0.0)
    """The share of sites, each by a coin, that send a random direction as long as the clip instead
    of what they trained: canaries of an audit, at least 10. They cost accuracy. `vitrail attack
    RUN --attacks canary` estimates an epsilon from them."""


@DEFENSES.register("client-dp")
class ClientDp(PrivateDefense):
    """Clips all that leaves as one vector and adds Gaussian noise to each number.

    Neighbors differ in a site that takes part or sends back what it received. The server knows
    who takes part, so sampling of sites amplifies nothing.
    """

    unit = "a whole site"
    Options = ClientDpOptions

    def against(self) -> str:
        """The server, unless the noise is its own."""
        if self.options.where == "distributed":
            return DISTRIBUTED.format(colluding=self.options.colluding)
        return SERVER if self.options.where == "site" else OUTSIDE

    @property
    def accountant(self) -> AccountantName:
        """Sums of discrete Gaussians are bounded in Renyi divergence."""
        return "rdp" if self.options.where == "distributed" else super().accountant

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """The clipped change on top of what was received, with noise."""
        if not update.tensors:
            return update, {}
        base = get_received(update, site)
        change = {name: t.double() - base[name] for name, t in update.tensors.items()}
        if self._is_canary(site.name):
            shapes = {name: tuple(t.shape) for name, t in change.items()}
            direction = draw_direction(self.setting.config.run.seed, site.name, shapes)
            change = {name: self.options.clip * t for name, t in direction.items()}
        if not is_finite(change):  # that it broke must not show
            change = {name: torch.zeros_like(t) for name, t in change.items()}
        before = compute_norm(change)
        scale = min(1.0, self.options.clip / before) if before else 1.0
        clipped = {name: scale * t for name, t in change.items()}
        noise: dict[str, Tensor] = {}
        if self.options.where == "site":
            deviation = self.options.clip * self.noise_at(site, ctx)
            source = self.key(site).stream()
            noised = {n: add_noise(t, deviation, source, base[n]) for n, t in clipped.items()}
            noise = {name: t - base[name] - clipped[name] for name, t in noised.items()}
            sent = {n: clamp_variance(n, t).to(update.tensors[n].dtype) for n, t in noised.items()}
        else:
            sent = round_within(clipped, base, update.tensors, self.options.clip)
        more = {"clipped": float(scale < 1), "change_l2": before}
        return replace(update, tensors=sent), {
            **compute_noise_metrics(noise, min(before, self.options.clip)),
            **more,
        }

    def _is_canary(self, site: str) -> bool:
        """Whether a site of a simulation is a canary of an audit."""
        share = self.options.canary_sites
        return bool(share) and is_canary_site(self.setting.config.run.seed, site, share)

    def promise(self, update: Update, site: Site, ctx: Context) -> Promise | None:
        """One Gaussian release of sensitivity `clip`, over everything that leaves."""
        if not update.tensors:
            return None
        noise = self.noise_at(site, ctx)
        if self.options.where == "distributed":
            numbers = sum(t.numel() for t in update.tensors.values())
            noise = compute_distributed_noise(noise, numbers)
        return self.make_promise(site, (Event(noise),))

    def shared_deviation(self, rule: str, ctx: Context) -> float | None:
        """The noise of each number of a secure sum. Rounding to its grid of 2^-32 moves each number
        of two neighbors by at most a step, which adds to the sensitivity."""
        del rule
        if self.options.where != "distributed":
            return None
        stage = next(s for s in self.setting.stages if s.first <= ctx.round <= s.last)
        numbers = sum(math.prod(field.shape) for field in stage.schema.up)
        sensitivity = self.options.clip + GRID_STEP * math.sqrt(numbers)
        return float(sensitivity * self.multiplier("", 0) * self.options.factor(ctx.round))

    @property
    def noises_sums(self) -> bool:
        """Where the noise is the server's."""
        return bool(self.options.where == "sum")

    def deviation(self, rule: str, site_count: int, ctx: Context) -> float | None:
        """The noise of each number of a sum over sites, where it is the server's to add."""
        del rule
        if self.options.where != "sum":
            return None
        factor = float(self.options.factor(ctx.round))
        return float(self.options.clip * self.multiplier("", site_count) * factor)

    def check(self, setting: Setting) -> None:
        """Refuse whole numbers, and in the sum rules whose result one site can move further."""
        super().check(setting)
        check_touches(self, setting)
        self.check_base(setting)
        self._check_canaries(setting)
        fields = [field for stage in setting.stages for field in stage.schema.up]
        whole = [field for field in fields if not field.dtype.is_floating_point]
        if whole:
            raise ConfigError(
                f"{whole[0].name!r} is not floating point: it cannot be clipped or noised",
                where="release.defenses",
                hint="Choose another method.",
            )
        if self.options.where == "site":
            return
        if self.options.where == "distributed":
            check_shared_noise(self.name, self.options.clip, setting)
        if self.options.sites:
            raise ConfigError(
                "noise in the sum is one for all sites",
                where=f"release.{self.name}.sites",
                hint='Leave it out, or set where = "site".',
            )
        other = [field for field in fields if field.rule not in SUMMABLE_RULES]
        if other:
            raise ConfigError(
                f"{other[0].name!r} is added up by {other[0].rule!r}, in which a clipped change "
                "can still move the result by more than its clip",
                where=f"release.{self.name}.where",
                hint='Set where = "site", or aggregate.rule = "mean".',
            )

    def _check_canaries(self, setting: Setting) -> None:
        """Refuse an audit of so few canaries that its figure would say nothing."""
        canaries = sum(self._is_canary(site) for site in setting.examples)
        if self.options.canary_sites and setting.examples and canaries < LEAST_CANARIES:
            raise ConfigError(
                f"an estimate needs at least {LEAST_CANARIES} canary sites, and the coins make it "
                f"{canaries} of {len(setting.examples)}",
                where=f"release.{self.name}.canary_sites",
                hint="Raise it, or let the simulation have more sites.",
            )


def check_shared_noise(name: str, clip: float, setting: Setting) -> None:
    """Refuse a share of noise that no secure sum makes whole, and a guard that would look at a
    clipped change before the noise is on it: that it refuses, and why, leaves without any."""
    if not setting.config.release.secure_sum:
        raise ConfigError(
            "noise that is distributed over sites protects none of them alone: without a "
            "secure sum the server would see each update with a share of it",
            where=f"release.{name}.where",
            hint='Set release.secure_sum = true, or where = "site".',
        )
    fields = [field for stage in setting.stages for field in stage.schema.up]
    least = min([setting.config.aggregate.max_norm, *(f.bound for f in fields if f.bound)])
    if clip * (1 + _ROUNDING) > least:
        raise ConfigError(
            f"each site's guard would refuse some changes up to clip = {clip:g} before they have "
            f"noise, since {least:g} is the largest that surely passes: a refusal would tell how "
            "long a change is",
            where="aggregate.max_norm",
            hint=f"Set it to more than release.{name}.clip.",
        )


def get_received(update: Update, site: Site) -> dict[str, Tensor]:
    """What an update is measured from, in float64: the model as it came; beside it, zero."""
    model = site.model.layout.views(site.received.detach().cpu())
    return {
        name: model[name.removeprefix(MODEL)].double()
        if name.startswith(MODEL)
        else torch.zeros_like(tensor, dtype=torch.float64)
        for name, tensor in update.tensors.items()
    }


def round_within(
    change: Mapping[str, Tensor],
    base: Mapping[str, Tensor],
    like: Mapping[str, Tensor],
    clip: float,
) -> dict[str, Tensor]:
    """`base` + `change` in the types of `like`; no rounding takes it further than `clip`. Where
    that cannot be, as around a variance below 0 or no number, it is `base` as it came."""
    scale = 1.0
    while scale:
        exact = {n: clamp_variance(n, base[n] + scale * t) for n, t in change.items()}
        sent = {n: t.to(like[n].dtype) for n, t in exact.items()}
        norm = compute_norm({n: t.double() - base[n] for n, t in sent.items()})
        if norm <= clip:
            return sent
        short = scale * (clip / norm) * (1 - 2.0**-20)
        scale = short if scale >= 0.5 and math.isfinite(norm) else 0.0
    return {n: base[n].to(like[n].dtype) for n in change}


def clamp_variance(name: str, tensor: Tensor) -> Tensor:
    """A variance that noise made negative is 0: a network cannot take its root."""
    return tensor.clamp_min(0.0) if name.endswith(VARIANCE) else tensor
