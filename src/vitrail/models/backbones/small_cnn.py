"""A modest convolutional net for images of 28 to 64 pixels, quick on a CPU."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from vitrail.models.backbone import BACKBONES, Backbone, Norm, Step
from vitrail.models.backbones.layers import initialize, require_image_size, resolve_width


class SmallCNN(Backbone):
    """Three stages of convolution 3x3, max pooling and ReLU; no normalization anywhere."""

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__(2 * width)
        self.stage1 = _stage(in_channels, width)
        self.stage2 = _stage(width, 2 * width)
        self.stage3 = _stage(2 * width, 2 * width)
        initialize(self, "fan_in")
        require_image_size(self.stage1, 8)

    def stages(self) -> tuple[tuple[str, Step], ...]:
        """`stage1` to `stage3`, each halving the image."""
        return ("stage1", self.stage1), ("stage2", self.stage2), ("stage3", self.stage3)


def _stage(before: int, after: int) -> nn.Sequential:
    layers = OrderedDict[str, nn.Module]()
    layers["conv"] = nn.Conv2d(before, after, 3, padding=1)
    layers["pool"] = nn.MaxPool2d(2)
    layers["relu"] = nn.ReLU()  # the larger of two, then ReLU, is ReLU, then the larger: 1/4 of it
    return nn.Sequential(layers)


@BACKBONES.register("small-cnn")
def small_cnn(
    in_channels: int = 3,
    width: int | None = None,
    norm: Norm = "batch",  # noqa: ARG001
) -> SmallCNN:
    """Channels width, 2 width, 2 width; `norm` changes nothing, there is none to choose."""
    return SmallCNN(in_channels, resolve_width(width, 32))
