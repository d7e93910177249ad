"""What a remedy did, on held-out images: for the suspected classes, and for all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.engine.federation import SERVER, Federation
from vitrail.rng import Key
from vitrail.runs.deployed import DeployedModel

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Pair = tuple[str, int]
_CHUNK = 64


@dataclass(frozen=True)
class Recalls:
    """Shares of held-out images that were recognized; None where there are none.

    `biased`: suspected classes at the sites they are suspected at; `unbiased`: the same classes
    everywhere else; `others`: all other classes, the mean over them; `balanced`: the mean over all
    classes, without the images in `biased`.
    """

    biased: float | None
    unbiased: float | None
    others: float | None
    balanced: float | None

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return asdict(self)


@dataclass(frozen=True)
class HeldOut:
    """The images that nobody trained on, who holds them, and which of two parts each is in.

    Choices are made on the images in `validation`; the others are what is shown.
    """

    images: Tensor  # uint8, [N, C, H, W]
    labels: npt.NDArray[np.int64]
    suspected: Bools  # of a suspected class, at a site it is suspected at
    asked: Bools  # of a suspected class, anywhere
    validation: Bools

    def summarize(self, right: Floats, part: Bools) -> Recalls:
        """Recalls from the share of models that is right about each image, on one part."""
        clean = part & ~self.suspected
        means = {c: float(right[clean & (self.labels == c)].mean()) for c in self._classes(clean)}
        asked = {int(c) for c in np.unique(self.labels[self.asked])}
        inside = right[part & self.suspected]
        return Recalls(
            float(inside.mean()) if len(inside) else None,
            _average([v for c, v in means.items() if c in asked]),
            _average([v for c, v in means.items() if c not in asked]),
            _average(list(means.values())),
        )

    def compare(self, before: Floats, after: Floats, part: Bools) -> tuple[float, float]:
        """The change of balanced recall without suspected images, and its standard error."""
        clean = part & ~self.suspected
        changes, squares = [], []
        for label in self._classes(clean):
            moved = (after - before)[clean & (self.labels == label)]
            changes.append(float(moved.mean()))
            squares.append(float(moved.var(ddof=1)) / len(moved) if len(moved) > 1 else 0.25)
        if not changes:
            return 0.0, float("inf")
        return float(np.mean(changes)), float(np.sqrt(np.sum(squares))) / len(changes)

    def _classes(self, rows: Bools) -> list[int]:
        return [int(label) for label in np.unique(self.labels[rows])]


def gather_held_out(federation: Federation, pairs: Sequence[Pair], key: Key) -> HeldOut:
    """All test images of a federation; each site's of each class are dealt out in two parts."""
    holders = {name: rows.test for name, rows in federation.sites.items()}
    holders[SERVER] = federation.server_test
    labels = federation.images.labels
    rows, suspected, validation = [], [], []
    for name, held in holders.items():
        for label in np.unique(labels[held]).tolist():
            chosen = key.at(name, label).numpy().permutation(held[labels[held] == label])
            rows.append(chosen)
            suspected.append(np.full(len(chosen), (name, label) in pairs))
            validation.append(np.arange(len(chosen)) % 2 == 0)
    at = np.concatenate(rows) if rows else np.empty(0, np.int64)
    pixels = torch.from_numpy(np.array(federation.images.images[at])).permute(0, 3, 1, 2)
    asked = np.isin(labels[at], [label for _, label in pairs])
    return HeldOut(
        pixels,
        labels[at],
        np.concatenate(suspected) if rows else np.empty(0, bool),
        asked,
        np.concatenate(validation) if rows else np.empty(0, bool),
    )


@torch.inference_mode()
def compute_right(models: Sequence[DeployedModel], held: HeldOut) -> Floats:
    """The share of models that is right about each image, [N]."""
    shares = np.zeros(len(held.labels))
    for model in models:
        parts = [model(part).argmax(1) for part in torch.split(held.images, _CHUNK)]
        shares += torch.cat(parts).numpy() == held.labels
    return shares / len(models)


def _average(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
