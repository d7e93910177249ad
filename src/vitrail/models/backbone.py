"""What a backbone is: an ordered list of named stages from an image to a map of features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from vitrail.registry import Registry

Norm = Literal["batch", "group"]
Step = Callable[[Tensor], Tensor]


class Backbone(nn.Module):
    """A network without pooling and classifier, as a chain of stages that can be cut anywhere.

    Tensor names are those of the torchvision family it belongs to. `linear_name` is what that
    family calls its last linear layer; `with_classifier` adds one, and `forward` then gives
    logits instead of the feature map.
    """

    linear_name = "fc"

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def stages(self) -> tuple[tuple[str, Step], ...]:
        """The named steps in order; running them all gives the feature map [N, channels, h, w]."""
        raise NotImplementedError(f"{type(self).__name__} must list its stages")

    def owners(self) -> dict[str, str]:
        """Which stage each direct child belongs to; a child named like a stage needs no entry."""
        return {}

    def stage_of(self, tensor: str) -> str:
        """The stage that owns a tensor, by the tensor's name."""
        child = tensor.split(".", 1)[0]
        return self.owners().get(child, child)

    def features(self, x: Tensor) -> Tensor:
        """Images [N, C, H, W] to the feature map [N, channels, h, w]."""
        for _, step in self.stages():
            x = step(x)
        return x

    def with_classifier(self, classes: int) -> Backbone:
        """Add the family's linear layer, for use as a plain classifier."""
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.add_module(self.linear_name, nn.Linear(self.channels, classes))
        return self

    def classify(self, z: Tensor) -> Tensor:
        """The feature map to logits, once there is a classifier."""
        logits: Tensor = getattr(self, self.linear_name)(torch.flatten(self.avgpool(z), 1))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """The feature map, or the logits once there is a classifier."""
        z = self.features(x)
        return self.classify(z) if hasattr(self, self.linear_name) else z


class Builder(Protocol):
    """Makes a backbone; `width` is the number of channels of its first stage."""

    def __call__(
        self, in_channels: int = 3, width: int | None = None, norm: Norm = "batch"
    ) -> Backbone:
        """Build with fresh weights from torch's global generator."""
        ...


BACKBONES: Registry[Builder] = Registry("backbone", "model.backbone")


def make_norm(channels: int, norm: Norm) -> nn.Module:
    """A BatchNorm layer, or a GroupNorm with at most 8 channels a group in its place."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    groups = next(g for g in range(max(1, channels // 8), 0, -1) if channels % g == 0)
    return nn.GroupNorm(groups, channels)
