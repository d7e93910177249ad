"""Defenses: what stands between a trained model and the wire. They compose in order."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import ValidationError

from vitrail.config.added_keys import drop_old_values
from vitrail.config.load import to_config_error
from vitrail.config.schema import Config, Section
from vitrail.data.patients import PatientCount
from vitrail.errors import ConfigError
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.registry import Registry
from vitrail.release.accounting.promise import Promise
from vitrail.release.setting import Setting
from vitrail.release.update import Update
from vitrail.rng import Key


class Defense:
    """One mechanism at the door.

    `formal` ones carry a proof; `uses_data` ones look at images; `additive` ones add noise that
    `release.energy` can scale; `acts` says whether it works at the door or in every step of
    training. `Options` are its keys in `[release.<name>]`; an unknown one is an error.
    """

    formal: ClassVar[bool] = False
    uses_data: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    acts: ClassVar[Literal["door", "training"]] = "door"
    setting: Setting  # of the run it belongs to
    reckoned: int | None = None  # a rehearsal of few images has the noise of a site of so many
    Options: ClassVar[type[Section]] = Section

    def __init__(
        self,
        name: str,
        options: Mapping[str, Any],
        source: str = "config",
        energy: float | None = None,
    ) -> None:
        self.name = name
        self.energy = energy
        try:
            self.options: Any = self.Options.model_validate_json(
                json.dumps(dict(options)), strict=True
            )
        except ValidationError as err:
            raise to_config_error(err, source, self.Options, f"release.{name}") from None

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """The tensors of the update that it would change, by name; all of them by default."""
        return setting.leaves

    def check(self, setting: Setting) -> None:
        """Refuse a run in which it could do nothing, or not what it promises."""
        del setting

    def check_patients(self, site: str, patients: PatientCount | None) -> None:
        """Refuse a site that does not know whose images it has, where a patient is protected."""
        del site, patients

    def parameters(self) -> dict[str, Any]:
        """Its settings, for the ledger; what came later is in it where it is not as before."""
        options = self.options.model_dump(mode="json", exclude_none=True)
        settings = drop_old_values(self.Options, options)
        scaled = self.energy is not None and self.additive
        return {**settings, "energy": self.energy} if scaled else settings

    def key(self, site: Site) -> Key:
        """The root of its draws in this turn: the site's own secret, which the server has not."""
        return site.noise.at("release", self.name)

    def images(self, site: Site) -> int:
        """The number of a site's images that its scale of noise goes by."""
        return len(site.rows.train) if self.reckoned is None else self.reckoned

    def train(self, site: Site, ctx: Context) -> Terms:
        """Claims on local training, for mechanisms that act on every step."""
        del site, ctx
        return Terms()

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """What leaves instead of `update`, and figures about the difference.

        The site's model is the trained one, `site.received` the one it began with.
        """
        del site, ctx
        return update, {}

    def promise(self, update: Update, site: Site, ctx: Context) -> Promise | None:
        """What a formal mechanism guarantees for this release; None if it guarantees nothing."""
        del update, site, ctx
        return None

    def forecast(self, site: str, count: int) -> dict[str, Any]:
        """What a formal mechanism will do to a site of `count` images, before the first round."""
        del site, count
        return {}

    def compute_planned_epsilon(self, site: str, count: int) -> float:
        """What the whole run may cost a site of `count` images; infinite without a proof."""
        del site, count
        return math.inf

    @property
    def noises_sums(self) -> bool:
        """Whether the server adds noise to the sums."""
        return False

    def deviation(self, rule: str, site_count: int, ctx: Context) -> float | None:
        """The noise that the server adds to a rule's sum over sites; None for no noise."""
        del rule, site_count, ctx
        return None

    def shared_deviation(self, rule: str, ctx: Context) -> float | None:
        """The noise of a rule's sum to which every site adds its share; None for none."""
        del rule, ctx
        return None

    def shared_limit(self, rule: str) -> float | None:
        """The largest norm of what a site adds to such a sum, where the rule adds up what is 0 for
        a site that changed nothing; None where the defense has bounded it before."""
        del rule
        return None


DEFENSES: Registry[type[Defense]] = Registry("defense", "release.defenses")


@DEFENSES.register("none")
class NoDefense(Defense):
    """The update leaves as it is."""

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """Nothing."""
        del setting
        return ()


def make_defenses(setting: Setting, source: str = "config") -> tuple[Defense, ...]:
    """The defenses of a run in order, checked one by one and together."""
    release = setting.config.release
    for name in release.options:
        if name not in release.defenses:
            raise ConfigError(
                "these are options of a defense that is not in release.defenses",
                where=f"{source}: release.{name}",
                hint=f'Add "{name}" to release.defenses, or take the section out.',
            )
    defenses = tuple(make_defense(setting.config, name, source) for name in release.defenses)
    _check_together(defenses, release.energy)
    for defense in defenses:
        defense.setting = setting
        defense.check(setting)
    return defenses


def make_defense(config: Config, name: str, source: str = "config") -> Defense:
    """One defense of a configuration, its options checked."""
    kind, table = DEFENSES[name], config.release.options.get(name, {})
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"must be a table of options, not {table!r}",
            where=f"{source}: release.{name}",
            hint=f"Write [release.{name}] and its keys below.",
        )
    return kind(name, config.read_options(kind.Options, table), source, config.release.energy)


def _check_together(defenses: tuple[Defense, ...], energy: float | None) -> None:
    names = [defense.name for defense in defenses]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"{twice[0]!r} stands there twice and would draw the same noise twice",
            where="release.defenses",
        )
    for at, defense in enumerate(defenses):
        before = [d for d in defenses[:at] if d.formal]
        before += [d for d in defenses if d.formal and d.acts == "training" and d not in before]
        if defense.uses_data and before and defense not in before:
            raise ConfigError(
                f"{defense.name!r} looks at images again after {before[0].name!r}, "
                "whose guarantee would be void",
                where="release.defenses",
                hint=f'Put "{defense.name}" first, or leave one of them out.'
                if before[0].acts == "door"
                else "Leave one of them out.",
            )
    if energy is not None and not any(d.additive for d in defenses):
        raise ConfigError(
            "no defense of this run adds noise that could be scaled",
            where="release.energy",
            hint="Leave it out, or add one of: "
            + ", ".join(name for name in DEFENSES if DEFENSES[name].additive),
        )
