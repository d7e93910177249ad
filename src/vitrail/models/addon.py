"""The neck of part-based models: two 1x1 convolutions that bring features to a few channels."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn

Activation = Literal["sigmoid", "none"]


def addon(channels: int, depth: int, activation: Activation) -> nn.Sequential:
    """1x1 convolution, ReLU, 1x1 convolution, and a sigmoid if asked for (Chen et al. 2019).

    Kaiming normal in fan-out mode, zero bias.
    """
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = nn.Conv2d(channels, depth, 1)
    layers["relu"] = nn.ReLU()
    layers["conv2"] = nn.Conv2d(depth, depth, 1)
    if activation == "sigmoid":
        layers["sigmoid"] = nn.Sigmoid()
    neck = nn.Sequential(layers)
    initialize(neck)
    return neck


def initialize(neck: nn.Module) -> None:
    """Draw the convolutions anew from the generator in force."""
    for layer in neck.modules():
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(layer.bias)
