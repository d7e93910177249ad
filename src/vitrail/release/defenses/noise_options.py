"""Options that the noise mechanisms share: a budget per site, and a schedule over rounds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vitrail.config.schema import NonNegative, Positive, Section
from vitrail.errors import ConfigError, suggest_name
from vitrail.release.setting import Setting


class Noise(Section):
    """Keys of `[release.<name>]` for a mechanism that adds noise; a subclass adds its own.

    `schedule` multiplies the noise's standard deviation: the same in every round, a factor for
    each round, or `decay` to the power of the rounds before.
    """

    epsilon: Positive = 1.0
    """The budget; what it stands for, and whether it is a guarantee, is the mechanism's."""
    sites: dict[str, Positive] = {}
    """Another epsilon for some sites, by name."""
    schedule: Literal["constant", "decay"] | tuple[NonNegative, ...] = "constant"
    """constant, decay, or one factor of the noise for each round."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.99
    """The factor from one round to the next, for decay."""

    def epsilon_at(self, site: str) -> float:
        """The epsilon of a site."""
        return self.sites.get(site, self.epsilon)

    def factor(self, round_: int) -> float:
        """What the noise's standard deviation is multiplied by in a round, counted from 1."""
        if self.schedule == "constant":
            return 1.0
        if self.schedule == "decay":
            return float(self.decay ** (round_ - 1))
        return float(self.schedule[round_ - 1])

    def check(self, name: str, setting: Setting) -> None:
        """Refuse a schedule that ends before the run, and sites that nobody knows."""
        if not isinstance(self.schedule, str) and len(self.schedule) < setting.rounds:
            raise ConfigError(
                f"the schedule has {len(self.schedule)} factors for {setting.rounds} rounds",
                where=f"release.{name}.schedule",
                hint='Give one for each round, or "constant" or "decay".',
            )
        unknown = [site for site in self.sites if site not in setting.examples]
        if unknown and setting.examples:
            raise ConfigError(
                f"there is no site {unknown[0]!r}",
                where=f"release.{name}.sites",
                hint=suggest_name(unknown[0], setting.examples),
            )
