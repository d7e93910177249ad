"""What a site has before it when it audits: its own images and the models it may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.audit.detection.features import CHUNK
from vitrail.audit.detection.map_features import compute_maps
from vitrail.errors import RunError
from vitrail.explain.dead_units import find_dead_units
from vitrail.models.heads.part_head import PartHead, require_head
from vitrail.models.network import Network
from vitrail.runs.deployed import DeployedModel


@dataclass(frozen=True)
class SiteView:
    """One site's view: its images (uint8, [N, H, W, C]), their labels, and models.

    `local` was trained by the site alone; `shared` is the global or personalized model. All
    models of a run have the same frozen stages, so these are run once for all of them.
    """

    site: str
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    local: DeployedModel
    shared: DeployedModel
    others: Mapping[str, DeployedModel] = field(default_factory=dict)
    sizes: npt.NDArray[np.int32] | None = None  # [N, 2], width and height of the originals

    @cached_property
    def pixels(self) -> Tensor:
        """The images as floats in 0..1, [N, C, H, W]."""
        return torch.from_numpy(self.images).permute(0, 3, 1, 2).to(torch.float32) / 255

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""
        return self.local.classes

    def select_class(self, label: int, most: int | None = None) -> Tensor:
        """The positions of one class's images, at most so many, evenly spread."""
        rows = torch.from_numpy(np.flatnonzero(self.labels == label))
        if most is not None and len(rows) > most:
            rows = rows[torch.linspace(0, len(rows) - 1, most).long()]
        return rows

    @property
    def models(self) -> dict[str, DeployedModel]:
        """Every model by name."""
        return {"local": self.local, "shared": self.shared, **self.others}

    @torch.inference_mode()
    def run_frozen_stages(self, images: Tensor) -> Tensor:
        """Images in 0..1 through the frozen stages, which all models share."""
        features = [self.local.network.prefix(part) for part in self._iterate_normalized(images)]
        return torch.cat(features).clone()

    def compute_maps(self, images: Tensor) -> Tensor:
        """The map of the site's own backbone, before the neck, [N, D, h, w]."""
        return compute_maps(self.local.network, self._iterate_normalized(images))[1]

    def _iterate_normalized(self, images: Tensor) -> Iterator[Tensor]:
        for part in torch.split(images, CHUNK):
            yield (part - self.local.shift) / self.local.scale


@torch.inference_mode()
def compute_logits(model: DeployedModel, z: Tensor) -> Tensor:
    """The rest of a model on what `SiteView.run_frozen_stages` gave, [N, classes]."""
    logits = torch.cat(
        [model.network.rest(part)["logits"] for part in torch.split(z, CHUNK)]
    ).clone()
    if not bool(logits.isfinite().all()):
        raise RunError(
            "a model of this run says what is no finite number",
            hint="Its training diverged: lower the learning rate and run it again.",
        )
    return logits


def log_odds(logits: Tensor, label: int) -> Tensor:
    """How sure logits are of one class: log p / (1 - p), [N]."""
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], 1).logsumexp(1)
    return logits[:, label] - others


@torch.inference_mode()
def compute_activation_maps(model: DeployedModel, z: Tensor) -> Tensor:
    """The activation maps of every unit of a part-based model, [N, units, h, w]."""
    head = require_part_head(model)
    maps = [head.maps(model.network.features(part)) for part in torch.split(z, CHUNK)]
    return torch.cat(maps).clone()


@torch.inference_mode()
def find_live_units(model: DeployedModel, z: Tensor) -> Tensor:
    """Units in use that are near some patch of these images, [units] of bool: only those look."""
    head = require_part_head(model)
    features = torch.cat([model.network.features(part) for part in torch.split(z, CHUNK)])
    return head.alive().cpu() & ~find_dead_units(head, features)


def compute_peak_activations(model: DeployedModel, z: Tensor) -> Tensor:
    """The largest activation of every unit in each image, [N, units]."""
    return compute_activation_maps(model, z).amax((2, 3))


def has_parts(model: DeployedModel) -> bool:
    """Whether a model explains itself by parts; one without is audited by its predictions."""
    return isinstance(model.network.head, PartHead)


def require_part_head(model: DeployedModel | Network) -> PartHead:
    """The head of a model that explains itself by parts, or an error that says it does not."""
    lack = RunError(
        "the audit compares where models look, and this run's model has no parts",
        hint="Use a prototype method such as myth-gm or fedgrasp.",
    )
    return require_head(model if isinstance(model, Network) else model.network, PartHead, lack)
