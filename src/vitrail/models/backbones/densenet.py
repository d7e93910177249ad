"""Densely connected networks (Huang et al. 2017) with torchvision's tensor names."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from vitrail.models.backbone import BACKBONES, Norm, make_norm
from vitrail.models.backbones.layers import Concat, initialize, require_image_size, resolve_width
from vitrail.models.backbones.trunk import Trunk

_BOTTLENECK = 4  # a layer's 1x1 convolution gives this many times the growth


class DenseLayer(nn.Module):
    """`growth` new channels, computed from all channels so far and put behind them."""

    def __init__(self, before: int, growth: int, norm: Norm) -> None:
        super().__init__()
        inner = _BOTTLENECK * growth
        self.norm1 = make_norm(before, norm)
        self.relu1 = nn.ReLU()
        self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
        self.norm2 = make_norm(inner, norm)
        self.relu2 = nn.ReLU()
        self.conv2 = nn.Conv2d(inner, growth, 3, padding=1, bias=False)
        self.concat = Concat()

    def forward(self, x: Tensor) -> Tensor:
        """[N, before, h, w] to [N, before + growth, h, w]."""
        z = self.conv1(self.relu1(self.norm1(x)))
        z = self.conv2(self.relu2(self.norm2(z)))
        out: Tensor = self.concat(x, z)
        return out


def _dense_block(before: int, depth: int, growth: int, norm: Norm) -> nn.Sequential:
    layers = (DenseLayer(before + i * growth, growth, norm) for i in range(depth))
    return nn.Sequential(OrderedDict((f"denselayer{i}", k) for i, k in enumerate(layers, 1)))


def _transition(before: int, after: int, norm: Norm) -> nn.Sequential:
    layers = OrderedDict[str, nn.Module]()
    layers["norm"] = make_norm(before, norm)
    layers["relu"] = nn.ReLU()
    layers["conv"] = nn.Conv2d(before, after, 1, bias=False)
    layers["pool"] = nn.AvgPool2d(2)
    return nn.Sequential(layers)


class DenseNet(Trunk):
    """A stem and four dense blocks; each but the last ends in a transition that halves it."""

    def __init__(
        self, depths: tuple[int, int, int, int], in_channels: int, width: int, norm: Norm
    ) -> None:
        stages: dict[str, dict[str, nn.Module]] = {
            "stem": {
                "conv0": nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False),
                "norm0": make_norm(width, norm),
                "relu0": nn.ReLU(),
                "pool0": nn.MaxPool2d(3, stride=2, padding=1),
            }
        }
        channels, growth = width, width // 2
        for i, depth in enumerate(depths, 1):
            name = f"denseblock{i}"
            stages[name] = {name: _dense_block(channels, depth, growth, norm)}
            channels += depth * growth
            if i < len(depths):
                stages[name][f"transition{i}"] = _transition(channels, channels // 2, norm)
                channels //= 2
        stages[name] |= {"norm5": make_norm(channels, norm), "relu5": nn.ReLU()}
        super().__init__(channels, stages)
        initialize(self, "fan_in")
        require_image_size(self.features[0], 29)


@BACKBONES.register("densenet121")
def densenet121(in_channels: int = 3, width: int | None = None, norm: Norm = "batch") -> DenseNet:
    """torchvision's densenet121; the growth is half the width."""
    return DenseNet((6, 12, 24, 16), in_channels, resolve_width(width, 64, smallest=2), norm)
