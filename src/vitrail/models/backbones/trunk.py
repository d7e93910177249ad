"""The shape DenseNet and VGG share in torchvision: every layer lies in one child, `features`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import cast

from torch import nn

from vitrail.models.backbone import Backbone, Step
from vitrail.models.backbones.layers import run_layers


class Trunk(Backbone):
    """A backbone given as named stages of named layers, all kept in the child `features`.

    That child takes the place of the method of the same name: called with images, it gives
    the feature map. So `get_submodule("features.0")` and `functional_call` find it.
    """

    linear_name = "classifier"

    def __init__(self, channels: int, stages: Mapping[str, Mapping[str, nn.Module]]) -> None:
        super().__init__(channels)
        layers = OrderedDict((k, layer) for stage in stages.values() for k, layer in stage.items())
        self.add_module("features", nn.Sequential(layers))
        self._stage = {k: stage for stage, layers in stages.items() for k in layers}

    @property
    def features(self) -> nn.Sequential:
        """The trunk itself, images [N, C, H, W] to the feature map [N, channels, h, w]."""
        return cast(nn.Sequential, nn.Module.__getattr__(self, "features"))

    def stages(self) -> tuple[tuple[str, Step], ...]:
        """The stages in the order they were given."""
        groups: dict[str, list[nn.Module]] = {}
        for name, layer in self.features.named_children():
            groups.setdefault(self._stage[name], []).append(layer)
        return tuple((stage, partial(run_layers, layers)) for stage, layers in groups.items())

    def stage_of(self, tensor: str) -> str:
        """The stage of a tensor, by the second part of its name: `features.conv0.weight`."""
        child, *rest = tensor.split(".")
        return self._stage[rest[0]] if child == "features" and rest else child
