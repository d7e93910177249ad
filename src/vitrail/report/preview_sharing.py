"""What each site would share, found out without anything leaving it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config import Loaded
from vitrail.engine.federation import Federation, load_federation
from vitrail.engine.plan import Plan, StagePlan
from vitrail.engine.resolve_config import resolve_config
from vitrail.engine.run import check_before_start, plan_run
from vitrail.engine.site_turn import Host
from vitrail.engine.workers.make_pool import make_host
from vitrail.errors import ConfigError, suggest_name
from vitrail.local.sharing.choose_pixels import ChosenImages
from vitrail.methods.base.method import RunSetup
from vitrail.release.image_protection import ProtectedImages
from vitrail.runs.reopen import attach_features


@dataclass(frozen=True)
class Preview:
    """One site: the images it would share, before and after protection."""

    site: str
    classes: tuple[str, ...]
    images: npt.NDArray[np.uint8]  # [N, H, W, C], as they are
    chosen: ChosenImages
    shared: ProtectedImages
    held: int  # training images of the site


class Previewer:
    """Trains each site alone for the rounds before sharing, in its own corner, and looks.

    The federation's model will be another one, so masks will differ; what is done to an image
    will not.
    """

    def __init__(self, loaded: Loaded, rounds: int | None = None) -> None:
        try:
            self.loaded = replace(loaded, config=resolve_config(loaded))
            self.federation: Federation = load_federation(self.loaded)
            self.plan, network = plan_run(self.loaded, self.federation)
            image = self.plan.image_shape(int(self.federation.images.images.shape[1]))
            check_before_start(self.plan, RunSetup(self.plan.optimizer, network, image))
            self.stage = _find_sharing_stage(self.plan)
        except ConfigError as err:
            raise err.in_file(loaded.source) from None
        self.rounds = self.stage.first - 1 if rounds is None else min(rounds, self.stage.first - 1)
        self._network = network

    def sites(self, names: tuple[str, ...] = ()) -> Iterator[Preview]:
        """One site after the other; all of them, or those named."""
        unknown = [name for name in names if name not in self.federation.sites]
        if unknown:
            raise ConfigError(
                f"there is no site {unknown[0]!r}",
                where="--site",
                hint=suggest_name(unknown[0], self.federation.sites),
            )
        with tempfile.TemporaryDirectory(prefix="vitrail-") as scratch:
            host = make_host(self.plan, self._network, self.federation, Path(scratch))
            host = attach_features(host, self.federation)
            for name in names or tuple(self.federation.sites):
                yield self._preview_site(host, name)

    def _preview_site(self, host: Host, name: str) -> Preview:
        site = host.visit(name, self.stage.first, self.rounds)
        ctx = self.plan.context(self.stage.first, len(self.federation.sites))
        # Other draws than those of the run: a page may be shown around, its noise must not help.
        site = replace(site, key=site.key.at("preview"))
        phase = next(p for p in self.stage.stage.train if hasattr(p, "preview_images"))
        chosen, shared = phase.preview_images(site, ctx)
        images = self.federation.images
        held = len(self.federation.sites[name].train)
        return Preview(name, images.classes, images.images[chosen.rows], chosen, shared, held)


def _find_sharing_stage(plan: Plan) -> StagePlan:
    """The stage in which images are shared."""
    for stage in plan.stages:
        if any(hasattr(phase, "preview_images") for phase in stage.stage.train):
            return stage
    raise ConfigError(
        f"{plan.config.method.name} shares no images that are known before it runs",
        where="method.name",
        hint='A method that does is "fedxds".',
    )
