"""The sigmoid LeNet of the gradient inversion literature (Zhu et al. 2019, "DLG")."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from vitrail.errors import DataError
from vitrail.models.backbone import BACKBONES, Backbone, Norm, Step
from vitrail.models.backbones.layers import resolve_width


class LeNet(Backbone):
    """Three convolutions 5x5 with sigmoids and no pooling: smooth, so its gradient can be matched.

    Its classifier reads every pixel of the map instead of the mean over the map, because the
    published attacks do; that ties the classifier to one image size.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__(width)
        self.stage1 = _stage(in_channels, width, stride=2)
        self.stage2 = _stage(width, width, stride=2)
        self.stage3 = _stage(width, width, stride=1)

    def stages(self) -> tuple[tuple[str, Step], ...]:
        """`stage1` to `stage3`; the map has a quarter of the image's side."""
        return ("stage1", self.stage1), ("stage2", self.stage2), ("stage3", self.stage3)

    def with_classifier(self, classes: int, image_size: int = 32) -> LeNet:
        """Add a linear layer over the flattened map of square images of `image_size` pixels."""
        side = -(-image_size // 4)
        self.add_module(self.linear_name, nn.Linear(self.channels * side * side, classes))
        return self

    def classify(self, z: Tensor) -> Tensor:
        """The feature map, pixel by pixel, to logits."""
        linear = getattr(self, self.linear_name)
        flat = torch.flatten(z, 1)
        if flat.shape[1] != linear.in_features:
            raise DataError(
                "LeNet's classifier does not fit images of up to "
                f"{4 * z.shape[3]} x {4 * z.shape[2]} pixels",
                where="data.image_size",
                hint="Build it as LeNet(in_channels, width).with_classifier(classes, image_size).",
            )
        logits: Tensor = linear(flat)
        return logits


def _stage(before: int, after: int, stride: int) -> nn.Sequential:
    layers = OrderedDict[str, nn.Module]()
    layers["conv"] = nn.Conv2d(before, after, 5, stride=stride, padding=2)
    layers["sigmoid"] = nn.Sigmoid()
    return nn.Sequential(layers)


@torch.no_grad()
def uniform_(module: nn.Module, bound: float, generator: torch.Generator) -> None:
    """Redraw all parameters uniformly from [-bound, bound]; the attacks use a bound of 0.5."""
    for parameter in module.parameters():
        parameter.uniform_(-bound, bound, generator=generator)


@BACKBONES.register("lenet")
def lenet(
    in_channels: int = 3,
    width: int | None = None,
    norm: Norm = "batch",  # noqa: ARG001
) -> LeNet:
    """`width` channels throughout; `norm` changes nothing, there is none to choose."""
    return LeNet(in_channels, resolve_width(width, 12))
