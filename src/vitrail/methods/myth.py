"""MyTH and inDISCO: prototype networks across sites, shared in full or in part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field as Key_
from pydantic import field_validator, model_validator
from torch import Tensor

from vitrail.config import schema
from vitrail.config.added_keys import added
from vitrail.errors import ConfigError, suggest_name
from vitrail.local.phases.phase import Phase
from vitrail.local.phases.prune_prototypes import Prune
from vitrail.local.phases.push import Push
from vitrail.local.phases.restart_neck import Restart
from vitrail.local.phases.turn_prototypes import (
    ANCHORS,
    PATCHES_PER_CHANNEL,
    AnchorPull,
    TurnHome,
    TurnToPublic,
    keep_anchors,
    list_patches,
)
from vitrail.local.session import Context, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.method import METHODS, About, Method, Options, RunSetup
from vitrail.methods.base.prototype_recipe import (
    ADAM,
    JOINT,
    make_last_phase,
    make_prototype_stages,
    make_warm_phase,
)
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.methods.base.stage import Stage, Table
from vitrail.models.parts import PARTS
from vitrail.release.message import Field
from vitrail.rng import Key

Epochs = Annotated[int, Key_(ge=1)]


class GlobalOptions(Options):
    """Epochs of the phases around `run.local_epochs` joint ones; `prune` masks at the end."""

    warm_epochs: Epochs = 5
    last_epochs: Epochs = 12
    prune: bool = False


class PersonalOptions(GlobalOptions):
    """`share` names what leaves a site: parts, or stages of the backbone (`backbone.layer4`).

    `first_share` is the same for the first round; `match` pairs prototypes up before they are
    averaged; without `same_start` every site draws its own add-on layers. `space = "public"` leaves
    the add-on layers where the server started them: prototypes then mean the same at every site,
    and sites adapt by prototypes and last layer alone. `align` keeps the add-on layers home and
    turns prototypes into the space of the common start before they leave, by a rotation that each
    site fits on `anchors` public images (`[data.public]`), and back when they arrive; `hold` is the
    weight of a loss that keeps the patches of these images where the common start puts them.
    """

    share: tuple[str, ...] = ("prototypes", "head")
    first_share: tuple[str, ...] | None = None
    match: bool = False
    same_start: bool = True
    space: Literal["home", "public"] = added("home")
    align: bool = added(False)
    anchors: Epochs = added(32)
    hold: Annotated[float, Key_(ge=0)] = added(0.0)

    @field_validator("share", "first_share")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in PARTS and not name.startswith("backbone."):
                raise ValueError(f"there is no part {name!r} to share. {suggest_name(name, PARTS)}")
        return names

    @model_validator(mode="after")
    def _check_paired(self) -> PersonalOptions:
        for names in (self.share, self.first):
            if self.match and names and not {"prototypes", "head"} <= set(names):
                raise ValueError("match needs both prototypes and head in share")
            if self.space == "public" and ("neck" in names or not self.same_start):
                raise ValueError(
                    'space = "public" needs the start of all, and leaves neck unshared'
                )
            if self.hold and not self.align:
                raise ValueError("hold keeps anchors where they are, which needs align")
            if self.align and not self._can_align(names):
                raise ValueError(
                    "align turns prototypes of necks that stay home: share prototypes and head and "
                    'not neck, with same_start, space = "home" and without match'
                )
        return self

    def _can_align(self, names: tuple[str, ...]) -> bool:
        shared = {"prototypes", "head"} <= set(names) and "neck" not in names
        return shared and self.same_start and self.space == "home" and not self.match

    @property
    def first(self) -> tuple[str, ...]:
        """What is shared in the first round; an empty list is an answer too."""
        return self.share if self.first_share is None else self.first_share


class _Myth(Method):
    paper = "Naumova et al. 2024, arXiv:2404.08420 (MyThisYourThat)"
    model = "protopnet"
    optimizer = ADAM
    weighting = "uniform"
    reference = True


@METHODS.register("myth-gm")
class MythGlobal(_Myth):
    """Everything is shared; each site sees what the prototypes stand for on its own images."""

    summary = "federated ProtoPNet, everything shared (GM)"
    Options = GlobalOptions

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm, then joint and last layer; at the end a push for pictures only."""
        del run
        options: Any = self.options
        end: tuple[Phase, ...] = (Push(real=False),)
        if options.prune:
            end = (Prune(), *end)
        train = (JOINT, make_last_phase(options.last_epochs))
        return (
            Stage("warm", rounds=1, train=(make_warm_phase(options.warm_epochs),), finish=end),
            Stage("joint", train=train, finish=end),
        )


