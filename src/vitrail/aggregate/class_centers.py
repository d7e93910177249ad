"""The mean of class centers: each site counts for a class by its images of that class."""

from __future__ import annotations

import torch
from torch import Tensor

from vitrail.aggregate.rule import RULES, Group, Metrics, Rule, Tensors
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.release.update import Update


@RULES.register("centers")
class CenterMean(Rule):
    """Centers weighed by share x weight; a class that nobody saw keeps what was sent.

    It adds up two fields: centers [classes, channels], and the share of images of each class.
    """

    def __init__(self, group: Group, options: Aggregate) -> None:
        super().__init__(group, options)
        shapes = [field.shape for field in group.fields]
        if len(shapes) != 2 or len(shapes[0]) != 2 or shapes[1] != shapes[0][:1]:
            raise ConfigError(
                "'centers' adds up centers of classes and the share of images behind each",
                where="aggregate.rule",
                hint="It belongs to fedproto; choose another rule.",
            )

    def lift(self, update: Update, weight: float, sent: Tensor) -> Tensor:
        """Each center times its images, and the images."""
        del sent
        centers, share = (update.tensors[f.name].to(torch.float64) for f in self.group.fields)
        images = share * weight
        return torch.cat([(centers * images[:, None]).reshape(-1), images])

    def finish(self, total: Tensor, weight: float, sent: Tensor) -> tuple[Tensors, Metrics]:
        """Sums divided by images, class by class."""
        classes = self.group.fields[1].shape[0]
        images, size = total[-classes:], len(total) - classes
        before = sent[:size].view(classes, -1)
        mean = total[:size].view(classes, -1) / images.clamp(min=1e-300)[:, None]
        centers = torch.where(images[:, None] > 0, mean, before)
        return self.group.unpack(torch.cat([centers.reshape(-1), images / weight])), {
            "classes_seen": float((images > 0).sum())
        }
