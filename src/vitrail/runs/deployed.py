"""A trained network together with its preprocessing: a plain module from pixels to logits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitrail.data.normalize import Normalize
from vitrail.errors import DataError
from vitrail.models.network import Network

_SLACK = 1e-4  # of a range, for rounding


def _is_recorded() -> bool:
    """Whether an exporter writes down what is computed, so that values cannot be looked at."""
    is_traced = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return bool(torch.compiler.is_compiling() or is_traced)


def _check_range(x: Tensor) -> None:
    """Refuse floats that cannot be pixels from 0 to 1: their logits would mean nothing."""
    low, high = (float(v) for v in torch.aminmax(x.detach())) if x.numel() else (0.0, 1.0)
    if not (low >= -_SLACK and high <= 1 + _SLACK):  # NaN fails every comparison
        raise DataError(
            f"pixels as floats must lie between 0 and 1, and these go from {low:.4g} to {high:.4g}",
            hint="Divide pixels from 0 to 255 by 255 or give them as uint8, do not normalize them, "
            "and clamp what a resize overshot.",
        )


class DeployedModel(nn.Module):
    """Pixels in, logits out. Takes uint8 in 0..255 or floats in 0..1, as [N, C, H, W]; floats out
    of that range are refused."""

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
        elif not _is_recorded():
            _check_range(x)
        logits: Tensor = self.network((x - self.shift) / self.scale)
        return logits

    @torch.no_grad()
    def probabilities(self, x: Tensor) -> Tensor:
        """Softmax of the logits."""
        return torch.softmax(self(x), dim=1)