class _PersonalMyth(_Myth):
    Options = PersonalOptions

    def __init__(self, options: Mapping[str, Any], source: str = "config") -> None:
        super().__init__(options, source)
        if self.options.align:
            self.server_data = "public"

    def check_run(self, setup: RunSetup) -> None:
        """There must be public images, with enough patches to fix a rotation by."""
        if self.options.align and setup.trainer is not None:
            check_anchors(setup.trainer, self.options.anchors)

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """Anchor images go down once, in the first round."""
        if not self.options.align or stage != "warm":
            return (), ()
        return (Field(ANCHORS, (self.options.anchors, *about.image), dtype=torch.uint8),), ()

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """A site keeps the anchors of the first round, and lets them hold its neck."""
        if not self.options.align:
            return super().begin(site, down, ctx)
        if ANCHORS in down:
            keep_anchors(site)
        return Terms(pull=(AnchorPull(site, self.options.hold),)) if self.options.hold else Terms()

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """The model, and in the first round the anchors."""
        message = super().open(server, ctx)
        if self.options.align and ctx.stage == "warm":
            trainer, key = server.required_trainer, Key(ctx.key.root).at("anchors")
            rows = key.numpy().permutation(trainer.rows)[: self.options.anchors]
            message[ANCHORS] = torch.from_numpy(trainer.inputs.images[rows].copy())
        return message

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm, joint; what arrives is pushed onto own images and gets its last layer tuned."""
        del run
        options: Any = self.options
        still = ("neck",) if options.space == "public" else ()
        table = make_sharing_table(options.share, options.match, still)
        first = make_sharing_table(options.first, options.match, still)
        stages = []
        for stage in make_prototype_stages(
            options.warm_epochs, options.last_epochs, prune=options.prune
        ):
            if stage.name == "warm":
                train = stage.train if options.same_start else (Restart(), *stage.train)
                stage = replace(stage, train=train, table=first)
            else:
                stage = replace(stage, table=table)
            stages.append(align_stage(stage) if options.align else stage)
        return tuple(stages)


def make_sharing_table(names: tuple[str, ...], match: bool, still: tuple[str, ...] = ()) -> Table:
    """A table that averages what is named, leaves `still` as it began and keeps the rest home."""
    table: dict[str, str] = dict.fromkeys(PARTS, "home") | dict.fromkeys(still, "frozen")
    for name in names:
        paired = match and name in ("prototypes", "head")
        table[name] = "matched" if paired else "mean"
    return table


def align_stage(stage: Stage) -> Stage:
    """A stage whose prototypes travel in the public space; the first one brings the anchors, so
    every site plays it."""
    first = stage.name == "warm"
    return replace(
        stage,
        sites="all" if first else stage.sites,
        arrive=() if first else (TurnHome(), *stage.arrive),
        train=(*stage.train, TurnToPublic()),
        finish=(TurnHome(last=True), *stage.last),
    )


def check_anchors(trainer: ServerTrainer, images: int) -> None:
    """Refuse public images that cannot fix a rotation of the space of prototypes."""
    if len(trainer.rows) < images:
        raise ConfigError(
            f"{images} anchors are asked for, and there are {len(trainer.rows)} public images",
            where="method.anchors",
            hint="Lower it, or give more public images.",
        )
    x = trainer.model.network.prefix(trainer.inputs.plain(trainer.rows[:1]))
    places, depth = list_patches(trainer.model.network, x).shape
    if images * places < PATCHES_PER_CHANNEL * depth:
        raise ConfigError(
            f"{images} anchors have {images * places} patches, too few to turn {depth} channels by",
            where="method.anchors",
            hint=f"Use at least {-(-PATCHES_PER_CHANNEL * depth // places)}.",
        )


@METHODS.register("myth-pm")
class MythPersonal(_PersonalMyth):
    """Prototypes and last layer are shared; features stay home, and so does the push."""

    summary = "federated ProtoPNet, features at home (PM)"


@METHODS.register("indisco")
class InDisco(_PersonalMyth):
    """The personalized scheme on many classes, to find the site and class of a bias."""

    summary = "the personalized scheme on many classes"
    paper = "Naumova et al. 2024 (inDISCO)"
