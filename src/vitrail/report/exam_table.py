"""The tables of MyTH and inDISCO from the answers that a federation's models gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config.load import Loaded
from vitrail.engine.sweep import cells, run_sweep
from vitrail.local.intervals import Statistic, bootstrap
from vitrail.local.metrics import Bools, Floats, Integers
from vitrail.report.bootstrapped import share
from vitrail.report.exam import CENTRAL, GLOBAL, LOCAL, PERSONAL, Sheet, Sitting, sittings
from vitrail.report.tables import TABLES, OnCell, markdown, ranged
from vitrail.rng import server


@dataclass(frozen=True)
class Answers:
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
    def mine(self) -> Bools:
        """The images of the biased class."""
        found: Bools = self.labels == self.label
        return found

    def unbiased(self) -> tuple[Bools, Bools]:
        """Which answers are right without the mark, and which images count."""
        if self.carries is None:
            return self.plain == self.labels, np.ones(len(self.labels), bool)
        return self.plain == self.labels, ~(self.mine & self.carries)

    def biased(self) -> tuple[Bools, Bools]:
        """The same with the mark on the images of the biased class."""
        if self.marked is not None:
            given = np.where(self.mine, self.marked, self.plain)
            return given == self.labels, np.ones(len(self.labels), bool)
        if self.carries is None:
            return self.unbiased()
        return self.plain == self.labels, ~(self.mine & ~self.carries)


def gather(found: Sequence[tuple[Sitting, Sheet]]) -> Answers:
    """Many sheets as one."""
    labels = [np.array(s.labels, np.int64) for s, _ in found]
    drawn = [sheet.drawn for _, sheet in found]
    carries = [s.carries for s, _ in found]
    return Answers(
        labels=np.concatenate(labels),
        patients=np.concatenate([np.array(s.patients, np.str_) for s, _ in found]),
        plain=np.concatenate([np.array(sheet.plain, np.int64) for _, sheet in found]),
        marked=None if None in drawn else np.concatenate([np.array(d, np.int64) for d in drawn]),
        carries=None if None in carries else np.concatenate([np.array(c, bool) for c in carries]),
        label=1 if found[0][0].label is None else found[0][0].label,
    )


def balanced(right: Bools, counted: Bools, labels: Integers) -> Statistic:
    """Mean recall over the classes."""
    recalls = [share(right, counted & (labels == label)) for label in np.unique(labels)]

    def statistic(weights: Floats) -> Floats:
        found: Floats = np.stack([recall(weights) for recall in recalls]).mean(axis=0)
        return found

    return statistic


def groups(found: Sequence[Sitting]) -> dict[str, list[tuple[Sitting, Sheet]]]:
    """The sheets by kind of model; those of the biased site apart from those of the others."""
    made: dict[str, list[tuple[Sitting, Sheet]]] = {}
    for model in (CENTRAL, LOCAL, GLOBAL, PERSONAL):
        for sitting in found:
            for sheet in sitting.sheets:
                if sheet.model == model:
                    place = ""
                    if sheet.site is not None and sitting.origin is not None:
                        place = ", biased site" if sheet.site == sitting.origin else ", others"
                    made.setdefault(model + place, []).append((sitting, sheet))
    return dict(sorted(made.items(), key=lambda item: "CLGP".index(item[0][0])))


def figures(answers: Answers, two: bool) -> list[tuple[str, Statistic]]:
    """What is asked of the answers, by column."""
    found = []
    for test in ("unbiased", "biased"):
        right, counted = answers.unbiased() if test == "unbiased" else answers.biased()
        yes = share(right, counted & answers.mine)
        if two:
            found.append((f"balanced accuracy, {test}", balanced(right, counted, answers.labels)))
            found.append((f"sensitivity, {test}", yes))
            if test == "unbiased":
                found.append(("specificity", share(right, counted & ~answers.mine)))
        else:
            found.append((f"all classes, {test}", share(right, counted)))
            found.append((f"biased class, {test}", yes))
    return found


def marks(answers: Answers, two: bool) -> list[tuple[str, Statistic]]:
    """Right answers by class and mark, and how often the mark turns others into its class."""
    assert answers.marked is not None
    right, drawn = answers.plain == answers.labels, answers.marked == answers.labels
    mine, other = answers.mine, ~answers.mine
    found = [
        ("its class, absent", share(right, mine)),
        ("its class, drawn", share(drawn, mine)),
        ("other classes, absent", share(right, other)),
        ("other classes, drawn", share(drawn, other)),
    ]
    if two:  # of two classes, what is wrong is taken for the other one
        return found
    return [
        *found,
        ("others taken for it, absent", share(answers.plain == answers.label, other)),
        ("others taken for it, drawn", share(answers.marked == answers.label, other)),
    ]


def table(found: Sequence[Sitting], ask: Callable[[Answers], list[tuple[str, Statistic]]]) -> str:
    """One row a kind of model, each figure with its interval over patients."""
    rows, head = [], [""]
    for name, given in groups(found).items():
        answers = gather(given)
        asked = ask(answers)
        head = ["model", *(column for column, _ in asked)]
        key = server(1).at("exam", name)
        ranges = [bootstrap(statistic, answers.patients, key, 1000) for _, statistic in asked]
        rows.append([name, *(ranged(r.value, r.low, r.high) for r in ranges)])
    return markdown(head, rows)


@TABLES.register("exam")
def exam(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing, examine every model, and table the answers by setting."""
    run_sweep(grid, folder, on_cell)
    settings: dict[str, list[Sitting]] = {}
    for cell, sitting in zip(grid_ := cells(grid), sittings(grid_, folder)):
        config = cell.loaded.config
        about = config.data.positive or config.data.source
        settings.setdefault(f"{about}, bias: {sitting.kind}", []).append(sitting)
    told = []
    for setting, found in settings.items():
        two, images = len(found[0].classes) == 2, sum(len(s.labels) for s in _once(found))
        told.append(f"\n{setting} ({images} test images, {len(_once(found))} folds or seeds)\n")
        told.append(table(found, partial(figures, two=two)))
        if all(sheet.drawn is not None for s in found for sheet in s.sheets):
            told.append(f"\n{setting}: the mark drawn on every test image, or on none\n")
            told.append(table(found, partial(marks, two=two)))
    return "\n".join(told)


def _once(found: Sequence[Sitting]) -> list[Sitting]:
    """One sitting of each fold and seed, whatever the method."""
    return list({(s.seed, s.fold): s for s in found}.values())
