"""Heads: what turns a feature map into logits, and the loss that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.registry import Registry

Outputs = dict[str, Tensor]


class Head(nn.Module):
    """The end of a network. Subclasses say which of their tensors are prototypes."""

    prototypes: tuple[str, ...] = ()
    geometries: Mapping[str, str] = {}
    statistics: tuple[str, ...] = ()  # buffers that change and may travel
    penalties: tuple[str, ...] = ()  # terms of the loss that see no data

    def reduce(self, z: Tensor) -> Tensor:
        """The parameter-free first step; with a frozen backbone its result is what is cached."""
        return z

    def forward(self, z: Tensor) -> Outputs:
        """A reduced map to outputs; `outputs["logits"]` is [N, classes]."""
        raise NotImplementedError(f"{type(self).__name__} must define forward")

    def loss(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """The weighted terms of the training loss, by name; training minimizes their sum."""
        return {"cross_entropy": F.cross_entropy(outputs["logits"], labels)}

    def compute_metrics(self) -> dict[str, float]:
        """What can be said about its tensors alone, for the metrics."""
        return {}


HeadBuilder = Callable[[int, int, Model], tuple[nn.Module, Head]]
HEADS: Registry[HeadBuilder] = Registry("model", "method.model")


class LinearHead(Head):
    """Global average pooling and one linear layer: the black box the others are compared with."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, channels))
        self.bias = nn.Parameter(torch.empty(classes))
        bound = channels**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def reduce(self, z: Tensor) -> Tensor:
        """The mean over positions, [N, channels]."""
        return z.mean((2, 3))

    def forward(self, z: Tensor) -> Outputs:
        """Pooled features to logits; the features too, for losses that look at them."""
        return {"logits": F.linear(z, self.weight, self.bias), "features": z}


@HEADS.register("linear")
def linear(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """No neck and a linear head."""
    del model
    return nn.Identity(), LinearHead(channels, classes)
