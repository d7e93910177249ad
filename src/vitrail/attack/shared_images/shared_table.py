"""Images that sites shared, as the server received them, and how it would make such images itself.

The server knows the method, its options and the model that it sent, so it can put any image of
its own through the very phase in which a site makes what it shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.attack.server_view import ServerView
from vitrail.attack.threat_model import ThreatModel
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.plan import StagePlan
from vitrail.engine.storage.transcript import Recording
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.local.evaluate import compute_logits
from vitrail.local.inputs import Inputs
from vitrail.local.session import Context, Site
from vitrail.methods.base.sharing_method import SharingPhase
from vitrail.models.flat import FlatModel
from vitrail.rng import Key
from vitrail.runs.opened_run import Run

PIXELS, TARGETS = "/pixels", "/targets"


@dataclass(frozen=True)
class SharedSet:
    """What one site shared: pixels [M, C, H, W], about 0 to 1, and their labels."""

    site: str
    pixels: Tensor
    targets: Tensor


@dataclass(frozen=True)
class SharedTable:
    """Everything that was shared in a run, with what the server knows of its making."""

    server: ServerView
    stage: StagePlan
    name: str  # of the tensors, without `/pixels`
    sent: dict[str, Tensor]
    sets: tuple[SharedSet, ...]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        return self.server.shape

    def threat(self, public: str | None = None, *notes: str) -> ThreatModel:
        """An attacker who holds what was shared and knows how it was made."""
        config = self.server.plan.config
        return ThreatModel(
            sees="images",
            rounds=(self.stage.first,),
            images=sum(len(shared.targets) for shared in self.sets),
            public_data=public,
            defense=(
                *config.release.defenses,
                *_describe_protection(self.server.plan.method.options),
            ),
            notes=notes,
        )

    def imitate(self, images: npt.NDArray[np.uint8], key: Key) -> Tensor:
        """Other images [N, H, W, C] as sites would share them: [views, N, C, H, W].

        Where sites protect theirs in different ways, each image is treated as one of theirs, each
        way as often as it occurs.
        """
        ways: dict[str, list[SharedSet]] = {}
        for shared in self.sets:
            ways.setdefault(self.server.plan.method.protection(shared.site), []).append(shared)
        if len(ways) < 2:
            return self._imitate_one(images, self.sets[0].site if self.sets else "", key)
        often = np.array(
            [sum(len(shared.targets) for shared in sets) for sets in ways.values()], float
        )
        whose = key.at("whose").numpy().choice(len(ways), len(images), p=often / often.sum())
        imitations: Tensor | None = None
        for number, (shared, *_) in enumerate(ways.values()):
            rows = np.flatnonzero(whose == number)
            if not len(rows):
                continue
            some = self._imitate_one(images[rows], shared.site, key.at("site", number))
            if imitations is None:
                imitations = some.new_empty((len(some), len(images), *some.shape[2:]))
            imitations[:, torch.from_numpy(rows)] = some
        assert imitations is not None
        return imitations

    def _imitate_one(self, images: npt.NDArray[np.uint8], name: str, key: Key) -> Tensor:
        site, ctx = self.site(images, key, name)
        for phase in self.stage.stage.train:
            phase(site, ctx)
        return _split_views(site.out[self.name + PIXELS].permute(0, 3, 1, 2), len(images))

    def share_without_noise(self, images: npt.NDArray[np.uint8], label: int) -> Tensor:
        """What a site would share of images [N, H, W, C] of one label, but for the noise:
        [N, C, H, W]."""
        site, ctx = self.site(images, Key(b"no draw"))
        site.inputs = replace(site.inputs, labels=np.full(len(images), label, np.int64))
        phase = next(p for p in self.stage.stage.train if isinstance(p, SharingPhase))
        return phase.compute_unprotected(site, ctx).permute(0, 3, 1, 2)

    def site(self, images: npt.NDArray[np.uint8], key: Key, name: str = "") -> tuple[Site, Context]:
        """A site that holds other images, in the round of sharing, called as one of the sites.

        Their labels are those that the sent model gives them; every draw is the attacker's own.
        """
        server = self.server
        server.network.load_state_dict(server.fill_tensors(self.sent))
        server.network.eval()
        rows = np.arange(len(images))
        normalize = Normalize.of(server.plan.config, self.shape[0])
        inputs = Inputs(images, np.zeros(len(images), np.int64), normalize)
        guessed = compute_logits(server.network, inputs, rows).argmax(1).numpy().astype(np.int64)
        site = Site(
            name=name,
            rows=SiteRows(name, rows, rows[:0]),
            inputs=replace(inputs, labels=guessed),
            model=FlatModel(server.network),
            state={},
            key=key,
            shared=self.stage.shared,
            down=self.sent,
        )
        return site, server.plan.context(self.stage.first, len(server.run.sites))


def _split_views(pixels: Tensor, images: int) -> Tensor:
    """Shared images [views * N, ...] by view; what is not made of single images is refused."""
    if images == 0 or len(pixels) % images or not len(pixels):
        raise RunError(
            f"{len(pixels)} shared images were made of {images}: which is whose cannot be told",
            where="--attacks",
            hint="Attack a run in which each image is shared by itself (fraction = 1, group = 1).",
        )
    return pixels.reshape(-1, images, *pixels.shape[1:])


def read_shared(run: Run, sites: tuple[str, ...] = ()) -> SharedTable:
    """What the named sites (or all) shared, from the transcript; `sites/` is not looked into."""
    server = ServerView(run)
    fields = ((stage, field.name) for stage in server.plan.stages for field in stage.schema.up)
    stage, name = next(((s, n) for s, n in fields if n.endswith(PIXELS)), (None, ""))
    if stage is None:
        raise RunError(
            f"{run.config.method.name} shares no images",
            where="--attacks",
            hint="Attack a run of fedxds, or use ig.",
        )
    tape = Recording(run.folder.server)
    answered = tape.sites(stage.first)
    for site in sites:
        if site not in answered:
            raise ConfigError(
                f"{site!r} shared nothing in this run",
                where="--site",
                hint=suggest_name(site, answered),
            )
    sets = []
    for site in sites or answered:
        tensors = tape.read_received(stage.first, site).update.tensors
        pixels = tensors[name].permute(0, 3, 1, 2).float()
        if not bool(torch.isfinite(pixels).all()):
            raise RunError("shared pixels that are no numbers", where=f"site {site!r}")
        targets = tensors[name.removesuffix(PIXELS) + TARGETS]
        sets.append(SharedSet(site, pixels.contiguous(), targets))
    sent = tape.read_sent(stage.first)
    return SharedTable(server, stage, name.removesuffix(PIXELS), sent, tuple(sets))


def group_by_view(shared: SharedSet, images: int) -> Tensor:
    """A site's shared images as [views, N, C, H, W]: in the order of the images they are of."""
    return _split_views(shared.pixels, images)


def _describe_protection(options: Any) -> tuple[str, ...]:
    """What the method itself does to images, where its options say so."""
    mode = getattr(options, "protection", None)
    return () if mode is None else (f"{mode} of shared images",)
