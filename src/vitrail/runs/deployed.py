"""A trained network together with its preprocessing: a plain module from pixels to logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data.normalize import Normalize
from vitrail.models.network import Network


class DeployedModel(nn.Module):
    """Pixels in, logits out. Takes uint8 in 0..255 or floats in 0..1, as [N, C, H, W]."""

    shift: Tensor
    scale: Tensor

    def __init__(self, network: Network, normalize: Normalize, card: dict[str, Any]) -> None:
        super().__init__()
        self.network = network
        self.card = card
        self.classes: tuple[str, ...] = tuple(card["classes"])
        self.image_size: int = card["image_size"]
        self.channels: int = card["channels"]
        shape = (1, -1, 1, 1)
        self.register_buffer(
            "shift", torch.tensor(normalize.shift).view(shape) / 255, persistent=False
        )
        self.register_buffer(
            "scale", torch.tensor(normalize.scale).view(shape) / 255, persistent=False
        )
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Logits [N, classes], in the order of `classes`."""
        if not x.is_floating_point():
            x = x.to(torch.float32) / 255
        logits: Tensor = self.network((x - self.shift) / self.scale)
        return logits

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """Softmax of the logits."""
        return torch.softmax(self(x), dim=1)
