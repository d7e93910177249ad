"""What mechanisms with a proof share: their settings, their noise, and what voids the proof."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from vitrail.config.schema import Count, Positive, Section
from vitrail.errors import ConfigError
from vitrail.local.session import Context, Site
from vitrail.release.accounting.accountant import (
    AccountantName,
    Event,
    calibrate_noise,
    compute_epsilon,
)
from vitrail.release.accounting.promise import SERVER, Promise, check_delta
from vitrail.release.defenses.defense import Defense
from vitrail.release.defenses.noise_options import Noise
from vitrail.release.setting import Setting


class Budget(Noise):
    """Keys that every mechanism with a proof has: a target for the whole run, or a noise."""

    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The chance of more than epsilon; it must be below 1 / images of a site."""
    noise: Positive | None = None
    """Noise over sensitivity, instead of an epsilon to reach."""
    turns: Count | None = None
    """How many rounds of a site the budget is for; left out: all. A site whose budget is used up
    sends back what it received."""
    accountant: Literal["pld", "rdp"] = "pld"
    """Privacy loss distributions, tight, or Renyi divergences."""


class PrivateDefense(Defense):
    """A mechanism with a proof. A subclass says what a round costs and what neighbors are."""

    formal = True
    unit: ClassVar[str] = "one image"
    Options: ClassVar[type[Section]] = Budget

    def cost(self, count: int, round_: int) -> Event:
        """What a round costs a site of `count` images, with the noise of that round as a factor."""
        del count
        return Event(self.options.factor(round_))

    def protects(self) -> str:
        """What neighbors differ in."""
        return self.unit

    def against(self) -> str:
        """Who may look without learning more than epsilon allows."""
        return SERVER

    def multiplier(self, site: str, count: int) -> float:
        """Noise over sensitivity, before the schedule, that keeps a site within its target."""
        options = self.options
        if options.noise is not None:
            return float(options.noise)
        target = options.epsilon_at(site)
        events = tuple(self.plan_events(count))
        return _calibrate_cached(target, options.delta, events, self.accountant)

    @property
    def accountant(self) -> AccountantName:
        """What adds the costs up."""
        how: AccountantName = self.options.accountant
        return how

    def plan_events(self, count: int) -> list[Event]:
        """The costs of the rounds that the budget is for: the dearest ones, if not for all."""
        rounds = range(1, self.setting.rounds + 1)
        events = [self.cost(count, round_) for round_ in rounds]
        if self.options.turns is None or self.options.turns >= len(events):
            return events
        dear = sorted(events, key=lambda e: (e.noise / math.sqrt(max(1, e.times)), -e.rate))
        return dear[: self.options.turns]

    def plan_noise(self, site: str, count: int) -> list[Event]:
        """The costs of a whole run with the noise that it has at a site of `count` images; where
        the noise is given no target ends the run before its last round."""
        factor = self.multiplier(site, count)
        rounds = range(1, self.setting.rounds + 1)
        given = self.options.noise is not None
        events = [self.cost(count, r) for r in rounds] if given else self.plan_events(count)
        return [replace(event, noise=event.noise * factor) for event in events]

    def noise_at(self, site: Site, ctx: Context) -> float:
        """Noise over sensitivity in this round."""
        count = self.images(site)
        self._check_delta({site.name: count})
        return self.multiplier(site.name, count) * float(self.options.factor(ctx.round))

    def forecast(self, site: str, count: int) -> dict[str, Any]:
        """What the ledger says before the first round."""
        options = self.options
        forecast: dict[str, Any] = {
            "mechanism": self.name,
            "unit": self.protects(),
            "against": self.against(),
            "delta": options.delta,
            "noise": self.multiplier(site, count),
        }
        return forecast if options.noise else {**forecast, "epsilon": options.epsilon_at(site)}

    def compute_planned_epsilon(self, site: str, count: int) -> float:
        """What the whole run may cost a site of `count` images: its target, or, where the noise
        is given instead, what all rounds together come to."""
        options = self.options
        if options.noise is None:
            return float(options.epsilon_at(site))
        events = [self.cost(count, round_) for round_ in range(1, self.setting.rounds + 1)]
        scaled = [replace(event, noise=event.noise * options.noise) for event in events]
        return compute_epsilon(scaled, options.delta, self.accountant)

    def make_promise(self, site: Site, events: Iterable[Event], **more: Any) -> Promise:
        """The promise of one release that cost some events."""
        options = self.options
        return Promise(
            mechanism=self.name,
            unit=self.protects(),
            against=self.against(),
            delta=options.delta,
            target=math.inf if options.noise is not None else options.epsilon_at(site.name),
            events=tuple(events),
            how=self.accountant,
            **more,
        )

    def check(self, setting: Setting) -> None:
        """Refuse what would void the proof for the update as a whole."""
        self.options.check(self.name, setting)
        self._check_delta(setting.examples)
        if any(self.options.factor(r) <= 0 for r in range(1, setting.rounds + 1)):
            raise ConfigError(
                "a round without noise has no guarantee",
                where=f"release.{self.name}.schedule",
                hint="Every factor must be above 0.",
            )
        if setting.config.aggregate.weights == "examples":
            raise ConfigError(
                f"weights by images tell the server how many each site has, beside {self.name!r}",
                where="aggregate.weights",
                hint='Use "uniform".',
            )
        if setting.needs == "all" and getattr(self.options, "where", "site") == "sum":
            raise ConfigError(
                f"{setting.method} works on every site's own model, and noise in the sum covers "
                "the sum only",
                where=f"release.{self.name}.where",
                hint='Set where = "site", or choose another method.',
            )
        if setting.told:
            raise ConfigError(
                f"{setting.method} makes every site tell {', '.join(setting.told)}, exact numbers "
                f"that {self.name!r} does not cover",
                where="release.defenses",
                hint="Choose another method or option, or another defense.",
            )

    def check_base(self, setting: Setting) -> None:
        """Refuse tensors that were learned at home before they travel.

        A change is clipped around what was received; for these that would be the site's own.
        """
        home: set[str] = set()
        for stage in setting.stages:
            kept = {name for name, answer in stage.answers.items() if answer == "home"}
            late = [n for n, a in stage.answers.items() if n in home - kept and a != "frozen"]
            if late:
                raise ConfigError(
                    f"{late[0]!r} is learned at home before stage {stage.name!r} shares it, so "
                    f"{self.name!r} has no public value to measure its change from",
                    where="release.defenses",
                    hint='Share the same parts in all rounds, or use "dp-sgd".',
                )
            home |= kept

    def _check_delta(self, examples: Mapping[str, int]) -> None:
        check_delta(self.options.delta, examples, f"release.{self.name}.delta")


@lru_cache(maxsize=1024)
def _calibrate_cached(
    target: float, delta: float, shape: tuple[Event, ...], how: AccountantName
) -> float:
    return calibrate_noise(target, delta, shape, how)
