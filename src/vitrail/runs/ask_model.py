"""Asking a model about one image, and arguing: paint over it, switch parts off, ask again.

`vitrail.load(run).ask(image, cover=..., without=[...])` returns what the live page shows.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from vitrail.data.decoding.resize import Mode, resize_image
from vitrail.engine.federation import Federation
from vitrail.errors import ConfigError, RunError, VitrailError, suggest_name
from vitrail.explain.attribution import attribute
from vitrail.explain.evidence import (
    ClassEvidence,
    Contribution,
    check_sum,
    find_box,
    make_rows,
    rank_pieces,
    to_original,
)
from vitrail.explain.painting import PAINT_MODES, PaintMode, paint
from vitrail.explain.what_if import ChangedHead, Place, WhatIf
from vitrail.metrics.temperature import apply_temperature
from vitrail.models.heads.part_head import PartHead, Piece
from vitrail.runs.calibrate import Calibration, calibrate
from vitrail.runs.open_image import AnyImage, OpenedImage, open_any_image
from vitrail.runs.opened_run import ModelKind, Run

Box = tuple[float, float, float, float]
Cover = Sequence[Box] | npt.NDArray[np.bool_] | None
_COVERED = 64  # of 255: from a quarter of a pixel on it is painted


@dataclass(frozen=True)
class Question:
    """An image with what is to be changed about it and about the model.

    `cover` are boxes (x0, y0, x1, y1) in pixels of the original, or a mask of its size; `how` they
    are painted; `paste` the image to paste from. In `without` a number is a unit (a prototype, a
    subspace) and a pair a place (row, column of the map of patches). `pull` scales what units of
    other classes give. `classes` are explained besides the predicted one, `top` parts of each.
    """

    image: OpenedImage
    cover: Cover = None
    how: PaintMode = "blur"
    paste: OpenedImage | None = None
    without: Sequence[int | Place] = ()
    pull: float = 1.0
    classes: Sequence[str] = ()
    top: int = 5


@dataclass(frozen=True)
class Answer:
    """What a model says: probabilities, and evidence that adds up to the logits.

    `calibrated` are the probabilities at the model's temperature, None if it has none. Evidence is
    of the predicted class first. `switches` stand beside the rows of evidence: what to put into
    `without` to switch that part off.
    """

    classes: tuple[str, ...]
    logits: tuple[float, ...]
    probabilities: tuple[float, ...]
    calibrated: tuple[float, ...] | None
    evidence: tuple[ClassEvidence, ...]
    switches: tuple[tuple[int | Place | None, ...], ...]
    has_parts: bool
    model: str  # whose it is, in words
    size: tuple[int, int]
    seen: npt.NDArray[np.uint8]  # the square [S, S, C] that the model saw, painted over
    calibration: Calibration | None = None

    @property
    def predicted(self) -> str:
        """The name of the predicted class."""
        return self.evidence[0].name

    @property
    def confidence(self) -> float:
        """How sure the model is of it, calibrated where that is known."""
        return (self.calibrated or self.probabilities)[self.evidence[0].label]

    def to_json(self) -> dict[str, Any]:
        """All of it but pixels."""
        evidence = []
        for entry, switches in zip(self.evidence, self.switches):
            written = entry.to_json()
            for row, switch, part in zip(
                written["contributions"], switches, entry.contributions, strict=True
            ):
                row["switch"] = list(switch) if isinstance(switch, tuple) else switch
                row["map"] = None if part.map is None else _round_map(part.map)
            evidence.append(written)
        return {
            "predicted": self.predicted,
            "confidence": self.confidence,
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "probabilities": dict(zip(self.classes, self.probabilities)),
            "calibrated": None
            if self.calibrated is None
            else dict(zip(self.classes, self.calibrated)),
            "evidence": evidence,
            "adds_up": self.has_parts,
            "model": self.model,
            "size": list(self.size),
        }


def _round_map(map_: Tensor) -> list[list[float]]:
    return [[round(value, 5) for value in line] for line in map_.double().tolist()]


class Asker:
    """One model of a run, kept in memory and asked again and again, by one thread at a time."""

    def __init__(self, run: Run, site: str | None = None, which: ModelKind | None = None) -> None:
        self.run = run
        self.site = site
        self.which: ModelKind = which or ("global" if site is None else "personal")
        self.model = run.model(site, self.which)
        self.calibration: Calibration | None = None
        self.uncalibrated = "not calibrated yet"  # why there is no calibration, in words
        self._is_fitted = False
        self.resize: Mode = run.card["resize"]
        self._lock = threading.Lock()

    @property
    def title(self) -> str:
        """Whose model this is."""
        return "global model" if self.which == "global" else f"{self.which} model of {self.site}"

    def open(self, image: AnyImage | OpenedImage, name: str = "image") -> OpenedImage:
        """An image as this model's run reads it."""
        return image if isinstance(image, OpenedImage) else open_any_image(self.run, image, name)

    def ensure_calibrated(self, federation: Federation | None = None) -> None:
        """Fit the temperature once, where images that were not trained on can be read."""
        with self._lock:
            if self._is_fitted:
                return
            self._is_fitted = True
        try:
            self.calibration = calibrate(self.run, self.model, self.site, federation)
        except (VitrailError, OSError) as err:
            self.uncalibrated = f"test images cannot be read here ({err})"
        else:
            if self.calibration is None:
                self.uncalibrated = "there are fewer than 20 test images to look at"

    def __call__(self, question: Question) -> Answer:
        """Answer one question."""
        if question.top < 1:
            raise ConfigError(f"{question.top} parts cannot be listed", where="top")
        pixels = self._paint(question)
        with self._lock:
            return self._answer(question, pixels)

    def _paint(self, question: Question) -> Tensor:
        """Pixels [1, C, S, S] from 0 to 1, painted over."""
        pixels = _to_tensor(question.image)
        hole = make_hole(question, self.resize)
        if hole is None or not bool(hole.any()):
            return pixels
        if bool(hole.all()) and question.how != "paste":
            raise ConfigError("all of the image is painted over: nothing is left", where="cover")
        donor = None if question.paste is None else _to_tensor(question.paste)
        return paint(pixels, hole, question.how, donor)

    def _answer(self, question: Question, pixels: Tensor) -> Answer:
        model, head = self.model, self.model.network.head
        x = (pixels - model.shift) / model.scale
        change = WhatIf.parse(question.without, question.pull)
        if isinstance(head, PartHead):
            with torch.no_grad():
                z = model.network.features(model.network.prefix(x))
            changed = ChangedHead(head, z, change)
            logits = changed.logits()
        elif change.is_plain:
            with torch.no_grad():
                logits = model.network(x)[0].double()
        else:
            raise ConfigError(
                "this model has no parts that could be switched off or pulled",
                where="without",
                hint="Paint over the image instead.",
            )
        if not bool(logits.isfinite().all()):
            raise RunError(
                "the model's output for this image is not a finite number",
                where=str(self.run.path),
                hint="Its training diverged: lower the learning rate and run it again.",
            )
        labels = self._list_labels(int(logits.argmax()), question.classes)
        rows: list[tuple[ClassEvidence, tuple[int | Place | None, ...]]]
        if isinstance(head, PartHead):
            rows = [
                self._explain(changed, label, float(logits[label]), question) for label in labels
            ]
        else:
            rows = self._map_classes(x, labels, logits, question)
        values = logits.numpy()
        warm = None if self.calibration is None else self.calibration.temperature
        return Answer(
            model.classes,
            tuple(values.tolist()),
            tuple(apply_temperature(values, 1.0).tolist()),
            None if warm is None else tuple(apply_temperature(values, warm).tolist()),
            tuple(evidence for evidence, _ in rows),
            tuple(switches for _, switches in rows),
            isinstance(head, PartHead),
            self.title,
            question.image.size,
            (pixels[0].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy(),
            self.calibration,
        )

    def _list_labels(self, predicted: int, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in self.model.classes:
                hint = suggest_name(name, self.model.classes)
                raise ConfigError(f"there is no class {name!r}", where="classes", hint=hint)
        return list(dict.fromkeys([predicted, *(self.model.classes.index(n) for n in names)]))

    def _explain(
        self, changed: ChangedHead, label: int, logit: float, question: Question
    ) -> tuple[ClassEvidence, tuple[int | Place | None, ...]]:
        pieces = changed.pieces(label)
        side = (self.model.image_size, self.model.image_size)
        names, size = self.model.classes, question.image.size
        rows = make_rows(pieces, names, question.top, side, size, self.resize)
        evidence = ClassEvidence(names[label], label, check_sum(logit, pieces), rows)
        ranked = rank_pieces(pieces)[: question.top]
        return evidence, (*(_choose_switch(piece, pieces) for piece in ranked), None)

    def _map_classes(
        self, x: Tensor, labels: list[int], logits: Tensor, question: Question
    ) -> list[tuple[ClassEvidence, tuple[int | Place | None, ...]]]:
        """A black box: one row a class, which is its logit, and a Grad-CAM map."""
        copies = x.expand(len(labels), -1, -1, -1)
        maps = attribute("grad-cam", self.model.network, copies, torch.tensor(labels))
        side = (self.model.image_size, self.model.image_size)
        explained: list[tuple[ClassEvidence, tuple[int | Place | None, ...]]] = []
        for label, map_ in zip(labels, maps):
            logit, map_ = float(logits[label]), map_.detach()
            square = find_box(map_, side)
            box = to_original(square, side, question.image.size, self.resize)
            row = Contribution("whole image", logit, logit, 1.0, box=box, square=square, map=map_)
            evidence = ClassEvidence(self.model.classes[label], label, logit, (row,))
            explained.append((evidence, (None,)))
        return explained


def _choose_switch(piece: Piece, pieces: Sequence[Piece]) -> int | Place | None:
    """A unit with one place is switched off as a whole; one with several, place by place."""
    if piece.map is None or piece.at is None:
        return piece.unit
    several = sum(one.unit == piece.unit and one.map is not None for one in pieces) > 1
    return piece.at if several else piece.unit


def make_hole(question: Question, resize: Mode) -> Tensor | None:
    """Which pixels of the square are painted over, [1, 1, S, S]."""
    cover, (height, width) = question.cover, question.image.size
    if cover is None or len(cover) == 0:
        return None
    if question.how not in PAINT_MODES:
        hint = suggest_name(question.how, PAINT_MODES)
        raise ConfigError(f"nothing is painted by {question.how!r}", where="how", hint=hint)
    if isinstance(cover, np.ndarray) and cover.dtype == np.bool_:
        if cover.shape != (height, width):
            raise ConfigError(
                f"a mask of {cover.shape} does not fit an image of {height} x {width} pixels",
                where="cover",
            )
        mask = Image.fromarray(cover.astype(np.uint8) * 255)
    else:
        mask = Image.new("L", (width, height))
        draw = ImageDraw.Draw(mask)
        for box in cover:
            x0, y0, x1, y1 = (float(edge) for edge in box)
            if not (x0 < x1 and y0 < y1):  # NaN fails too
                raise ConfigError(f"{tuple(box)} is no box: x0 < x1 and y0 < y1", where="cover")
            x0, x1 = (min(max(edge, -1.0), width + 1.0) for edge in (x0, x1))  # may be infinite
            y0, y1 = (min(max(edge, -1.0), height + 1.0) for edge in (y0, y1))
            left, top, right, bottom = round(x0), round(y0), round(x1) - 1, round(y1) - 1
            if left <= right and top <= bottom:  # less than a pixel covers nothing
                draw.rectangle((left, top, right, bottom), fill=255)
    side = len(question.image.square)
    hole = np.asarray(resize_image(mask, side, resize)) >= _COVERED
    return torch.from_numpy(hole)[None, None]


def _to_tensor(image: OpenedImage) -> Tensor:
    return torch.from_numpy(np.array(image.square)).permute(2, 0, 1)[None].to(torch.float32) / 255


@lru_cache(maxsize=4)
def _keep_asker(path: str, round_: int, site: str | None, which: ModelKind | None) -> Asker:
    """An asker for a run's model after a round; a few are kept, so that asking again is quick."""
    del round_
    return Asker(Run(path), site, which)


def get_asker(run: Run, site: str | None = None, which: ModelKind | None = None) -> Asker:
    """The asker of a model, from memory if it was asked before."""
    return _keep_asker(str(run.path.resolve()), run.round, site, which)
