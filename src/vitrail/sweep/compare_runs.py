"""Runs side by side: which configuration is better, by how much, and does it outlast the seed?"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vitrail.config.debias_section import Debias
from vitrail.config.load import Loaded, flatten, to_config_error
from vitrail.config.schema import Config, Count, Section
from vitrail.engine.plan import METRICS
from vitrail.engine.resolve_config import resolve_config
from vitrail.errors import RunError, suggest_name
from vitrail.metrics.method_tests import Alternative, Histories, MetricValues, Row, compare
from vitrail.runs.opened_run import CurveSource, Run
from vitrail.sweep.cells import Cell, name_release
from vitrail.sweep.cost import Cost, compute_cost, compute_mean_cost

_IGNORED = ("run.seed", "run.workers", "run.device", "run.plugins", "run.checkpoint_every")
_AGREED = tuple(  # what of the images a coordinator's file fixes for everybody
    f"data.{key}"
    for key in ("classes", "image_size", "channels", "resize", "normalize", "augment", "views")
)
_SHOWN = 3  # classes of sites that the name of a debiased row tells
_ROW_SECTIONS = ("method", "optimizer", "release")  # what makes a row rather than a table


@dataclass(frozen=True)
class Comparison:
    """One table: the runs that share every setting but the method."""

    setting: str
    figure: str
    rows: list[Row]
    histories: Histories
    notes: tuple[str, ...]


class ComparisonConfig(Section):
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


def read_comparison_config(loaded: Loaded) -> ComparisonConfig:
    """What a grid asks for in `[sweep] compare`."""
    try:
        return ComparisonConfig.model_validate(loaded.sweep.get("compare", {}), strict=True)
    except ValidationError as err:
        raise to_config_error(err, loaded.source, ComparisonConfig, "sweep.compare") from None


def check_comparison_config(
    comparison: ComparisonConfig, grid: Sequence[Cell], source: str
) -> None:
    """Refuse a baseline that no row of a grid will have, before anything is played."""
    if comparison.baseline is None:
        return
    resolved = [resolve_config(cell.loaded) for cell in grid]
    configs = [_flatten_config(config) for config in resolved]
    varying = _find_varying_keys(configs)
    if any(k.startswith("release.") for k in varying):
        return
    remedies = _describe_remedies([config.debias for config in resolved])
    labels = {
        _make_label(config, configs, varying) + remedy
        for config, remedy in zip(configs, remedies, strict=True)
    }
    _check_baseline(comparison.baseline, labels, f"{source}: sweep.compare.baseline")


def compare_runs(
    paths: Sequence[Path],
    figure: str = "accuracy",
    baseline: str | None = None,
    where: CurveSource = "auto",
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
    _check_figure(figure, runs)
    if where == "auto":
        where = "server" if all(run.curve(figure, "server") for run in runs) else "sites"
    tables: dict[str, dict[str, dict[Hashable, list[tuple[int, float | None]]]]] = {}
    notes = _list_notes(where, last, until, alternative)
    costs: dict[tuple[str, str], list[Cost]] = {}
    for run, (setting, label) in zip(runs, _name_rows(runs), strict=True):
        history: list[tuple[int, float | None]] = [
            point for point in run.curve(figure, where) if until is None or point[0] <= until
        ]
        notes += _list_shortfalls(run, sum(1 for at, _ in history if at), last, until)
        if run.config.run.seed in tables.get(setting, {}).get(label, {}):
            notes.append(f"{run.path} repeats {label} with the same seed and is left out")
        elif history:
            tables.setdefault(setting, {}).setdefault(label, {})[run.config.run.seed] = history
            costs.setdefault((setting, label), []).append(compute_cost(run))
        else:
            notes.append(f"{run.path} has no {figure}")
    if not tables:
        return []
    _check_baseline(baseline, {label for groups in tables.values() for label in groups})
    comparisons = []
    for setting, groups in tables.items():
        values: dict[str, MetricValues] = {
            label: {s: _compute_final_mean(h, last) for s, h in seeds.items()}
            for label, seeds in groups.items()
        }
        first = next(row for row in (baseline, "fedavg", *values) if row in values)
        spent = [f"{label}: {compute_mean_cost(costs[setting, label]).text()}" for label in groups]
        rows = compare(values, first, alternative=alternative)
        comparisons.append(Comparison(setting, figure, rows, {**groups}, (*notes, *spent)))
    return comparisons


def _name_rows(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """The setting of each run, and what its row is called there."""
    configs = [_describe_config(run) for run in runs]
    varying = _find_varying_keys(configs)
    settings = [k for k in varying if k.split(".")[0] not in _ROW_SECTIONS]
    settings = [k for k in settings if _varies_within_method(k, configs)]
    doors = [name_release(run.config.release.model_dump()) for run in runs]
    remedies = _describe_remedies([run.config.debias for run in runs])
    names = []
    for config, door, remedy in zip(configs, doors, remedies, strict=True):
        label = _make_label(config, configs, varying) + remedy
        if any(k.startswith("release.") for k in varying):
            label = f"{label} {_describe_release(config, door, configs, doors, varying)}"
        names.append((", ".join(f"{k} = {config.get(k)}" for k in settings), label))
    return names


def _describe_config(run: Run) -> dict[str, Any]:
    """The keys of a run by name. At one end of a real federation what a file says of images holds
    for that end alone: only what was agreed on is a setting."""
    config = _flatten_config(run.config)
    if run.end == "simulation":
        return config
    agreed = {
        key: value
        for key, value in config.items()
        if key.split(".")[0] not in ("data", "partition") or key.startswith(_AGREED)
    }
    whose = "of all sites" if run.end == "coordinator" else f"of site {run.sites[0]}"
    return {**agreed, "figures": whose}


def _flatten_config(config: Config) -> dict[str, Any]:
    """The keys of a configuration without its remedies and the rounds that these added: a run
    before a remedy and one after it have the same setting."""
    rounds = config.run.rounds - config.debias.last_rounds
    run = config.run.model_copy(update={"rounds": rounds})
    bare = config.model_copy(update={"debias": Debias(), "run": run})
    return flatten(bare.model_dump(mode="json"))


def _describe_remedies(sections: Sequence[Debias]) -> list[str]:
    """What follows the name of each row: its remedies and what they are against, or nothing.
    Sections that differ in what is not told are numbered."""
    known: dict[str, list[Debias]] = {}
    words = []
    for section in sections:
        if not section.remedies:
            words.append("")
            continue
        against = dict.fromkeys(f"{one.site}/{one.label}" for one in section.findings)
        shown = ", ".join([*against][:_SHOWN]) + (", ..." if len(against) > _SHOWN else "")
        text = f" debiased by {', '.join(section.remedies)} ({shown})"
        alike = known.setdefault(text, [])
        if section not in alike:
            alike.append(section)
        number = alike.index(section)
        words.append(f"{text} #{number + 1}" if number else text)
    return words


def _check_figure(figure: str, runs: Sequence[Run]) -> None:
    """Refuse a figure that no run could have: a typing error must not look like missing data."""
    known = {*METRICS, *(name for run in runs for row in run.rows() for name in row)}
    known -= {"round", "site"}
    if figure not in known:
        raise RunError(
            f"no run has a figure {figure!r}",
            where="--figure",
            hint=suggest_name(figure, known),
        )


def _list_notes(
    where: CurveSource, last: int, until: int | None, alternative: Alternative
) -> list[str]:
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


def _list_shortfalls(run: Run, evaluations: int, last: int, until: int | None) -> Iterator[str]:
    """What a run has less of than was asked for."""
    if 0 < evaluations < last:
        yield f"{run.path} has {evaluations} evaluations, and all of them count"
    if not run.finished:
        yield f"{run.path} stopped at round {run.round} of {run.config.run.rounds}"
    elif until is not None and run.round < until:
        yield f"{run.path} ended at round {run.round}"


def _compute_final_mean(history: Sequence[tuple[int, float | None]], last: int) -> float | None:
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
            hint=f"Which of {', '.join(alike)}?" if alike else suggest_name(baseline, labels),
        )


def _find_varying_keys(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys in which configurations differ, but for those that do not matter here."""
    names = sorted({key for config in configs for key in config})
    return [
        key
        for key in names
        if key not in _IGNORED and len({repr(config.get(key)) for config in configs}) > 1
    ]


