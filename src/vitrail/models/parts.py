"""Parts: every tensor of a network belongs to exactly one part and has exactly one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from vitrail.models.network import Network

Part = Literal["backbone", "neck", "prototypes", "head"]
Kind = Literal["weight", "norm", "statistic", "counter", "constant"]
PARTS: tuple[Part, ...] = ("backbone", "neck", "prototypes", "head")
KINDS: tuple[Kind, ...] = ("weight", "norm", "statistic", "counter", "constant")

NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a network: where it belongs and how it may be changed."""

    name: str
    shape: tuple[int, ...]
    part: Part
    kind: Kind
    geometry: str
    trainable: bool
    frozen: bool
    stage: str = ""  # of the backbone, "" elsewhere

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(torch.Size(self.shape).numel())

    @property
    def moves(self) -> bool:
        """Whether training can change it and a site could send it."""
        return not self.frozen and self.kind in ("weight", "norm", "statistic")


def list_tensors(network: Network) -> tuple[TensorSpec, ...]:
    """Every tensor of the network, parameters and buffers, with its part, kind and geometry."""
    norms = {name for name, module in network.named_modules() if isinstance(module, NORMS)}
    parameters = dict(network.named_parameters())
    specs = []
    for name, tensor in network.state_dict().items():
        owner, _, leaf = name.rpartition(".")
        part = _part(name, network)
        specs.append(
            TensorSpec(
                name=name,
                shape=tuple(tensor.shape),
                part=part,
                kind=_kind(
                    tensor,
                    name in parameters,
                    owner in norms or name.removeprefix("head.") in network.head.statistics,
                ),
                geometry=network.head.geometries.get(leaf, "euclidean")
                if part == "prototypes"
                else "euclidean",
                trainable=name in parameters,
                frozen=network.is_frozen(name),
                stage=_stage(name, network),
            )
        )
    return tuple(specs)


def _stage(name: str, network: Network) -> str:
    inside = name.removeprefix("backbone.")
    return network.backbone.stage_of(inside) if inside != name else ""


def _part(name: str, network: Network) -> Part:
    first, _, rest = name.partition(".")
    if first == "backbone":
        return "backbone"
    if first == "neck":
        return "neck"
    return "prototypes" if rest in network.head.prototypes else "head"


def _kind(tensor: torch.Tensor, is_parameter: bool, is_statistic: bool) -> Kind:
    if is_parameter:
        return "norm" if is_statistic else "weight"
    if is_statistic:
        return "statistic" if tensor.is_floating_point() else "counter"
    return "constant"
