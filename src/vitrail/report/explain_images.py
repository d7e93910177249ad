"""Explaining images with a model of a run: prediction, evidence, and what pictures need."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import Payload, UnreadableError, limit_pixels
from vitrail.data.decoding.payload import map_ordered, read_payloads
from vitrail.data.decoding.resize import Mode
from vitrail.data.records import Problem, Records
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.explain.attribution import attribute
from vitrail.explain.contrast import Contrast, compute_contrast
from vitrail.explain.evidence import (
    ClassEvidence,
    Contribution,
    compute_evidence,
    find_box,
    to_json,
    to_original,
)
from vitrail.models.heads.part_head import PartHead, require_part_head
from vitrail.report.training_patches import Patches, find_patches, normalize_image
from vitrail.runs.new_images import find_images
from vitrail.runs.open_image import OpenedImage, open_image
from vitrail.runs.opened_run import ModelKind, Run

WHOLE = "whole image"


@dataclass(frozen=True)
class ImageExplanation:
    """One image with its prediction and the evidence for some classes, the predicted one first.

    Without parts the model is a black box, and each class has one row with a Grad-CAM map.
    """

    name: str
    image: OpenedImage
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]
    evidence: tuple[ClassEvidence, ...]
    has_parts: bool
    resize: Mode
    contrast: Contrast | None = None  # the last entry of the evidence, where one was asked for

    def title_class(self, evidence: ClassEvidence) -> str:
        """What stands above an entry of the evidence."""
        if self.contrast is not None and evidence is self.contrast.evidence:
            return f"Why {evidence.name}"
        return f"What speaks for {evidence.name}, and against it"

    def title_sum(self, evidence: ClassEvidence) -> str:
        """What the rows of an entry add up to."""
        if self.contrast is not None and evidence is self.contrast.evidence:
            shared = f"{self.contrast.shared:+.3f}"
            return f"Sum, the difference of the two logits (both share {shared}, which is left out)"
        return "Sum, which is the logit"

    @property
    def predicted(self) -> int:
        """The number of the predicted class."""
        return self.evidence[0].label

    def to_json(self) -> list[dict[str, Any]]:
        """The evidence as JSON; a black box has the box of its map beside each class."""
        entries = to_json(self.evidence)
        if not self.has_parts:
            side = (len(self.image.square), len(self.image.square))
            for entry, evidence in zip(entries, self.evidence):
                map_ = evidence.contributions[0].map
                box = None if map_ is None else find_box(map_, side)
                place = (
                    None if box is None else to_original(box, side, self.image.size, self.resize)
                )
                entry["map"] = {"method": "grad-cam", "box": None if place is None else list(place)}
        if self.contrast is not None:
            entries[-1] |= {"against": self.contrast.against, "shared": self.contrast.shared}
        return entries


class Explainer:
    """A model of a run, ready to explain images to one site (or to nobody in particular)."""

    def __init__(
        self,
        run: Run,
        site: str | None = None,
        which: ModelKind | None = None,
        classes: Sequence[str] = (),
        top: int = 5,
        against: str | None = None,
    ) -> None:
        if top < 1:
            raise ConfigError(f"{top} parts cannot be listed", where="--top", hint="Use 1 or more.")
        self.run = run
        self.site = site
        self.which: ModelKind = which or ("global" if site is None else "personal")
        self.model = run.model(site, self.which)
        self.top = top
        self.asked = [self._find_label(name) for name in classes]
        self.has_parts = isinstance(self.model.network.head, PartHead)
        self.against = None if against is None else self._find_label(against, "--against")
        if against is not None:
            require_part_head(self.model.network)

    def _find_label(self, name: str, where: str = "--class") -> int:
        if name not in self.model.classes:
            raise ConfigError(
                f"there is no class {name!r} in this run",
                where=where,
                hint=suggest_name(name, self.model.classes),
            )
        return self.model.classes.index(name)

    @property
    def title(self) -> str:
        """Whose model this is."""
        if self.which == "global":
            return "global model"
        return f"{self.which} model of {self.site}"

    @cached_property
    def patches(self) -> Patches:
        """The training patches of the asking site."""
        return find_patches(self.run, self.site, self.which, self.model)

    def __call__(self, name: str, image: OpenedImage, also: Sequence[int] = ()) -> ImageExplanation:
        """Predict one image and say why; `also` are further classes to explain."""
        x = normalize_image(self.model, image.square)
        with torch.no_grad():
            logits = self.model.network(x)[0]
        if not bool(logits.isfinite().all()):
            raise RunError(
                f"the model's output for {name} is not a finite number",
                where=str(self.run.path),
                hint="Its training diverged: lower the learning rate and run it again.",
            )
        predicted = int(logits.argmax())
        labels = list(dict.fromkeys([predicted, *self.asked, *also]))
        resize = self.run.card["resize"]
        if self.has_parts:
            names = self.model.classes
            evidence = compute_evidence(
                self.model.network, x, labels, names, self.top, image.size, resize=resize
            )
        else:
            evidence = self._map_classes(x, labels, logits)
        contrast = self._set_against(x, logits, image.size)
        if contrast is not None:
            evidence.append(contrast.evidence)
        return ImageExplanation(
            name,
            image,
            self.model.classes,
            tuple(torch.softmax(logits.double(), 0).tolist()),
            tuple(evidence),
            self.has_parts,
            resize,
            contrast,
        )

    def _set_against(
        self, x: torch.Tensor, logits: torch.Tensor, size: tuple[int, int]
    ) -> Contrast | None:
        """The predicted class against the one that was asked for; where they are the same, the
        next one against it."""
        if self.against is None:
            return None
        first, second = logits.argsort(descending=True, stable=True)[:2].tolist()
        label = second if first == self.against else first
        network, names, resize = self.model.network, self.model.classes, self.run.card["resize"]
        return compute_contrast(network, x, label, self.against, names, self.top, size, resize)

    def _map_classes(
        self, x: torch.Tensor, labels: list[int], logits: torch.Tensor
    ) -> list[ClassEvidence]:
        """A black box: one row a class, which is its logit, and a Grad-CAM map."""
        copies = x.expand(len(labels), -1, -1, -1)
        maps = attribute("grad-cam", self.model.network, copies, torch.tensor(labels))
        evidence = []
        for label, map_ in zip(labels, maps):
            logit = float(logits[label])
            row = Contribution(WHOLE, logit, score=logit, weight=1.0, map=map_)
            evidence.append(ClassEvidence(self.model.classes[label], label, logit, (row,)))
        return evidence


@dataclass(frozen=True)
class Gallery:
    """The images at a path, to be opened one after the other."""

    records: Records
    data: Data

    @staticmethod
    def find(run: Run, path: Path) -> Gallery:
        """Find every image of a file or folder."""
        return Gallery(*find_images(run, path))

    def __len__(self) -> int:
        return len(self.records)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Files that are no images."""
        return self.records.problems

    def open(self) -> Iterator[tuple[str, OpenedImage | UnreadableError]]:
        """Name and image, or the reason why it cannot be read, in order."""
        rows, data = self.records.rows, self.data

        def work(item: Payload) -> OpenedImage:
            return open_image(item, self.records.decoder, data)

        with limit_pixels(data.max_pixels):
            for row, image in zip(rows, map_ordered(work, read_payloads(rows))):
                yield row.name, image
