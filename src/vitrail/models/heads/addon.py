"""The neck of part-based models: two 1x1 convolutions that bring features to a few channels."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

import torch
from torch import nn

Activation = Literal["sigmoid", "none"]


def make_addon(
    channels: int, depth: int, activation: Activation, gain: float = 1.0
) -> nn.Sequential:
    """1x1 convolution, ReLU, 1x1 convolution, and a sigmoid if asked for (Chen et al. 2019).

    Kaiming normal in fan-out mode, times `gain`, zero bias.
    """
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = nn.Conv2d(channels, depth, 1)
    layers["relu"] = nn.ReLU()
    layers["conv2"] = nn.Conv2d(depth, depth, 1)
    if activation == "sigmoid":
        layers["sigmoid"] = nn.Sigmoid()
    neck = nn.Sequential(layers)
    initialize(neck, gain)
    return neck


@torch.no_grad()
def initialize(neck: nn.Module, gain: float = 1.0) -> None:
    """Draw the convolutions anew from the generator in force."""
    for layer in neck.modules():
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            layer.weight.mul_(gain)
            nn.init.zeros_(layer.bias)
