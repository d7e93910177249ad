"""What heads with one frame a class share: how frames start, and how patches meet them."""

from __future__ import annotations

from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config.schema import Subspaces
from vitrail.errors import ConfigError
from vitrail.geometry import orthonormalize
from vitrail.models.heads.addon import initialize
from vitrail.models.heads.lifted_patches import LiftedPatches, draw_lifted_frames


class FusedConvolutions(nn.Sequential):
    """Two 1x1 convolutions with nothing between them, applied as the one that they are.

    The product of their weights is small beside the maps, so a pass over wide features costs as
    if the layer between were not there; gradients reach both through the product.
    """

    conv1: nn.Conv2d
    conv2: nn.Conv2d

    def forward(self, z: Tensor) -> Tensor:
        """conv2(conv1(z)), and what follows them, to rounding."""
        first, second = self.conv1, self.conv2
        assert first.bias is not None and second.bias is not None
        outer = second.weight.flatten(1)
        weight = outer @ first.weight.flatten(1)
        z = F.conv2d(z, weight[:, :, None, None], torch.mv(outer, first.bias) + second.bias)
        for layer in list(self)[2:]:
            z = layer(z)
        return z


def make_neck(channels: int, options: Subspaces) -> tuple[nn.Module, int]:
    """What makes patches of features, and how many channels they have then: two convolutions or
    none, and a constant channel if asked for."""
    if options.neck == "none":
        lifted = LiftedPatches(options.gain, options.lift)
        return lifted, channels + (1 if options.lift else 0)
    neck = make_bottleneck(channels, options)
    if options.lift:
        neck.add_module("lifted", LiftedPatches(1.0, options.lift))
    return neck, options.depth + (1 if options.lift else 0)


def make_bottleneck(channels: int, options: Subspaces) -> nn.Sequential:
    """Two 1x1 convolutions to the depth of a patch, with a width of their own between them.

    A ReLU over as few channels as a patch has costs more accuracy than anything else here.
    """
    layers = OrderedDict[str, nn.Module]()
    layers["conv1"] = nn.Conv2d(channels, options.hidden, 1)
    if options.between == "relu":
        layers["relu"] = nn.ReLU()
    layers["conv2"] = nn.Conv2d(options.hidden, options.depth, 1)
    if options.activation == "sigmoid":
        layers["sigmoid"] = nn.Sigmoid()
    neck = nn.Sequential(layers) if options.between == "relu" else FusedConvolutions(layers)
    initialize(neck, options.gain)
    return neck


def draw_starting_frames(classes: int, n: int, p: int, where: str, lifted: bool = False) -> Tensor:
    """Frames [classes, n, p]: Q of one Gaussian from the generator in force; of lifted patches
    those that begin at the constant channel.

    That generator is seeded by the server's key, so every site starts with the same ones.
    """
    if p > n:
        raise ConfigError(
            f"a class cannot have {p} orthogonal directions in {n} channels",
            where=where,
            hint=f"At most {n}, or more channels (depth).",
        )
    if lifted:
        return draw_lifted_frames(classes, n, p)
    return orthonormalize(torch.randn(classes, n, p))


def compute_coordinates(z: Tensor, frames: Tensor) -> Tensor:
    """U_c^T z of every patch of [N, n, H, W] and class, as [N, classes, p, H, W].

    One 1x1 convolution with classes x p filters.
    """
    classes, n, p = frames.shape
    filters = frames.transpose(1, 2).reshape(classes * p, n)  # ONNX has no mT
    flat = F.conv2d(z, filters[:, :, None, None])
    return flat.reshape(z.shape[0], classes, p, *z.shape[2:])
