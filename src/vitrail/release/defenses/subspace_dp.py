"""Private subspaces, for a whole site or for each image, both with a sensitivity that is proved.

A site: projectors of rank p differ by at most sqrt(2 p) in the Frobenius norm, all classes by
sqrt(2 p classes); its steps away from the subspaces it received differ by no more than a clip. An
image: it adds at most 1 to the scatter of its class, so replacing it moves the scatters by at most
sqrt(2). Symmetric Gaussian noise, then the eigenspace, which costs nothing (Dwork et al. 2014,
"Analyze Gauss").
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor

from vitrail.config.added_keys import added
from vitrail.config.schema import Count, Positive
from vitrail.errors import ConfigError
from vitrail.geometry.subspace_mean import leading_eigenvectors
from vitrail.grid_noise import add_noise
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.models.flat import FlatModel
from vitrail.release.accounting.accountant import AccountantName, Event
from vitrail.release.accounting.discrete_sum import compute_distributed_noise
from vitrail.release.accounting.promise import DISTRIBUTED, OUTSIDE, SERVER, Promise
from vitrail.release.defenses.additive import compute_noise_metrics
from vitrail.release.defenses.client_dp import check_shared_noise, get_received
from vitrail.release.defenses.clipped_steps import (
    bound_rounding,
    clip_steps,
    count_sites_for_a_step,
    follow_steps,
)
from vitrail.release.defenses.defense import DEFENSES
from vitrail.release.defenses.private import Budget, PrivateDefense
from vitrail.release.defenses.scatter import (
    add_symmetric_noise,
    compute_scatter,
    count_surviving_sites,
)
from vitrail.release.message import Field
from vitrail.release.setting import MODEL, Setting
from vitrail.release.update import Update

GRASSMANN = "grassmann"
TANGENT = "grassmann-tangent"
CLIPPED_SITE = "a whole site, moving or still"


class SubspaceDpOptions(Budget):
    """`[release.subspace-dp]`."""

    level: Literal["image", "site"] = "image"
    """What neighbors differ in: one image replaced by another, or a whole site."""
    patches: Count = 5
    """How many patches of an image its class's scatter is made of, for image."""
    where: Literal["site", "sum", "distributed"] = "site"
    """For site: noise at the site; in the sum, by a server that is trusted; or distributed: each
    site adds its share inside a secure sum, and nobody is trusted with it."""
    clip: Positive | None = added(None)
    """For site: the longest step of a site's subspaces away from those it received, over all
    classes together; it needs method.consensus = "tangent". Left out: projectors without a clip."""
    colluding: NonNegativeInt = added(0)
    """How many sites of a sum may tell the server their noise, where it is distributed."""


