"""The two networks of the speed comparison in plain PyTorch, with Vitrail's tensor names.

Nothing is imported from Vitrail, so that every environment can use this file; `check_same.py`
shows that both definitions are the same network.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Three times convolution 3x3, ReLU and max pooling; then the mean over pixels, then linear."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.stage1 = _stage(3, width)
        self.stage2 = _stage(width, 2 * width)
        self.stage3 = _stage(2 * width, 2 * width)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(_pooled(self.stage3(self.stage2(self.stage1(x)))))


def _stage(before: int, after: int) -> nn.Sequential:
    conv = nn.Conv2d(before, after, 3, padding=1)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    nn.init.zeros_(conv.bias)
    return nn.Sequential(OrderedDict(conv=conv, relu=nn.ReLU(), pool=nn.MaxPool2d(2)))


class Block(nn.Module):
    """Two convolutions 3x3 beside a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = nn.Identity()
        if stride != 1 or before != after:
            shortcut = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        z = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(z)) + self.downsample(x))


class ResNet8(nn.Module):
    """A 3x3 stem and four residual blocks, at 1, 2, 4 and 8 times the first width."""

    def __init__(self, classes: int, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = nn.Sequential(Block(width, width, 1))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2))
        self.layer3 = nn.Sequential(Block(2 * width, 4 * width, 2))
        self.layer4 = nn.Sequential(Block(4 * width, 8 * width, 2))
        self.fc = nn.Linear(8 * width, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        z = F.relu(self.bn1(self.conv1(x)))
        return self.fc(_pooled(self.layer4(self.layer3(self.layer2(self.layer1(z))))))


def _pooled(z: Tensor) -> Tensor:
    return torch.flatten(F.adaptive_avg_pool2d(z, 1), 1)


MODELS = {"small-cnn": SmallCNN, "resnet8": ResNet8}


def build(name: str, classes: int = 10) -> nn.Module:
    """One of the two networks with fresh weights, the same ones on every call."""
    with torch.random.fork_rng(devices=[]):
        torch.random.manual_seed(1)
        return MODELS[name](classes)
