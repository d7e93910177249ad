"""The setting of a run: all that a defense may know before the first round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from vitrail.config.schema import Config
from vitrail.models.flat import Layout
from vitrail.models.network import Network
from vitrail.models.parts import NORMS
from vitrail.release.message import Schema

MODEL = "model/"


@dataclass(frozen=True)
class StageSetting:
    """Some rounds that are played alike: what travels in them, and the names of the phases."""

    name: str
    first: int
    last: int
    schema: Schema
    answers: Mapping[str, str]  # by tensor: a rule, `home` or `frozen`
    arrive: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    closing: tuple[str, ...] = ()
    epochs: int = 1  # of training on the site's images in one turn
    loose: tuple[str, ...] = ()  # phases that change the model from images, but not by `Terms`


@dataclass(frozen=True)
class Conv:
    """A convolution of the network: the name and shape of its kernels [out, in, height, width].

    `block` is the module that holds it; a convolution in a shortcut belongs to the block around
    it. `last` is the last one of its block's own chain.
    """

    name: str
    shape: tuple[int, int, int, int]
    groups: int
    block: str
    last: bool
    frozen: bool

    @property
    def pointwise(self) -> bool:
        """Whether its kernels are 1x1, which have no frequencies to speak of."""
        return self.shape[2:] == (1, 1)


@dataclass(frozen=True)
class NormLayer:
    """A normalization layer: the module's name, its class (`BatchNorm2d`), and if it is frozen."""

    name: str
    kind: str
    frozen: bool

    @property
    def batch(self) -> bool:
        """Whether it mixes the images of a batch."""
        return "BatchNorm" in self.kind


@dataclass(frozen=True)
class Setting:
    """What is known of a run before its first round; the same in every process.

    `examples` are the training images of each site where they are known (at the engine's start),
    else empty.
    """

    config: Config
    layout: Layout
    stages: tuple[StageSetting, ...]
    classes: tuple[str, ...]
    channels: int
    needs: str = "sum"  # "all": the server works on every site's own model
    convs: tuple[Conv, ...] = ()
    norms: tuple[NormLayer, ...] = ()
    examples: Mapping[str, int] = field(default_factory=dict)
    told: tuple[str, ...] = ()  # exact numbers that the method makes every site tell

    def stage_at(self, round_: int) -> StageSetting:
        """The stage a round belongs to; after the last round, the last stage."""
        return next((s for s in self.stages if s.first <= round_ <= s.last), self.stages[-1])

    @property
    def method(self) -> str:
        """The name of the method."""
        return self.config.method.name

    @property
    def rounds(self) -> int:
        """How many rounds the run has."""
        return self.config.run.rounds

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of all tensors that leave a site in some stage, `model/TENSOR` and others."""
        return tuple(dict.fromkeys(f.name for s in self.stages for f in s.schema.up))

    @property
    def beside(self) -> tuple[str, ...]:
        """The tensors that leave beside the model."""
        return tuple(name for name in self.leaves if not name.startswith(MODEL))

    @property
    def proved(self) -> frozenset[str]:
        """The tensors that leave under a guarantee of their own."""
        return frozenset(f.name for s in self.stages for f in s.schema.up if f.proved)


def list_convs(network: Network) -> tuple[Conv, ...]:
    """The 2-D convolutions of a network, in the order of its modules."""
    convs = {n: m for n, m in network.named_modules() if isinstance(m, nn.Conv2d)}
    stages = {name: _find_stage(name, network) for name in convs}
    blocks = {name: _find_block(name, stages) for name in convs}
    ends = {}  # the last convolution that a block holds itself, stage by stage
    for name, block in blocks.items():
        if name.rpartition(".")[0] == block:
            ends[block, stages[name]] = name
    return tuple(
        Conv(
            f"{name}.weight",
            (conv.out_channels, conv.in_channels // conv.groups, *conv.kernel_size),  # type: ignore[arg-type]
            conv.groups,
            blocks[name],
            ends[blocks[name], stages[name]] == name,
            network.is_frozen(f"{name}.weight"),
        )
        for name, conv in convs.items()
    )


def _find_stage(name: str, network: Network) -> str:
    inside = name.removeprefix("backbone.")
    return network.backbone.stage_of(inside) if inside != name else ""


def _find_block(name: str, stages: Mapping[str, str]) -> str:
    """The outermost module around a convolution that holds one itself and lies in one stage."""
    steps = name.split(".")[:-1]
    for depth in range(1, len(steps)):
        around = ".".join(steps[:depth])
        inside = [other for other in stages if other.startswith(f"{around}.")]
        holds = any(other.rpartition(".")[0] == around for other in inside)
        if holds and len({stages[other] for other in inside}) == 1:
            return around
    return ".".join(steps)


def list_norms(network: Network) -> tuple[NormLayer, ...]:
    """The normalization layers of a network."""
    return tuple(
        NormLayer(name, type(module).__name__, network.is_frozen(f"{name}.weight"))
        for name, module in network.named_modules()
        if isinstance(module, NORMS)
    )
