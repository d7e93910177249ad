"""DP-SGD at a site: every step is private, so whatever leaves is.

Abadi et al. 2016, arXiv:1607.00133.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from vitrail.config.added_keys import added
from vitrail.config.schema import Positive
from vitrail.data.patients import PatientCount
from vitrail.errors import ConfigError
from vitrail.local.canaries import Canaries, find_places_key, toss_coins
from vitrail.local.per_example import PerExampleGradient
from vitrail.local.per_patient import PatientGradient, PatientSampler, count_units
from vitrail.local.poisson import PoissonSampler, compute_sampling_rate, count_steps
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.release.accounting.accountant import Event
from vitrail.release.accounting.promise import Promise
from vitrail.release.defenses.additive import (
    check_touches,
    compute_changes,
    compute_norm,
    is_finite,
    withhold_update,
)
from vitrail.release.defenses.defense import DEFENSES
from vitrail.release.defenses.private import Budget, PrivateDefense
from vitrail.release.setting import MODEL, Setting
from vitrail.release.update import Update

CONTROL = "control/"  # functions of the released model and of what was received


class DpSgdOptions(Budget):
    """`[release.dp-sgd]`."""

    clip: Positive = 1.0
    """The largest norm of one image's gradient, or of one patient's."""
    unit: Literal["image", "patient"] = added("image")
    """What is protected and clipped: one image, or one patient with all images of this site. A
    patient needs `data.patient`."""

    canaries: Annotated[int, Field(ge=0)] = added(0)
    """Made-up examples for a privacy audit, each there by a coin: 0, or 1000 and more. They cost
    accuracy. `vitrail attack RUN --attacks canary` guesses their coins."""
    guesses: Annotated[int, Field(ge=2)] = added(200)
    """How many coins are guessed, fixed before the run."""


@DEFENSES.register("dp-sgd")
class DpSgd(PrivateDefense):
    """Clips each image's gradient, adds noise in every step, and draws Poisson batches.

    Neighbors differ in one image that is there or blank, or in one patient whose images are; how
    many images and patients a site has is public.
    Batches amplify because their coins come from the site's own secret; which sites take part in
    a round is known to the server and amplifies nothing.
    """

    acts = "training"
    unit = "one image"
    Options = DpSgdOptions

    def protects(self) -> str:
        """One image, or one patient."""
        return "one patient" if self._by_patient else self.unit

    @property
    def _by_patient(self) -> bool:
        return bool(self.options.unit == "patient")

    def cost(self, count: int, round_: int) -> Event:
        """The steps of all epochs of a round on Poisson batches."""
        size = self.setting.config.run.batch_size
        epochs = self.setting.stage_at(round_).epochs
        factor = float(self.options.factor(round_))
        return Event(factor, compute_sampling_rate(count, size), epochs * count_steps(count, size))

    def train(self, site: Site, ctx: Context) -> Terms:
        """Claim the gradient and the batches."""
        if self._by_patient:
            return self._train_by_patient(site, ctx)
        count = len(site.rows.train)
        rule = PerExampleGradient(
            self.options.clip,
            self.noise_at(site, ctx),
            max(1e-9, compute_sampling_rate(count, ctx.batch_size) * count),
            self.key(site).stream(),
        )
        rule.canaries = self._make_canaries(site, ctx)
        return Terms(gradient=rule, sampler=PoissonSampler(self.key(site).at("coins").stream()))

    def _make_canaries(self, site: Site, ctx: Context) -> Canaries | None:
        """The canaries of an audit, where some were declared."""
        count = self.options.canaries
        if not count:
            return None
        return Canaries(
            count,
            toss_coins(site.key, count),
            find_places_key(self.setting.config.run.seed, site.name),
            compute_sampling_rate(len(site.rows.train), ctx.batch_size),
            self.options.clip,
            self.key(site).at("canaries").stream(),
        )

    def _train_by_patient(self, site: Site, ctx: Context) -> Terms:
        """Patients are drawn with the chance that an image would have."""
        numbers = None if site.inputs.patients is None else site.inputs.patients[site.rows.train]
        self.check_patients(site.name, None if numbers is None else PatientCount.of(numbers))
        assert numbers is not None
        patients = torch.from_numpy(np.unique(numbers, return_inverse=True)[1].astype(np.int64))
        rate = compute_sampling_rate(len(site.rows.train), ctx.batch_size)
        sampler = PatientSampler(self.key(site).at("coins").stream(), patients)
        rule = PatientGradient(
            self.options.clip,
            self.noise_at(site, ctx),
            max(1e-9, rate * count_units(patients)),
            self.key(site).stream(),
            sampler.groups,
        )
        return Terms(gradient=rule, sampler=sampler)

    def check_patients(self, site: str, patients: PatientCount | None) -> None:
        """Refuse images of unknown patients where one patient is protected."""
        if not self._by_patient or (patients is not None and not patients.unknown):
            return
        wrong = "does not say" if patients is None else f"does not say of {patients.unknown} images"
        raise ConfigError(
            f"the unit is a patient, and the data of site {site!r} {wrong} whose images they are",
            where=f"release.{self.name}.unit",
            hint="Name the column in data.patient and fill it, or protect one image.",
        )

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """Nothing more is added; the figures say how much noise the steps had."""
        rule = site.terms.gradient
        if not update.tensors or not isinstance(rule, PerExampleGradient):
            return update, {}
        if not is_finite(update.tensors):  # penalties are not clipped, so training can break
            return withhold_update(update), {"withheld": 1.0}
        change = compute_norm(compute_changes(update, site))
        metrics = {"steps": float(rule.steps), "multiplier": rule.noise, "update_l2": change}
        if ctx.optimizer.name == "sgd" and not ctx.optimizer.parts:
            noise = ctx.optimizer.lr * rule.energy**0.5
            metrics |= {"noise_l2": noise} | ({"energy": noise / change} if change else {})
        return update, metrics

    def promise(self, update: Update, site: Site, ctx: Context) -> Promise | None:
        """The steps that were really made; statistics of batches are not covered."""
        del update
        rule = site.terms.gradient
        if not isinstance(rule, PerExampleGradient):
            return None
        event = Event(
            rule.noise, compute_sampling_rate(len(site.rows.train), ctx.batch_size), rule.steps
        )
        return self.make_promise(site, (event,), covers=frozenset(self._list_covered()))

    def _list_covered(self) -> list[str]:
        names = [n for n in self.setting.leaves if n.startswith((MODEL, CONTROL))]
        batch = tuple(f"{MODEL}{n.name}." for n in self.setting.norms if n.batch and not n.frozen)
        return [n for n in names if not n.startswith(batch)] if batch else names

    def check(self, setting: Setting) -> None:
        """Refuse layers, phases and messages that see data past the clipping."""
        super().check(setting)
        check_touches(self, setting)
        self._check_norms(setting)
        self._check_canaries()
        for stage in setting.stages:
            if stage.loose:
                raise ConfigError(
                    f"stage {stage.name!r} of {setting.method} changes the model from images in "
                    f"phase {stage.loose[0]!r}, past the clipping",
                    where="release.defenses",
                    hint='Use "client-dp", which covers any training, or another method.',
                )
        bare = [n for n in setting.beside if not n.startswith(CONTROL) and n not in setting.proved]
        if bare:
            raise ConfigError(
                f"{setting.method} sends {bare[0]!r} beside the model, which 'dp-sgd' does not "
                "cover and nothing else proves anything about",
                where="release.defenses",
                hint="Give what is sent beside the model a guarantee of its own (fedxds: "
                'protection = "local-dp" or "metric"), or use another method.',
            )

    def _check_canaries(self) -> None:
        """Refuse an audit that could prove nothing, and canaries where patients are the unit."""
        count, guesses = self.options.canaries, self.options.guesses
        if count and (count < 1000 or guesses > count or self._by_patient):
            raise ConfigError(
                f"an audit needs at least 1000 canaries, not {count}, no more guesses than that, "
                "and one image as the unit",
                where=f"release.{self.name}.canaries",
            )

    def _check_norms(self, setting: Setting) -> None:
        batch = [norm for norm in setting.norms if norm.batch and not norm.frozen]
        if batch:
            raise ConfigError(
                f"{batch[0].kind} {batch[0].name!r} mixes the images of a batch, so no image has a "
                "gradient of its own, and its statistics leave without noise",
                where="model.norm",
                hint='Set model.norm = "group" without model.weights, or freeze the backbone.',
            )

    def forecast(self, site: str, count: int) -> dict[str, Any]:
        """With the steps of the first round and the chance of an image to be in one."""
        event = self.cost(count, 1)
        return {**super().forecast(site, count), "rate": event.rate, "steps": event.times}