@DEFENSES.register("subspace-dp")
class SubspaceDp(PrivateDefense):
    """Lets nothing but noised subspaces leave; every other tensor goes back as it came.

    At the level of images nothing is trained: the subspaces are those of the images' features
    under the received model, which is public. Patches are ranked by the received subspaces, never
    by a private one.
    """

    Options = SubspaceDpOptions

    @property
    def _by_image(self) -> bool:
        return bool(self.options.level == "image")

    def protects(self) -> str:
        """One image, or a whole site: against any other one, or with a clip against none."""
        if self._by_image:
            return "one image replaced by another"
        return CLIPPED_SITE if self.options.clip else "a whole site"

    def against(self) -> str:
        """The server, unless the noise is its own."""
        if self._is_distributed:
            return DISTRIBUTED.format(colluding=self.options.colluding)
        return OUTSIDE if self._in_sum else SERVER

    @property
    def _in_sum(self) -> bool:
        return bool(self.options.where == "sum" and not self._by_image)

    @property
    def _is_distributed(self) -> bool:
        return bool(self.options.where == "distributed" and not self._by_image)

    @property
    def accountant(self) -> AccountantName:
        """Sums of discrete Gaussians are bounded in Renyi divergence."""
        return "rdp" if self._is_distributed else super().accountant

    def touches(self, setting: Setting) -> tuple[str, ...]:
        """Everything, if there are subspaces: they get noise, the rest goes back."""
        return setting.leaves if select_subspace_fields(setting) else ()

    def train(self, site: Site, ctx: Context) -> Terms:
        """No step at all for images; for sites, steps of the subspaces alone."""
        del site, ctx
        if self._by_image:
            return Terms(sampler=lambda *_: [])
        return Terms(pull=(keep_subspace_gradients,))

    def apply(self, update: Update, site: Site, ctx: Context) -> tuple[Update, Metrics]:
        """Noised eigenspaces, and the rest as it was received."""
        names = [
            field.name
            for field in select_subspace_fields(self.setting)
            if field.name in update.tensors
        ]
        if not names:
            return update, {}
        base = get_received(update, site)
        sent = {n: base[n].to(t.dtype) for n, t in update.tensors.items() if n not in names}
        if self.options.clip and not self._by_image:
            trained = {name: update.tensors[name] for name in names}
            clipped, metrics = self._clip(trained, base, site, ctx)
            return replace(update, tensors={**sent, **clipped}), metrics
        figures: Metrics = {}
        for name in dict.fromkeys(names):
            frames = update.tensors[name]
            if self._in_sum:
                sent[name] = frames
                continue
            matrices = self._matrices(frames, base[name], site)
            deviation = self.sensitivity(frames.shape) * self.noise_at(site, ctx)
            source = self.key(site).at(name).stream()
            noised = add_symmetric_noise(matrices, deviation, source)
            subspaces = leading_eigenvectors(noised, frames.shape[-1])
            sent[name] = subspaces.to(frames.dtype)
            figures |= _compute_metrics(matrices, noised - matrices, subspaces)
        return replace(update, tensors=sent), figures

    def _clip(
        self, frames: dict[str, Tensor], base: dict[str, Tensor], site: Site, ctx: Context
    ) -> tuple[dict[str, Tensor], Metrics]:
        """The frames where clipped steps lead; with noise on the steps where it is the site's."""
        steps, length = clip_steps(frames, base, self.options.clip)
        noise: dict[str, Tensor] = {}
        if self.options.where == "site":
            deviation = self.options.clip * self.noise_at(site, ctx)
            key = self.key(site)
            noised = {n: add_noise(t, deviation, key.at(n).stream()) for n, t in steps.items()}
            noise = {name: noised[name] - steps[name] for name in steps}
            steps = noised
        more = {"clipped": float(length > self.options.clip), "change_l2": length}
        figures = compute_noise_metrics(noise, min(length, self.options.clip))
        return follow_steps(steps, base, frames), {**figures, **more}

    def _matrices(self, frames: Tensor, before: Tensor, site: Site) -> Tensor:
        if self._by_image:
            return compute_scatter(site, before, self.options.patches)
        frames = frames.double()
        if not bool(torch.isfinite(frames).all()):  # that it broke must not show
            frames = before
        return frames @ frames.mT

    def sensitivity(self, shape: torch.Size | tuple[int, ...]) -> float:
        """The farthest that neighbors' matrices can be apart, in the Frobenius norm."""
        classes, n, p = shape
        return math.sqrt(2) if self._by_image else math.sqrt(2 * min(p, n - p) * classes)

    def promise(self, update: Update, site: Site, ctx: Context) -> Promise | None:
        """One Gaussian release."""
        if not update.tensors:
            return None
        noise = self.noise_at(site, ctx)
        if self._is_distributed:
            noise = compute_distributed_noise(noise, self._count_numbers())
        return self.make_promise(site, (Event(noise),))

    def _count_numbers(self) -> int:
        """The numbers of all subspaces of an update."""
        fields = {f.name: f for f in select_subspace_fields(self.setting)}
        return sum(math.prod(field.shape) for field in fields.values())

    def shared_deviation(self, rule: str, ctx: Context) -> float | None:
        """The noise of each number of a secure sum of steps. The clip holds for what is added up,
        after it was rounded to the grid (`shared_limit`), so it is the sensitivity."""
        if not self._is_distributed or rule != TANGENT:
            return None
        factor = float(self.options.factor(ctx.round))
        return float(self.options.clip * self.multiplier("", 0) * factor)

    def shared_limit(self, rule: str) -> float | None:
        """The clip, once more where nothing comes after it but noise."""
        return float(self.options.clip) if self._is_distributed and rule == TANGENT else None

    @property
    def noises_sums(self) -> bool:
        """Where the noise is the server's."""
        return self._in_sum

    def deviation(self, rule: str, site_count: int, ctx: Context) -> float | None:
        """The noise of a sum of projectors, or of steps, where it is the server's to add."""
        if not self._in_sum or rule != self._rule:
            return None
        factor = float(self.options.factor(ctx.round))
        fields = {f.name: f for f in select_subspace_fields(self.setting)}
        shapes = [field.shape for field in fields.values()]
        sensitivity = self.sensitivity(shapes[0])
        if clip := self.options.clip:
            sensitivity = clip + bound_rounding(shapes, clip)
        return float(sensitivity * self.multiplier("", site_count) * factor)

    @property
    def _rule(self) -> str:
        """The rule whose sum gets the noise."""
        return TANGENT if self.options.clip else GRASSMANN

    def forecast(self, site: str, count: int) -> dict[str, Any]:
        """With the number of sites at which the eigengap survives, at the level of sites; with a
        clip, the number at which steps that agree stand out of the noise."""
        forecast = super().forecast(site, count)
        if self._by_image:
            return forecast
        shape = select_subspace_fields(self.setting)[0].shape
        if self.options.clip:
            sites = count_sites_for_a_step(self.multiplier(site, count), *shape)
            return {**forecast, "sites_for_a_step": sites}
        noise = self.sensitivity(shape) * self.multiplier(site, count)
        return {
            **forecast,
            "sites_for_an_eigengap": count_surviving_sites(noise, shape[-2]),
        }

    def check(self, setting: Setting) -> None:
        """Refuse models without subspaces, and features that private images have shaped."""
        super().check(setting)
        self.check_base(setting)
        fields = select_subspace_fields(setting)
        if not fields:
            raise ConfigError(
                f"{setting.method} sends no subspace that could be noised",
                where="release.defenses",
                hint='Use method "fedgrasp", or "client-dp", which covers any update.',
            )
        home = [n for s in setting.stages for n, answer in s.answers.items() if answer == "home"]
        if self._by_image and home:
            raise ConfigError(
                f"{home[0]!r} is trained and kept at each site: features of a private model void "
                "the bound of an image",
                where="release.subspace-dp.level",
                hint='Use a method that shares the whole body, or level = "site".',
            )
        self._check_clip(fields)
        if self._is_distributed:
            check_shared_noise(self.name, self.options.clip, setting)
        if self.options.where == "site" or self._by_image:
            return
        if self.options.sites or any(field.rule != self._rule for field in fields):
            raise ConfigError(
                f'noise in the sum is one for all sites, and needs the rule "{self._rule}"',
                where="release.subspace-dp.where",
                hint='Leave sites out and consensus = "exact", or set where = "site".',
            )

    def _check_clip(self, fields: list[Field]) -> None:
        """Refuse a clip that nothing goes by, and shared noise without one."""
        options = self.options
        if self._by_image and (options.clip or options.where == "distributed"):
            raise ConfigError(
                "one image moves the scatters by a bounded amount and is noised at its site: a "
                "clip, and noise that is distributed, are for whole sites",
                where=f"release.{self.name}.level",
                hint='Set level = "site", or leave clip and where out.',
            )
        if options.where == "distributed" and not options.clip:
            raise ConfigError(
                "noise that is distributed over sites goes by the longest step of one of them",
                where=f"release.{self.name}.clip",
                hint='Set it, 1.0 for example, and method.consensus = "tangent".',
            )
        if options.clip and any(field.rule != TANGENT for field in fields):
            raise ConfigError(
                "a clip bounds a site's steps, and this run adds up whole subspaces",
                where=f"release.{self.name}.clip",
                hint='Set method.consensus = "tangent", or leave the clip out.',
            )


def select_subspace_fields(setting: Setting) -> list[Field]:
    """The fields that hold subspaces."""
    fields = [field for stage in setting.stages for field in stage.schema.up]
    return [f for f in fields if f.name.startswith(MODEL) and f.geometry == GRASSMANN]


def keep_subspace_gradients(model: FlatModel) -> None:
    """A pull that leaves nothing of the gradient but that of subspaces."""
    for spec, at in zip(model.layout.specs, model.layout.offsets, strict=True):
        if spec.trainable and spec.geometry != GRASSMANN:
            model.grads[at : at + spec.size].zero_()


def _compute_metrics(matrices: Tensor, noise: Tensor, subspaces: Tensor) -> Metrics:
    """How much of the matrices' energy the noised subspaces still hold, and how large noise is."""
    p = subspaces.shape[-1]
    best = torch.linalg.eigvalsh(matrices)[..., -p:].sum(-1)
    held = torch.einsum("...ip,...ij,...jp->...", subspaces, matrices, subspaces)
    size = float(matrices.norm())
    return {
        "noise_l2": float(noise.norm()),
        "update_l2": size,
        "kept": float((held / best.clamp_min(1e-30)).mean()),
    } | ({"energy": float(noise.norm()) / size} if size else {})
