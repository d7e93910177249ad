"""A scale and a shift for each channel, which a site keeps for itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.models.heads.head import HEADS, Head, LinearHead


class Affine(nn.Module):
    """z * scale + shift by channel; it begins as the identity."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, z: Tensor) -> Tensor:
        """[N, C, H, W], channel by channel."""
        return z * self.scale[:, None, None] + self.shift[:, None, None]

    def compute_metrics(self) -> dict[str, float]:
        """How far it is from the identity: what this site corrects about the shared features."""
        gap = torch.cat([self.scale.detach() - 1, self.shift.detach()])
        return {"affine_shift": float(torch.linalg.vector_norm(gap))}


@HEADS.register("affine")
def affine(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """An affine neck and a linear head."""
    del model
    return Affine(channels), LinearHead(channels, classes)
