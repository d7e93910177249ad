"""Small layers that the backbones share, each a module of its own so that hooks can see it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.errors import ConfigError, DataError


class Sum(nn.Module):
    """The sum of two tensors, where a residual branch meets its shortcut."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Add the two."""
        return left + right


class Concat(nn.Module):
    """Two maps put together along their channels."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """The channels of `left`, then those of `right`."""
        return torch.cat((left, right), 1)


class SamePad(nn.Module):
    """TensorFlow's "same" padding for a strided convolution: the odd pixel goes right and below."""

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.stride = stride

    def _sides(self, size: int) -> tuple[int, int]:
        total = max((math.ceil(size / self.stride) - 1) * self.stride + self.kernel - size, 0)
        return total // 2, total - total // 2

    def forward(self, x: Tensor) -> Tensor:
        """Pad so that the convolution gives ceil(size / stride) pixels."""
        return F.pad(x, (*self._sides(x.shape[-1]), *self._sides(x.shape[-2])))


def run_layers(layers: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Run layers one after the other, without a container that would have to be registered."""
    for layer in layers:
        x = layer(x)
    return x


def initialize(module: nn.Module, mode: Literal["fan_in", "fan_out"] = "fan_out") -> None:
    """Draw every convolution from He's normal distribution and set its bias to zero.

    Unlike torch's own, `fan_out` counts the outputs within a group, so that depthwise
    convolutions do not start near zero.
    """
    for layer in module.modules():
        if not isinstance(layer, nn.Conv2d):
            continue
        ends = layer.in_channels if mode == "fan_in" else layer.out_channels
        fan = ends // layer.groups * math.prod(layer.kernel_size)
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2.0 / fan))
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


def resolve_width(width: int | None, default: int, smallest: int = 1) -> int:
    """The channels of the first stage: as asked for, or the family's own."""
    if width is None:
        return default
    if width < smallest:
        raise ConfigError(
            f"a width of {width} leaves a layer without channels",
            where="model.width",
            hint=f"Use {smallest} or more; the default here is {default}.",
        )
    return width


def require_image_size(module: nn.Module, pixels: int) -> None:
    """Make `module` refuse images under `pixels` in a sentence, before a pooling layer fails."""
    module.register_forward_pre_hook(partial(_refuse_small, pixels))


def _refuse_small(pixels: int, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    height, width = inputs[0].shape[-2:]
    if min(height, width) < pixels:
        raise DataError(
            f"images of {width} x {height} pixels are too small for this backbone",
            where="data.image_size",
            hint=f"Use at least {pixels}, or a backbone with fewer pooling layers such as resnet8.",
        )
