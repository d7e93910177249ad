"""What a method is: a table, a few stages, and some hooks, FedAvg's being the defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.config.load import Loaded, to_config_error
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.methods.base.server import Server
from vitrail.methods.base.server_trainer import ServerTrainer
from vitrail.methods.base.stage import Stage, Table
from vitrail.models.flat import Region
from vitrail.models.network import Network
from vitrail.registry import Registry
from vitrail.release.message import Field

Roster = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class About:
    """What a method may know of a run when it declares its messages: how many classes, the shape
    of an image [height, width, channels], the sides being `ANY` where nobody knows yet, the
    channels of the map that the head sees, whether stages before it are frozen, whether some
    tensors stay at the sites, so that nobody else knows a site's network, and the trainable numbers
    that travel in the stage."""

    classes: int
    image: tuple[int, int, int]
    features: int
    frozen: bool = False
    home: bool = False
    shared: Region = field(default_factory=lambda: Region(()))


@dataclass(frozen=True)
class RunSetup:
    """What is known of a run before it starts: None is what nobody knows here and now.

    `image` is the shape [height, width, channels]; `examples` are the training images of all sites,
    or (without `every_site`) of the one that plays here; `trainer` is what the server trains with.
    """

    optimizer: OptimizerSettings
    network: Network
    image: tuple[int, int, int] | None = None
    examples: Mapping[str, int] | None = None
    every_site: bool = False
    trainer: ServerTrainer | None = None


class Options(schema.Section):
    """The method's own keys in `[method]`; a subclass adds fields."""


class Method:
    """One way to train a federation. A subclass fills the table and overrides what differs."""

    summary: ClassVar[str] = ""  # one line for `vitrail methods`
    paper: ClassVar[str] = ""  # where it comes from
    Options: ClassVar[type[Options]] = Options  # its own keys in `[method]`
    table: ClassVar[Table] = {  # what becomes of each part: a rule, "home" or "frozen"
        "backbone": "mean",
        "neck": "mean",
        "prototypes": "mean",
        "head": "mean",
    }
    model: str = "linear"  # the kind of network; an option `model` stands for it
    optimizer: OptimizerSettings = OptimizerSettings()  # where `[optimizer]` says nothing else
    weighting: ClassVar[Literal["examples", "uniform"]] = "examples"  # how much a site counts
    needs: ClassVar[Literal["sum", "all"]] = "sum"  # "all": the server sees each site's model
    # What the server itself trains on: what it generates, or the images of `[data.public]`.
    server_data: Literal["nothing", "generated", "public"] = "nothing"
    counts: ClassVar[tuple[str, ...]] = ()  # what sites count beside examples and steps
    sends_global: ClassVar[bool] = True  # else sites can judge the global model at the end only
    exact: ClassVar[bool] = False  # its state is right for its own plain mean only
    pooled: ClassVar[bool] = False  # whether all images are in one place
    reference: ClassVar[bool] = False  # whether sites also train alone, for the audit

    def __init__(self, options: Mapping[str, Any], source: str = "config") -> None:
        try:
            self.options: Any = self.Options.model_validate_json(
                json.dumps(dict(options)), strict=True
            )
        except ValidationError as err:
            raise to_config_error(err, source, self.Options, "method") from None
        self.model = str(getattr(self.options, "model", self.model))

    def check_run(self, setup: RunSetup) -> None:
        """Refuse a run that the method would be wrong for, before it starts; asked again whenever
        more of the run is known."""
        del setup

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """The stages in order; by default one that lasts the whole run."""
        del run
        return (Stage(),)

    def messages(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """What goes down and up beside the model in a stage: controls, shared images, another
        model's tensors."""
        del stage, about
        return (), ()

    def facts(self, labels: npt.NDArray[np.int64], classes: int) -> dict[str, float]:
        """What a site tells about its training labels once, before the first round."""
        del classes
        return {"examples": float(len(labels))}

    def weights(self, roster: Roster, sites: Sequence[str]) -> dict[str, float]:
        """How much each site of the round counts; only ratios matter."""
        if self.weighting == "uniform":
            return dict.fromkeys(sites, 1.0)
        return {site: roster[site]["examples"] for site in sites}

    def limits(self, facts: Mapping[str, float], ctx: Context) -> dict[str, float]:
        """The largest counts an honest site can have, for those the server computes with, and
        the most rows of what the server keeps."""
        del facts, ctx
        return {}

    def protection(self, site: str) -> str:
        """How what the server keeps of a site as it comes is protected, for the site's operator."""
        del site
        return "no formal guarantee"

    def begin(self, site: Site, down: Mapping[str, Tensor], ctx: Context) -> Terms:
        """At the site, before training: what to add to plain training."""
        del site, down, ctx
        return Terms()

    def end(self, site: Site, ctx: Context) -> dict[str, Tensor]:
        """At the site, after training: update its state; return the fields beside the model."""
        del site, ctx
        return {}

    def open(self, server: Server, ctx: Context) -> dict[str, Tensor]:
        """At the server, before a round: what goes down."""
        del ctx
        return server.make_model_message()

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """At the server, after a round with at least one accepted update: what becomes of it."""
        del ctx
        server.write(sums.model)
        return {}


METHODS: Registry[type[Method]] = Registry("method", "method.name")


def make_method(config: schema.Config, source: str = "config") -> Method:
    """The method of a configuration, its options checked."""
    kind = METHODS[config.method.name]
    return kind(config.read_options(kind.Options, config.method.options), source)


def resolve_method_options(loaded: Loaded) -> schema.Config:
    """A configuration with the method's own options and optimizer filled in."""
    config = loaded.config
    method = make_method(config, loaded.source)
    rates = method.optimizer.override_with(config.optimizer)
    options = {
        "name": config.method.name,
        **method.options.model_dump(mode="json", exclude_none=True),
    }
    optimizer = config.optimizer.model_copy(
        update={
            "name": rates.name,
            "lr": rates.lr,
            "momentum": rates.momentum,
            "weight_decay": rates.weight_decay,
            "parts": {
                part: schema.PartOptimizer(lr=lr, weight_decay=decay)
                for part, (lr, decay) in rates.parts.items()
            },
        }
    )
    return config.model_copy(
        update={"method": schema.Method.model_validate(options), "optimizer": optimizer}
    )
