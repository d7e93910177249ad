"""The VGG network (Simonyan and Zisserman 2015) with torchvision's tensor names."""

from __future__ import annotations

from torch import nn

from vitrail.models.backbone import BACKBONES, Norm
from vitrail.models.backbones.layers import initialize, require_image_size, resolve_width
from vitrail.models.backbones.trunk import Trunk


class VGG(Trunk):
    """Five blocks of convolutions 3x3, each ending in max pooling; no normalization.

    torchvision's three fully connected layers are not part of it: like every backbone here it
    ends in a map, and `with_classifier` adds one linear layer over the mean of that map.
    """

    def __init__(self, depths: tuple[int, ...], in_channels: int, width: int) -> None:
        stages: dict[str, dict[str, nn.Module]] = {}
        before, index = in_channels, 0
        for i, depth in enumerate(depths):
            after = width * min(2**i, 8)
            layers: list[nn.Module] = []
            for _ in range(depth):
                layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU()]
                before = after
            layers.append(nn.MaxPool2d(2))
            stages[f"block{i + 1}"] = {str(index + k): layer for k, layer in enumerate(layers)}
            index += len(layers)
        super().__init__(before, stages)
        initialize(self)
        require_image_size(self.features[0], 2 ** len(depths))


@BACKBONES.register("vgg19")
def vgg19(
    in_channels: int = 3,
    width: int | None = None,
    norm: Norm = "batch",  # noqa: ARG001
) -> VGG:
    """torchvision's vgg19 without BatchNorm; `norm` changes nothing, there is none to choose."""
    return VGG((2, 2, 4, 4, 4), in_channels, resolve_width(width, 64))
