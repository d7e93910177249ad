"""Runs side by side: which configuration is better, by how much, and does it outlast the seed?"""

from __future__ import annotations

import csv
import io
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vitrail.config.load import Loaded, explain, flat
from vitrail.config.schema import Count, Table
from vitrail.engine.loaded import Run, Where
from vitrail.engine.settle import settled
from vitrail.engine.sweep import Cell, release_name
from vitrail.errors import RunError, nearest
from vitrail.files import write_text
from vitrail.report.cost import Cost, cost_of, mean_cost
from vitrail.report.curves import Histories, curves
from vitrail.report.statistics import Alternative, Figures, Row, compare, table_markdown

_IGNORED = ("run.seed", "run.workers", "run.device", "run.plugins", "run.checkpoint_every")
_OWN = ("method", "optimizer", "release")  # what makes a row rather than a table


@dataclass(frozen=True)
class Comparison:
    """One table: the runs that share every setting but the method."""

    setting: str
    figure: str
    rows: list[Row]
    histories: Histories
    notes: tuple[str, ...]


class Ending(Table):
    """`[sweep] compare`: how the runs of a grid are compared in the end."""

    figure: str = "accuracy"
    """accuracy, balanced_accuracy, auroc, loss, ..."""
    baseline: str | None = None
    """The row others are compared with; left out: fedavg, or the first."""
    alternative: Alternative = "two-sided"
    """Two-sided tests, or whether a row is greater or less than the baseline."""
    last: Count = 1
    """A run's figure is the mean of so many last evaluations."""
    until: Count | None = None
    """As if every run had ended after this round."""


def ending(loaded: Loaded) -> Ending:
    """What a grid asks for in `[sweep] compare`."""
    try:
        return Ending.model_validate(loaded.sweep.get("compare", {}), strict=True)
    except ValidationError as err:
        raise explain(err, loaded.source, Ending, "sweep.compare") from None


def check_ending(asked: Ending, grid: Sequence[Cell], source: str) -> None:
    """Refuse a baseline that no row of a grid will have, before anything is played."""
    if asked.baseline is None:
        return
    keys = [flat(settled(cell.loaded).model_dump(mode="json")) for cell in grid]
    varying = _varying(keys)
    if any(k.startswith("release.") for k in varying):
        return
    labels = {_label(told, keys, varying) for told in keys}
    _check_baseline(asked.baseline, labels, f"{source}: sweep.compare.baseline")


def compare_runs(
    paths: Sequence[Path],
    figure: str = "accuracy",
    baseline: str | None = None,
    where: Where = "auto",
    alternative: Alternative = "two-sided",
    last: int = 1,
    until: int | None = None,
) -> list[Comparison]:
    """One table per setting; runs that differ only in the seed are repeats of one row.

    A run's figure is the mean of its `last` evaluations, of those up to round `until`. Nothing is
    compared where no run has any.
    """
    if last < 1:
        raise RunError(f"a mean of {last} evaluations says nothing", where="--last", hint="Use 1.")
    runs = [Run(path) for path in paths]
    if len(runs) < 2:
        raise RunError("there is nothing to compare", hint="Name at least two run folders.")
    if where == "auto":
        where = "server" if all(run.curve(figure, "server") for run in runs) else "sites"
    keys = [flat(run.config.model_dump(mode="json")) for run in runs]
    varying = _varying(keys)
    settings = [k for k in varying if k.split(".")[0] not in _OWN and _free(k, keys)]
    tables: dict[str, dict[str, dict[Hashable, list[tuple[int, float | None]]]]] = {}
    notes = _notes(where, last, until, alternative)
    costs: dict[tuple[str, str], list[Cost]] = {}
    doors = [release_name(run.config.release.model_dump()) for run in runs]
    for run, asked, door in zip(runs, keys, doors, strict=True):
        setting = ", ".join(f"{k} = {asked.get(k)}" for k in settings)
        label = _label(asked, keys, varying)
        if any(k.startswith("release.") for k in varying):
            label = f"{label} {_door(asked, door, keys, doors, varying)}"
        history: list[tuple[int, float | None]] = [
            point for point in run.curve(figure, where) if until is None or point[0] <= until
        ]
        notes += _short(run, sum(1 for at, _ in history if at), last, until)
        if run.config.run.seed in tables.get(setting, {}).get(label, {}):
            notes.append(f"{run.path} repeats {label} with the same seed and is left out")
        elif history:
            tables.setdefault(setting, {}).setdefault(label, {})[run.config.run.seed] = history
            costs.setdefault((setting, label), []).append(cost_of(run))
        else:
            notes.append(f"{run.path} has no {figure}")
    if not tables:
        return []
    _check_baseline(baseline, {label for groups in tables.values() for label in groups})
    found = []
    for setting, groups in tables.items():
        values: dict[str, Figures] = {
            label: {s: _level(h, last) for s, h in seeds.items()} for label, seeds in groups.items()
        }
        first = next(row for row in (baseline, "fedavg", *values) if row in values)
        spent = [f"{label}: {mean_cost(costs[setting, label]).text()}" for label in groups]
        told = (*notes, *spent)
        found.append(
            Comparison(
                setting, figure, compare(values, first, alternative=alternative), {**groups}, told
            )
        )
    return found


