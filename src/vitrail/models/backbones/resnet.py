"""Residual networks (He et al. 2016) with torchvision's tensor names."""

from __future__ import annotations

from torch import Tensor, nn

from vitrail.models.backbone import BACKBONES, Backbone, Norm, Step, make_norm
from vitrail.models.backbones.layers import Sum, initialize, resolve_width


class BasicBlock(nn.Module):
    """Two convolutions 3x3 beside a shortcut."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = make_norm(width, norm)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = make_norm(width, norm)
        self.downsample = _shortcut(before, width, stride, norm)
        self.sum = Sum()
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, after the sum and its ReLU."""
        z = self.relu1(self.bn1(self.conv1(x)))
        z = self.bn2(self.conv2(z))
        out: Tensor = self.relu2(self.sum(z, self.downsample(x)))
        return out


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 beside a shortcut; the stride sits in the 3x3, as torchvision has it."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int, norm: Norm) -> None:
        super().__init__()
        after = self.expansion * width
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = make_norm(width, norm)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = make_norm(width, norm)
        self.relu2 = nn.ReLU()
        self.conv3 = nn.Conv2d(width, after, 1, bias=False)
        self.bn3 = make_norm(after, norm)
        self.downsample = _shortcut(before, after, stride, norm)
        self.sum = Sum()
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, after the sum and its ReLU."""
        z = self.relu1(self.bn1(self.conv1(x)))
        z = self.relu2(self.bn2(self.conv2(z)))
        z = self.bn3(self.conv3(z))
        out: Tensor = self.relu3(self.sum(z, self.downsample(x)))
        return out


def _shortcut(before: int, after: int, stride: int, norm: Norm) -> nn.Module:
    if stride == 1 and before == after:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(before, after, 1, stride=stride, bias=False), make_norm(after, norm)
    )


Block = type[BasicBlock] | type[Bottleneck]


class ResNet(Backbone):
    """A stem and four layers of residual blocks, at 1, 2, 4 and 8 times the first width.

    The `small` stem, a single 3x3 convolution, keeps the size of the image; the other is
    torchvision's 7x7 with stride 2 and max pooling.
    """

    def __init__(
        self,
        block: Block,
        depths: tuple[int, int, int, int],
        in_channels: int,
        width: int,
        norm: Norm,
        small: bool = False,
    ) -> None:
        super().__init__(8 * width * block.expansion)
        kernel, stride = (3, 1) if small else (7, 2)
        self.conv1 = nn.Conv2d(
            in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False
        )
        self.bn1 = make_norm(width, norm)
        self.relu = nn.ReLU()
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        wide = width * block.expansion
        self.layer1 = _layer(block, depths[0], width, width, 1, norm)
        self.layer2 = _layer(block, depths[1], wide, 2 * width, 2, norm)
        self.layer3 = _layer(block, depths[2], 2 * wide, 4 * width, 2, norm)
        self.layer4 = _layer(block, depths[3], 4 * wide, 8 * width, 2, norm)
        initialize(self)

    def stages(self) -> tuple[tuple[str, Step], ...]:
        """`stem`, then `layer1` to `layer4`."""
        return (
            ("stem", self._stem),
            ("layer1", self.layer1),
            ("layer2", self.layer2),
            ("layer3", self.layer3),
            ("layer4", self.layer4),
        )

    def owners(self) -> dict[str, str]:
        """The layers of the stem lie directly in the network."""
        return dict.fromkeys(("conv1", "bn1", "relu", "maxpool"), "stem")

    def _stem(self, x: Tensor) -> Tensor:
        out: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return out


def _layer(
    block: Block, depth: int, before: int, width: int, stride: int, norm: Norm
) -> nn.Sequential:
    after = width * block.expansion
    rest = (block(after, width, 1, norm) for _ in range(depth - 1))
    return nn.Sequential(block(before, width, stride, norm), *rest)


@BACKBONES.register("resnet8")
def resnet8(in_channels: int = 3, width: int | None = None, norm: Norm = "batch") -> ResNet:
    """One basic block a layer behind a 3x3 stem: a residual network for small images."""
    width = resolve_width(width, 16)
    return ResNet(BasicBlock, (1, 1, 1, 1), in_channels, width, norm, small=True)


@BACKBONES.register("resnet18")
def resnet18(in_channels: int = 3, width: int | None = None, norm: Norm = "batch") -> ResNet:
    """torchvision's resnet18."""
    return ResNet(BasicBlock, (2, 2, 2, 2), in_channels, resolve_width(width, 64), norm)


@BACKBONES.register("resnet50")
def resnet50(in_channels: int = 3, width: int | None = None, norm: Norm = "batch") -> ResNet:
    """torchvision's resnet50."""
    return ResNet(Bottleneck, (3, 4, 6, 3), in_channels, resolve_width(width, 64), norm)
