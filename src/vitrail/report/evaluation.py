"""A model on images it has not seen: figures with intervals by patient, calibration, confusion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import load_with_problems
from vitrail.errors import DataError, RunError, suggest_name
from vitrail.files import write_json
from vitrail.metrics.bootstrap import Interval, bootstrap
from vitrail.metrics.classification import (
    CALIBRATION_BINS,
    Floats,
    Integers,
    compute_classification_metrics,
)
from vitrail.metrics.resampled import make_statistics
from vitrail.report.figures.confusion_picture import draw_confusion
from vitrail.report.figures.reliability_picture import Bin, compute_reliability, draw_reliability
from vitrail.rng import derive_server_key
from vitrail.runs.new_images import KEY, describe
from vitrail.runs.opened_run import Run
from vitrail.runs.predict_images import predict_logits

_FEW = 2 * CALIBRATION_BINS  # images below which the bins of calibration hold one or two each


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

    def to_json(self) -> dict[str, Any]:
        """The evaluation as JSON values."""
        return asdict(self)

    def write(self, folder: Path) -> list[Path]:
        """`evaluation.json`, `confusion.png` and `reliability.png` in a folder."""
        paths = self.list_files(folder)
        write_json(paths[0], self.to_json())
        draw_confusion(self.confusion, self.classes, paths[1])
        draw_reliability(self.reliability, self.figures["ece"].value, paths[2])
        return paths

    @staticmethod
    def list_files(folder: Path) -> list[Path]:
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
    images = _select_split(images, split)
    labels = _match_labels(images, run.classes, path)
    z = predict_logits(model, images.images)
    if not torch.isfinite(z).all():
        raise RunError("the model gives values that are not finite", where=str(run.path))
    p = torch.softmax(z.double(), dim=1).numpy()
    groups = _list_groups(images)
    return Evaluation(
        run=run.path.name,
        round=run.round,
        method=run.config.method.name,
        site=site,
        images=len(images),
        patients=None if images.patients is None else len(set(groups)),
        classes=run.classes,
        counts=tuple(np.bincount(labels, minlength=len(run.classes)).tolist()),
        loss=compute_classification_metrics(z, labels, len(run.classes))["loss"],
        figures=_compute_metrics(z.double().numpy(), p, labels, groups, repeats),
        confusion=_count_confusion(p, labels),
        reliability=compute_reliability(p, labels),
        notes=_list_notes(run, images, labels, path, len(problems)),
    )


def _compute_metrics(
    z: Floats, p: Floats, labels: Integers, groups: list[str], repeats: int
) -> dict[str, Interval]:
    """Every figure with its interval; the resamples are the same for all of them."""
    key = derive_server_key(0).at("evaluation", "bootstrap")
    statistics = make_statistics(z, p, labels)
    figures = {
        name: bootstrap(statistic, groups, key, repeats) for name, statistic in statistics.items()
    }
    unknown = {"ece"} if len(labels) < _FEW else set()
    if len(np.unique(labels)) < 2:
        unknown |= {"balanced_accuracy", "auprc"}
    for name in unknown & set(figures):
        figures[name] = replace(figures[name], value=None, low=None, high=None)
    return figures


def _count_confusion(p: Floats, labels: Integers) -> list[list[int]]:
    counts = np.zeros((p.shape[1], p.shape[1]), dtype=np.int64)
    np.add.at(counts, (labels, p.argmax(axis=1)), 1)
    rows: list[list[int]] = counts.tolist()
    return rows


def _select_split(images: ImageSet, split: str | None) -> ImageSet:
    if split is None:
        return images
    rows = None if images.splits is None else np.flatnonzero(images.splits == split)
    if rows is None or not len(rows):
        raise DataError(
            f"no image belongs to the split {split!r}",
            where="--split",
            hint="Leave it out to use all images, or write train or test.",
        )
    return images.take(rows)


def _match_labels(images: ImageSet, classes: tuple[str, ...], path: Path) -> Integers:
    """Labels as indices into the run's classes, matched by name whatever their order."""
    place = {name: i for i, name in enumerate(classes)}
    used_labels = np.unique(images.labels).tolist()
    unknown = [images.classes[i] for i in used_labels if images.classes[i] not in place]
    if unknown:
        more = f" and {len(unknown) - 1} other classes" if len(unknown) > 1 else ""
        raise DataError(
            f"the model does not know {unknown[0]!r}{more}",
            where=str(path),
            hint=f"{suggest_name(unknown[0], classes)}. "
            f"To rename a label: --set data.rename.{_quote_key(unknown[0])}=NAME",
        )
    table = np.array([place.get(name, -1) for name in images.classes], np.int64)
    return table[images.labels]


def _quote_key(name: str) -> str:
    return name if name.isidentifier() else f'"{name}"'


def _list_groups(images: ImageSet) -> list[str]:
    """The patient of each image; an image without one is its own group."""
    if images.patients is None:
        return [str(i) for i in range(len(images))]
    names = images.patients.tolist()
    return [f"p/{name}" if name.strip() else f"i/{i}" for i, name in enumerate(names)]


def _list_notes(
    run: Run, images: ImageSet, labels: Integers, path: Path, problems: int
) -> tuple[str, ...]:
    notes = []
    present = set(labels.tolist())
    absent = [name for i, name in enumerate(run.classes) if i not in present]
    if absent:
        shown = ", ".join(repr(name) for name in absent[:5])
        notes.append(f"no image here has {shown}{' ...' if len(absent) > 5 else ''}")
    if len(present) == 1:
        notes.append("all images are of one class: that says nothing about telling classes apart")
    if len(images) < _FEW:
        notes.append(
            f"{len(images)} images are few: calibration is not measured below {_FEW}, and other "
            "figures may be far off"
        )
    if images.patients is None:
        notes.append("no patients are named: intervals treat every image as independent")
    if problems:
        notes.append(f"{problems} problems in the data; `vitrail data check` lists them")
    training_path = run.config.data.path
    if training_path is not None and Path(training_path).resolve() == path.resolve():
        notes.append("the run was trained on images of this very path: the figures flatter it")
    if not run.finished:
        notes.append(f"the run is not finished: this is its model after round {run.round}")
    return tuple(notes)
