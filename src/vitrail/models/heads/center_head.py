"""A linear head that also holds a center for each class: the mean of its features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.models.heads.head import HEADS, Head, LinearHead, Outputs

PULL = 1.0


class CenterHead(LinearHead):
    """Linear logits; features of a class are drawn to its center, where somebody has one.

    FedProto (Tan et al. 2022, arXiv:2105.00243). `centers` are [classes, channels]; `seen` is the
    share of images that each came from, 0 for a center that nobody has.
    """

    prototypes = ("centers", "seen")
    statistics = ("centers", "seen")
    centers: Tensor
    seen: Tensor

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__(channels, classes)
        self.register_buffer("centers", torch.zeros(classes, channels))
        self.register_buffer("seen", torch.zeros(classes))

    def loss(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """Cross entropy, and the squared distance of each class's batch mean to its center."""
        terms = super().loss(outputs, labels)
        z, classes = outputs["features"], len(self.seen)
        count = torch.bincount(labels, minlength=classes).to(z.dtype)
        total = z.new_zeros(classes, z.shape[1]).index_add(0, labels, z)
        known = ((count > 0) & (self.seen > 0)).to(z.dtype)
        gap = (total / count.clamp(min=1)[:, None] - self.centers).square().mean(1)
        return {**terms, "centers": PULL * (gap * known).sum() / known.sum().clamp(min=1)}


@HEADS.register("centers")
def centers(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """No neck, a linear head with centers."""
    del model
    return nn.Identity(), CenterHead(channels, classes)
