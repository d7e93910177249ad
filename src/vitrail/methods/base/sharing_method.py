"""What methods that share images have in common: sharing once, then a second batch in each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.errors import ConfigError
from vitrail.local.phases.phase import Phase
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.sharing.shared_batches import SharedBatches, read_shared_images
from vitrail.local.terms import Terms
from vitrail.methods.base.method import About, Method
from vitrail.methods.base.server import Server
from vitrail.methods.base.stage import Stage
from vitrail.models.parts import PARTS
from vitrail.release.asset import Asset
from vitrail.release.message import ANY, KEEP, Field

IMAGES = "images"
SHARE, TRAIN = "share", "train"


@runtime_checkable
class SharingPhase(Protocol):
    """A phase that lays images out to be sent."""

    def compute_unprotected(self, site: Site, ctx: Context) -> Tensor:
        """What it would send of every training image, [N, H, W, C], but for the noise."""
        ...


class ImageSharingMethod(Method):
    """Images go up once, in a stage `share`; all sites get all of them, and train on them beside
    their own: CE(own batch) + weight * CE(shared batch). Options: `weight`, `statistics`."""

    views: ClassVar[int] = 1  # how many a site shares of one image

    def share_stage(self, phase: Phase) -> Stage:
        """One round of all sites in which no model moves."""
        still: dict[str, str] = dict.fromkeys(PARTS, "frozen")
        return Stage(SHARE, rounds=1, sites="all", train=(phase,), table=still)

    def image_fields(
        self, about: About, span: tuple[float, float], proved: bool = False
    ) -> tuple[Field, ...]:
        """Images with pixels within a span, and their labels."""
        pixels, labels = (ANY, *about.image), (0, about.classes - 1)
        return (
            Field(f"{IMAGES}/pixels", pixels, KEEP, span=span, proved=proved),
            Field(f"{IMAGES}/targets", (ANY,), KEEP, torch.int64, span=labels, proved=proved),
        )

    def limits(self, facts: Mapping[str, float], ctx: Context) -> dict[str, float]:
        """No site shares more images than it has; behind a formal mechanism it tells 1."""
        del ctx
        if facts["examples"] <= 1:
            return {}
        most = self.views * facts["examples"]
        return {f"{IMAGES}/{name}": most for name in ("pixels", "targets")}

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """A batch of shared images beside each of the site's own, once there are any."""
        del down
        pixels, targets = read_shared_images(site, IMAGES)
        if ctx.stage != TRAIN or not len(targets):
            return Terms()
        batches = SharedBatches(
            site, pixels, targets, ctx.batch_size, self.options.weight, self.options.statistics
        )
        return Terms(pull=(batches,))

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """The mean; after sharing, all images in an order that does not tell their sites."""
        if ctx.stage != SHARE:
            return super().close(server, sums, ctx)
        sites = [sums.kept[site] for site in sorted(sums.kept)]
        pixels = torch.cat([kept[f"{IMAGES}/pixels"] for kept in sites])
        targets = torch.cat([kept[f"{IMAGES}/targets"] for kept in sites])
        order = server.make_secret_stream(ctx, "shuffle").permutation(len(targets))
        if len(targets):
            server.assets[IMAGES] = Asset.of({"pixels": pixels[order], "targets": targets[order]})
        return {"shared_images": float(len(targets))}


def count_early_rounds(asked: int | None, usual: int, rounds: int, key: str, least: int = 0) -> int:
    """How many rounds come before the one in which all sites tell something, so that some are
    left to train; where nobody asked for a number, as usual, or a third of a shorter run."""
    early = max(least, min(usual, rounds // 3)) if asked is None else asked
    if early > rounds - 2:
        raise ConfigError(
            f"{early} rounds before sharing and one of sharing leave none of {rounds} to train",
            where="run.rounds" if asked is None else f"method.{key}",
            hint=f"Raise run.rounds{'' if asked is None else f', or lower {key}'}.",
        )
    return early
