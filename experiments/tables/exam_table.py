"""The tables of MyTH and inDISCO from the answers that a federation's models gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.tables.exam import (
    CENTRAL,
    GLOBAL,
    LOCAL,
    PERSONAL,
    ModelPredictions,
    RunPredictions,
    collect_predictions,
)
from experiments.tables.markdown import format_interval, to_markdown
from vitrail.config.load import Loaded
from vitrail.metrics.bootstrap import Statistic, bootstrap
from vitrail.metrics.classification import Bools, Floats, Integers
from vitrail.metrics.resampled import share
from vitrail.rng import derive_server_key
from vitrail.sweep.cells import make_cells, run_sweep
from vitrail.sweep.tables import TABLES, OnCell


@dataclass(frozen=True)
class PooledPredictions:
    """The answers of one kind of model, over all its sites, folds and seeds, end to end.

    `marked` holds the answers to the images with the mark, where one can be drawn; `carries`
    those images that show the device, where none can.
    """

    labels: Integers
    patients: npt.NDArray[np.str_]
    plain: Integers
    marked: Integers | None
    carries: Bools | None
    label: int

    @property
    def of_biased_class(self) -> Bools:
        """The images of the biased class."""
        of_class: Bools = self.labels == self.label
        return of_class

    def score_unbiased(self) -> tuple[Bools, Bools]:
        """Which answers are right without the mark, and which images count."""
        if self.carries is None:
            return self.plain == self.labels, np.ones(len(self.labels), bool)
        return self.plain == self.labels, ~(self.of_biased_class & self.carries)

    def score_biased(self) -> tuple[Bools, Bools]:
        """The same with the mark on the images of the biased class."""
        if self.marked is not None:
            given = np.where(self.of_biased_class, self.marked, self.plain)
            return given == self.labels, np.ones(len(self.labels), bool)
        if self.carries is None:
            return self.score_unbiased()
        return self.plain == self.labels, ~(self.of_biased_class & ~self.carries)


def pool_predictions(
    predictions: Sequence[tuple[RunPredictions, ModelPredictions]],
) -> PooledPredictions:
    """Many answers as one."""
    labels = [np.array(run.labels, np.int64) for run, _ in predictions]
    drawn = [answers.drawn for _, answers in predictions]
    carries = [run.carries for run, _ in predictions]
    return PooledPredictions(
        labels=np.concatenate(labels),
        patients=np.concatenate([np.array(run.patients, np.str_) for run, _ in predictions]),
        plain=np.concatenate([np.array(answers.plain, np.int64) for _, answers in predictions]),
        marked=None if None in drawn else np.concatenate([np.array(d, np.int64) for d in drawn]),
        carries=None if None in carries else np.concatenate([np.array(c, bool) for c in carries]),
        label=1 if predictions[0][0].label is None else predictions[0][0].label,
    )


def mean_recall(right: Bools, counted: Bools, labels: Integers) -> Statistic:
    """Mean recall over the classes."""
    recalls = [share(right, counted & (labels == label)) for label in np.unique(labels)]

    def statistic(weights: Floats) -> Floats:
        mean: Floats = np.stack([recall(weights) for recall in recalls]).mean(axis=0)
        return mean

    return statistic


def group_predictions(
    runs: Sequence[RunPredictions],
) -> dict[str, list[tuple[RunPredictions, ModelPredictions]]]:
    """The answers by kind of model; those of the biased site apart from those of the others."""
    groups: dict[str, list[tuple[RunPredictions, ModelPredictions]]] = {}
    for model in (CENTRAL, LOCAL, GLOBAL, PERSONAL):
        for run in runs:
            for answers in run.sheets:
                if answers.model == model:
                    place = ""
                    if answers.site is not None and run.origin is not None:
                        place = ", biased site" if answers.site == run.origin else ", others"
                    groups.setdefault(model + place, []).append((run, answers))
    return dict(sorted(groups.items(), key=lambda item: "CLGP".index(item[0][0])))


def list_metrics(answers: PooledPredictions, two: bool) -> list[tuple[str, Statistic]]:
    """What is asked of the answers, by column."""
    columns = []
    for test in ("unbiased", "biased"):
        right, counted = answers.score_unbiased() if test == "unbiased" else answers.score_biased()
        yes = share(right, counted & answers.of_biased_class)
        if two:
            columns.append(
                (f"balanced accuracy, {test}", mean_recall(right, counted, answers.labels))
            )
            columns.append((f"sensitivity, {test}", yes))
            if test == "unbiased":
                columns.append(("specificity", share(right, counted & ~answers.of_biased_class)))
        else:
            columns.append((f"all classes, {test}", share(right, counted)))
            columns.append((f"biased class, {test}", yes))
    return columns


def list_mark_metrics(answers: PooledPredictions, two: bool) -> list[tuple[str, Statistic]]:
    """Right answers by class and mark, and how often the mark turns others into its class."""
    assert answers.marked is not None
    right, drawn = answers.plain == answers.labels, answers.marked == answers.labels
    of_class, other = answers.of_biased_class, ~answers.of_biased_class
    columns = [
        ("its class, absent", share(right, of_class)),
        ("its class, drawn", share(drawn, of_class)),
        ("other classes, absent", share(right, other)),
        ("other classes, drawn", share(drawn, other)),
    ]
    if two:  # of two classes, what is wrong is taken for the other one
        return columns
    return [
        *columns,
        ("others taken for it, absent", share(answers.plain == answers.label, other)),
        ("others taken for it, drawn", share(answers.marked == answers.label, other)),
    ]


def format_table(
    runs: Sequence[RunPredictions],
    list_columns: Callable[[PooledPredictions], list[tuple[str, Statistic]]],
) -> str:
    """One row a kind of model, each figure with its interval over patients."""
    rows, head = [], [""]
    for name, predictions in group_predictions(runs).items():
        answers = pool_predictions(predictions)
        columns = list_columns(answers)
        head = ["model", *(column for column, _ in columns)]
        key = derive_server_key(1).at("exam", name)
        ranges = [bootstrap(statistic, answers.patients, key, 1000) for _, statistic in columns]
        rows.append([name, *(format_interval(r.value, r.low, r.high) for r in ranges)])
    return to_markdown(head, rows)


@TABLES.register("exam")
def make_exam_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing, examine every model, and table the answers by setting."""
    run_sweep(grid, folder, on_cell)
    settings: dict[str, list[RunPredictions]] = {}
    for cell, predictions in zip(grid_ := make_cells(grid), collect_predictions(grid_, folder)):
        config = cell.loaded.config
        about = config.data.positive or config.data.source
        settings.setdefault(f"{about}, bias: {predictions.kind}", []).append(predictions)
    parts = []
    for setting, runs in settings.items():
        two, images = len(runs[0].classes) == 2, sum(len(run.labels) for run in _drop_repeats(runs))
        parts.append(
            f"\n{setting} ({images} test images, {len(_drop_repeats(runs))} folds or seeds)\n"
        )
        parts.append(format_table(runs, partial(list_metrics, two=two)))
        if all(answers.drawn is not None for run in runs for answers in run.sheets):
            parts.append(f"\n{setting}: the mark drawn on every test image, or on none\n")
            parts.append(format_table(runs, partial(list_mark_metrics, two=two)))
    return "\n".join(parts)


def _drop_repeats(runs: Sequence[RunPredictions]) -> list[RunPredictions]:
    """One run of each fold and seed, whatever the method."""
    return list({(run.seed, run.fold): run for run in runs}.values())
