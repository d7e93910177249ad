"""What a method is: a table, a few stages, and at most four verbs, FedAvg's being the defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from torch import Tensor

from vitrail.aggregate.sums import Sums
from vitrail.config import schema
from vitrail.config.load import Loaded, explain
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Metrics, Site
from vitrail.local.terms import Terms
from vitrail.methods.bench import Bench
from vitrail.methods.server import Server
from vitrail.methods.stage import Stage, Table
from vitrail.models.flat import Region
from vitrail.models.network import Network
from vitrail.registry import Registry
from vitrail.release.message import Field

Roster = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class About:
    """What a method may know of a run when it declares its messages: how many classes, the shape
    of an image [height, width, channels], the sides being `ANY` where nobody knows yet, the
    channels of the map that the head sees, whether stages before it are frozen, and whether some
    tensors stay at the sites, so that nobody else knows a site's network."""

    classes: int
    image: tuple[int, int, int]
    features: int
    frozen: bool = False
    home: bool = False


class Options(schema.Table):
    """The method's own keys in `[method]`; a subclass adds fields."""


class Method:
    """One way to train a federation. A subclass fills the table and overrides what differs."""

    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    Options: ClassVar[type[Options]] = Options
    table: ClassVar[Table] = {
        "backbone": "mean",
        "neck": "mean",
        "prototypes": "mean",
        "head": "mean",
    }
    model: ClassVar[str] = "linear"
    optimizer: OptimizerSettings = OptimizerSettings()
    weighting: ClassVar[Literal["examples", "uniform"]] = "examples"
    sends_global: ClassVar[bool] = True  # else sites can judge the global model at the end only
    exact: ClassVar[bool] = False  # its state is right for its own plain mean only
    needs: ClassVar[Literal["sum", "all"]] = "sum"  # "all": the server sees each site's model
    at_server: ClassVar[bool] = False  # whether the server trains too, on a bench of its own
    public: ClassVar[bool] = False  # whether it does so on the images of `[data.public]`
    counts: ClassVar[tuple[str, ...]] = ()
    pooled: ClassVar[bool] = False
    reference: ClassVar[bool] = False  # whether sites also train alone, for the audit

    def __init__(self, options: Mapping[str, Any], source: str = "config") -> None:
        try:
            self.options: Any = self.Options.model_validate_json(
                json.dumps(dict(options)), strict=True
            )
        except ValidationError as err:
            raise explain(err, source, self.Options, "method") from None

    def check(self, rates: OptimizerSettings) -> None:
        """Refuse optimizer settings under which the method would be wrong."""
        del rates

    def head(self) -> str:
        """The model it trains; methods that leave the choice open have an option for it."""
        return str(getattr(self.options, "model", self.model))

    def stages(self, run: schema.Run) -> tuple[Stage, ...]:
        """The stages in order; by default one that lasts the whole run."""
        del run
        return (Stage(),)

    def down_fields(self, shared: Region) -> tuple[Field, ...]:
        """What goes down beside the model. `shared` are the trainable numbers that travel."""
        del shared
        return ()

    def up_fields(self, shared: Region) -> tuple[Field, ...]:
        """What goes up beside the model."""
        del shared
        return ()

    def class_fields(self, classes: int) -> tuple[Field, ...]:
        """What goes up beside the model with one number a class."""
        del classes
        return ()

    def beside(self, stage: str, about: About) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        """What else goes down and up in one stage only: shared images, another model's tensors."""
        del stage, about
        return (), ()

    def check_network(self, network: Network, image: tuple[int, int, int]) -> None:
        """Refuse a network that the method cannot use on images [height, width, channels], before
        the run starts."""
        del network, image

    def check_sites(self, examples: Mapping[str, int], everybody: bool) -> None:
        """Refuse options that do not fit these sites of so many training images: all of them, or
        the one that plays here."""
        del examples, everybody

    def check_bench(self, bench: Bench) -> None:
        """Refuse public images that the method cannot use, before the run starts."""
        del bench

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
        return server.down()

    def close(self, server: Server, sums: Sums, ctx: Context) -> Metrics:
        """At the server, after a round with at least one accepted update: what becomes of it."""
        del ctx
        server.write(sums.model)
        return {}


METHODS: Registry[type[Method]] = Registry("method", "method.name")


def resolved(loaded: Loaded) -> schema.Config:
    """A configuration with the method's own options and optimizer filled in."""
    config = loaded.config
    method = METHODS[config.method.name](config.method.options, loaded.source)
    rates = method.optimizer.overridden(config.optimizer)
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
