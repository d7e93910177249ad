"""What a site has on its desk when it audits: its own images and the models it may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.audit.extract import CHUNK, backbone_maps
from vitrail.engine.deployed import Deployed
from vitrail.errors import RunError
from vitrail.models.network import Network
from vitrail.models.pieces import PartHead, head_as


@dataclass(frozen=True)
class Desk:
    """One site's view: its images (uint8, [N, H, W, C]), their labels, and models.

    `local` was trained by the site alone; `shared` is the global or personalized model. All
    models of a run have the same frozen stages, so these are run once for all of them.
    """

    site: str
    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    local: Deployed
    shared: Deployed
    others: Mapping[str, Deployed] = field(default_factory=dict)
    sizes: npt.NDArray[np.int32] | None = None  # [N, 2], width and height of the originals

    @cached_property
    def pixels(self) -> Tensor:
        """The images as floats in 0..1, [N, C, H, W]."""
        return torch.from_numpy(self.images).permute(0, 3, 1, 2).to(torch.float32) / 255

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of the logits."""
        return self.local.classes

    def of(self, label: int, most: int | None = None) -> Tensor:
        """The positions of one class's images, at most so many, evenly spread."""
        found = torch.from_numpy(np.flatnonzero(self.labels == label))
        if most is not None and len(found) > most:
            found = found[torch.linspace(0, len(found) - 1, most).long()]
        return found

    @property
    def models(self) -> dict[str, Deployed]:
        """Every model by name."""
        return {"local": self.local, "shared": self.shared, **self.others}

    @torch.inference_mode()
    def begin(self, images: Tensor) -> Tensor:
        """Images in 0..1 through the frozen stages, which all models share."""
        found = [self.local.network.prefix(part) for part in self._normalized(images)]
        return torch.cat(found).clone()

    def maps(self, images: Tensor) -> Tensor:
        """The map of the site's own backbone, before the neck, [N, D, h, w]."""
        return backbone_maps(self.local.network, self._normalized(images))

    def _normalized(self, images: Tensor) -> Iterator[Tensor]:
        for part in torch.split(images, CHUNK):
            yield (part - self.local.shift) / self.local.scale


@torch.inference_mode()
def logits(model: Deployed, z: Tensor) -> Tensor:
    """The rest of a model on what `Desk.begin` gave, [N, classes]."""
    found = torch.cat(
        [model.network.rest(part)["logits"] for part in torch.split(z, CHUNK)]
    ).clone()
    if not bool(found.isfinite().all()):
        raise RunError(
            "a model of this run says what is no finite number",
            hint="Its training diverged: lower the learning rate and run it again.",
        )
    return found


def log_odds(found: Tensor, label: int) -> Tensor:
    """How sure logits are of one class: log p / (1 - p), [N]."""
    others = torch.cat([found[:, :label], found[:, label + 1 :]], 1).logsumexp(1)
    return found[:, label] - others


@torch.inference_mode()
def maps(model: Deployed, z: Tensor) -> Tensor:
    """The activation maps of every unit of a part-based model, [N, units, h, w]."""
    head = parts(model)
    found = [head.maps(model.network.features(part)) for part in torch.split(z, CHUNK)]
    return torch.cat(found).clone()


def peaks(model: Deployed, z: Tensor) -> Tensor:
    """The largest activation of every unit in each image, [N, units]."""
    return maps(model, z).amax((2, 3))


def parts(model: Deployed | Network) -> PartHead:
    """The head of a model that explains itself by parts, or an error that says it does not."""
    lack = RunError(
        "the audit compares where models look, and this run's model has no parts",
        hint="Use a prototype method such as myth-gm or fedgrasp.",
    )
    return head_as(model if isinstance(model, Network) else model.network, PartHead, lack)
