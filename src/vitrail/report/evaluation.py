"""A model on images it has not seen: figures with intervals by patient, calibration, confusion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.data.images import ImageSet
from vitrail.data.source import load_with_problems
from vitrail.engine.loaded import Run
from vitrail.engine.newdata import KEY, describe
from vitrail.engine.predict import logits
from vitrail.errors import DataError, RunError, nearest
from vitrail.files import write_json
from vitrail.local.intervals import Interval, bootstrap
from vitrail.local.metrics import Floats, Integers, classification
from vitrail.report.bootstrapped import statistics
from vitrail.report.confusion import confusion_picture
from vitrail.report.reliability import Bin, reliability, reliability_picture
from vitrail.rng import server


@dataclass(frozen=True)
class Evaluation:
    """Everything that was measured; rows of `confusion` are true classes, columns predicted."""

    run: str
    round: int
    method: str
    site: str | None
    images: int
    patients: int | None
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    loss: float | None
    figures: dict[str, Interval]
    confusion: list[list[int]]
    reliability: tuple[Bin, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)

    def plain(self) -> dict[str, Any]:
        """The evaluation as JSON values."""
        return asdict(self)

    def write(self, folder: Path) -> list[Path]:
        """`evaluation.json`, `confusion.png` and `reliability.png` in a folder."""
        paths = self.files(folder)
        write_json(paths[0], self.plain())
        confusion_picture(self.confusion, self.classes, paths[1])
        reliability_picture(self.reliability, self.figures["ece"].value, paths[2])
        return paths

    @staticmethod
    def files(folder: Path) -> list[Path]:
        """What `write` makes."""
        return [folder / name for name in ("evaluation.json", "confusion.png", "reliability.png")]


def evaluate(
    run: Run,
    data: str | Path,
    site: str | None = None,
    overrides: Iterable[str] = (),
    split: str | None = None,
    repeats: int = 1000,
) -> Evaluation:
    """Measure a run's model on labeled images at `data`.

    Labels are matched to the run's classes by name. Intervals resample patients where the data
    names them, else images. `split` ("train" or "test") keeps one part of data that has parts.
    """
    path = Path(data)
    section = describe(run, path, overrides)
    model = run.model(site)
    images, problems = load_with_problems(section, Path.cwd(), KEY)
    images = _part(images, split)
    labels = _by_name(images, run.classes, path)
    z = logits(model, images.images)
    if not torch.isfinite(z).all():
        raise RunError("the model gives values that are not finite", where=str(run.path))
    p = torch.softmax(z.double(), dim=1).numpy()
    groups = _groups(images)
    return Evaluation(
        run=run.path.name,
        round=run.round,
        method=run.config.method.name,
        site=site,
        images=len(images),
        patients=None if images.patients is None else len(set(groups)),
        classes=run.classes,
        counts=tuple(np.bincount(labels, minlength=len(run.classes)).tolist()),
        loss=classification(z, labels, len(run.classes))["loss"],
        figures=_figures(z.double().numpy(), p, labels, groups, repeats),
        confusion=_confusion(p, labels),
        reliability=reliability(p, labels),
        notes=_notes(run, images, labels, path, len(problems)),
    )


def _figures(
    z: Floats, p: Floats, labels: Integers, groups: list[str], repeats: int
) -> dict[str, Interval]:
    """Every figure with its interval; the resamples are the same for all of them."""
    key = server(0).at("evaluation", "bootstrap")
    found = statistics(z, p, labels)
    return {name: bootstrap(figure, groups, key, repeats) for name, figure in found.items()}


def _confusion(p: Floats, labels: Integers) -> list[list[int]]:
    found = np.zeros((p.shape[1], p.shape[1]), dtype=np.int64)
    np.add.at(found, (labels, p.argmax(axis=1)), 1)
    rows: list[list[int]] = found.tolist()
    return rows


def _part(images: ImageSet, split: str | None) -> ImageSet:
    if split is None:
        return images
    held = None if images.splits is None else np.flatnonzero(images.splits == split)
    if held is None or not len(held):
        raise DataError(
            f"no image belongs to the split {split!r}",
            where="--split",
            hint="Leave it out to use all images, or write train or test.",
        )
    return images.take(held)


def _by_name(images: ImageSet, classes: tuple[str, ...], path: Path) -> Integers:
    """Labels as indices into the run's classes, matched by name whatever their order."""
    place = {name: i for i, name in enumerate(classes)}
    held = np.unique(images.labels).tolist()
    unknown = [images.classes[i] for i in held if images.classes[i] not in place]
    if unknown:
        more = f" and {len(unknown) - 1} other classes" if len(unknown) > 1 else ""
        raise DataError(
            f"the model does not know {unknown[0]!r}{more}",
            where=str(path),
            hint=f"{nearest(unknown[0], classes)}. "
            f"To rename a label: --set data.rename.{_key(unknown[0])}=NAME",
        )
    table = np.array([place.get(name, -1) for name in images.classes], np.int64)
    return table[images.labels]


def _key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'


def _groups(images: ImageSet) -> list[str]:
    """The patient of each image; an image without one is its own group."""
    if images.patients is None:
        return [str(i) for i in range(len(images))]
    names = images.patients.tolist()
    return [f"p/{name}" if name.strip() else f"i/{i}" for i, name in enumerate(names)]


def _notes(
    run: Run, images: ImageSet, labels: Integers, path: Path, problems: int
) -> tuple[str, ...]:
    notes = []
    held = set(labels.tolist())
    absent = [name for i, name in enumerate(run.classes) if i not in held]
    if absent:
        shown = ", ".join(repr(name) for name in absent[:5])
        notes.append(f"no image here has {shown}{' ...' if len(absent) > 5 else ''}")
    if images.patients is None:
        notes.append("no patients are named: intervals treat every image as independent")
    if problems:
        notes.append(f"{problems} problems in the data; `vitrail data check` lists them")
    own = run.config.data.path
    if own is not None and Path(own).resolve() == path.resolve():
        notes.append("the run was trained on images of this very path: the figures flatter it")
    if not run.finished:
        notes.append(f"the run is not finished: this is its model after round {run.round}")
    return tuple(notes)
