"""A classifier that never changes: orthonormal directions on the unit sphere of features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.errors import ConfigError
from vitrail.models.heads.head import HEADS, Head, Outputs


class SphereHead(Head):
    """Logits are cosines with fixed orthonormal rows; the loss is their squared error.

    SphereFed (Dong et al. 2022, arXiv:2207.09413). All sites build the same rows from the run's
    seed, and nobody sends or trains them.
    """

    weight: Tensor

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        if classes > channels:
            raise ConfigError(
                f"{classes} classes have no orthogonal directions among {channels} channels",
                where="model.backbone",
                hint="Use a wider backbone.",
            )
        rows = torch.linalg.qr(torch.randn(channels, classes)).Q.T
        self.register_buffer("weight", rows.contiguous())

    def reduce(self, z: Tensor) -> Tensor:
        """The mean over positions."""
        return z.mean((2, 3))

    def forward(self, z: Tensor) -> Outputs:
        """Cosines between features and the classes' directions."""
        return {"logits": F.linear(F.normalize(z, dim=1), self.weight)}

    def loss(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """The squared error to a one-hot vector, summed over classes."""
        logits = outputs["logits"]
        target = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return {"squared_error": (logits - target).square().sum(1).mean()}


@HEADS.register("sphere")
def sphere(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """No neck and a classifier that is not trained."""
    del model
    return nn.Identity(), SphereHead(channels, classes)
