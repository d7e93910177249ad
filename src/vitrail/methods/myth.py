"""MyTH and inDISCO: prototype networks across sites, shared in full or in part."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from vitrail.config import schema
from vitrail.config.added_keys import added
from vitrail.errors import suggest_name
from vitrail.local.phases.phase import Phase
from vitrail.local.phases.prune_prototypes import Prune
from vitrail.local.phases.push import Push
from vitrail.local.phases.restart_neck import Restart
from vitrail.methods.base.method import METHODS, Method, Options
from vitrail.methods.base.prototype_recipe import (
    ADAM,
    JOINT,
    make_last_phase,
    make_prototype_stages,
    make_warm_phase,
)
from vitrail.methods.base.stage import Stage, Table
from vitrail.models.parts import PARTS

Epochs = Annotated[int, Field(ge=1)]


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
    and sites adapt by prototypes and last layer alone.
    """

    share: tuple[str, ...] = ("prototypes", "head")
    first_share: tuple[str, ...] | None = None
    match: bool = False
    same_start: bool = True
    space: Literal["home", "public"] = added("home")

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
        return self

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

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """Warm, joint; what arrives is pushed onto own images and gets its last layer tuned."""
        del run
        options: Any = self.options
        still = ("neck",) if options.space == "public" else ()
        table = make_sharing_table(options.share, options.match, still)
        stages = []
        for stage in make_prototype_stages(
            options.warm_epochs, options.last_epochs, prune=options.prune
        ):
            if stage.name == "warm":
                first = make_sharing_table(options.first, options.match, still)
                train = stage.train if options.same_start else (Restart(), *stage.train)
                stages.append(Stage("warm", 1, train=train, finish=stage.finish, table=first))
            else:
                stages.append(
                    Stage(
                        stage.name,
                        stage.rounds,
                        arrive=stage.arrive,
                        train=stage.train,
                        finish=stage.finish,
                        table=table,
                    )
                )
        return tuple(stages)


def make_sharing_table(names: tuple[str, ...], match: bool, still: tuple[str, ...] = ()) -> Table:
    """A table that averages what is named, leaves `still` as it began and keeps the rest home."""
    table: dict[str, str] = dict.fromkeys(PARTS, "home") | dict.fromkeys(still, "frozen")
    for name in names:
        paired = match and name in ("prototypes", "head")
        table[name] = "matched" if paired else "mean"
    return table


@METHODS.register("myth-pm")
class MythPersonal(_PersonalMyth):
    """Prototypes and last layer are shared; features stay home, and so does the push."""

    summary = "federated ProtoPNet, features at home (PM)"


@METHODS.register("indisco")
class InDisco(_PersonalMyth):
    """The personalized scheme on many classes, to find the site and class of a bias."""

    summary = "the personalized scheme on many classes"
    paper = "Naumova et al. 2024 (inDISCO)"