def _notes(where: Where, last: int, until: int | None, alternative: Alternative) -> list[str]:
    """What a reader must know of the figures."""
    images = "the server's test images" if where == "server" else "the sites' own test images"
    notes = [f"on {images}"]
    if last > 1:
        notes.append(f"each run's figure is the mean of its last {last} evaluations")
    if until is not None:
        notes.append(f"up to round {until}; what a row cost is told of all its rounds")
    if alternative != "two-sided":
        notes.append(f"one-sided tests: is a row {alternative} than the first?")
    return notes


def _short(run: Run, evaluations: int, last: int, until: int | None) -> Iterator[str]:
    """What a run has less of than was asked for."""
    if 0 < evaluations < last:
        yield f"{run.path} has {evaluations} evaluations, and all of them count"
    if not run.finished:
        yield f"{run.path} stopped at round {run.round} of {run.config.run.rounds}"
    elif until is not None and run.round < until:
        yield f"{run.path} ended at round {run.round}"


def _level(history: Sequence[tuple[int, float | None]], last: int) -> float | None:
    """The mean of the last evaluations, the untrained model's only where there is no other; a
    figure that is missing among them leaves none."""
    trained = [point for point in history if point[0]] or history
    values = [value for _, value in trained[-last:]]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _check_baseline(baseline: str | None, labels: set[str], where: str = "--baseline") -> None:
    if baseline is not None and baseline not in labels:
        alike = sorted(label for label in labels if label.startswith(f"{baseline} "))
        raise RunError(
            f"there is no row {baseline!r} to compare with",
            where=where,
            hint=f"Which of {', '.join(alike)}?" if alike else nearest(baseline, labels),
        )


def _varying(keys: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys in which configurations differ, but for those that do not matter here."""
    every = sorted({key for told in keys for key in told})
    return [
        key
        for key in every
        if key not in _IGNORED and len({repr(told.get(key)) for told in keys}) > 1
    ]


def write_comparison(tables: Iterable[Comparison], folder: Path) -> list[Path]:
    """Each table as Markdown and CSV, and its curves as PNG."""
    written = []
    for number, table in enumerate(tables, start=1):
        stem = f"compare-{number}-{table.figure}"
        title = table.setting or "all runs"
        text = f"{title}\n\n{table_markdown(table.rows)}\n" + "".join(
            f"\n{note}" for note in table.notes
        )
        write_text(folder / f"{stem}.md", text)
        write_text(folder / f"{stem}.csv", _csv(table.rows))
        curves(table.histories, folder / f"{stem}.png", table.figure, title=table.setting)
        written += [folder / f"{stem}{suffix}" for suffix in (".md", ".csv", ".png")]
    return written


def _csv(rows: Sequence[Row]) -> str:
    names = (
        "name",
        "n",
        "mean",
        "sd",
        "difference",
        "low",
        "high",
        "test",
        "p",
        "p_holm",
        "effect",
        "note",
    )
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(names)
    writer.writerows([getattr(row, name) for name in names] for row in rows)
    return out.getvalue()


def _free(key: str, every: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a key varies within some method; else it is that method's own choice."""
    seen: dict[str, set[str]] = {}
    for told in every:
        seen.setdefault(told["method.name"], set()).add(repr(told.get(key)))
    return any(len(values) > 1 for values in seen.values())


def _label(
    told: Mapping[str, Any], every: Sequence[Mapping[str, Any]], varying: Sequence[str]
) -> str:
    """The method, and those of its own options that differ between runs of that method."""
    method = told["method.name"]
    same = [f for f in every if f["method.name"] == method]
    return " ".join([str(method), *_differing(told, same, varying, ("method", "optimizer"))])


def _door(
    told: Mapping[str, Any],
    door: str,
    every: Sequence[Mapping[str, Any]],
    doors: Sequence[str],
    varying: Sequence[str],
) -> str:
    """The defenses, and those of their options that differ between runs with the same ones."""
    alike = [other for other, name in zip(every, doors, strict=True) if name == door]
    return " ".join([door, *_differing(told, alike, varying, ("release",))])


def _differing(
    told: Mapping[str, Any],
    same: Sequence[Mapping[str, Any]],
    varying: Sequence[str],
    sections: Sequence[str],
) -> list[str]:
    """The keys of some sections that differ between runs of one name, with this run's values."""
    own = [k for k in varying if k.split(".")[0] in sections]
    own = [k for k in own if len({repr(f.get(k)) for f in same}) > 1]
    return [f"{k.rpartition('.')[2]}={told.get(k)}" for k in own]