def _varies_within_method(key: str, configs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a key varies within some method; else it is that method's own choice."""
    seen: dict[str, set[str]] = {}
    for config in configs:
        seen.setdefault(config["method.name"], set()).add(repr(config.get(key)))
    return any(len(values) > 1 for values in seen.values())


def _make_label(
    config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]], varying: Sequence[str]
) -> str:
    """The method, and those of its own options that differ between runs of that method."""
    method = config["method.name"]
    same = [other for other in configs if other["method.name"] == method]
    return " ".join(
        [str(method), *_list_differing_keys(config, same, varying, ("method", "optimizer"))]
    )


def _describe_release(
    config: Mapping[str, Any],
    door: str,
    configs: Sequence[Mapping[str, Any]],
    doors: Sequence[str],
    varying: Sequence[str],
) -> str:
    """The defenses, and those of their options that differ between runs with the same ones."""
    alike = [other for other, name in zip(configs, doors, strict=True) if name == door]
    return " ".join([door, *_list_differing_keys(config, alike, varying, ("release",))])


def _list_differing_keys(
    config: Mapping[str, Any],
    same: Sequence[Mapping[str, Any]],
    varying: Sequence[str],
    sections: Sequence[str],
) -> list[str]:
    """The keys of some sections that differ between runs of one name, with this run's values."""
    keys = [k for k in varying if k.split(".")[0] in sections]
    keys = [k for k in keys if len({repr(other.get(k)) for other in same}) > 1]
    return [f"{k.rpartition('.')[2]}={config.get(k)}" for k in keys]
