"""Learning curves of several methods in one figure: mean line, SD band, names at the line ends."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from vitrail.errors import ConfigError, DataError
from vitrail.metrics.method_tests import Histories, History
from vitrail.report.charts.chart_lines import Across, Series, draw_lines
from vitrail.report.charts.drawing import Text
from vitrail.report.charts.scale import estimate_width
from vitrail.report.write_picture import write_drawing

_WIDE = 720.0
_MOST_LETTERS = 40


@dataclass(frozen=True)
class Curve:
    """Mean and SD over seeds for each round that has a value; the SD of one seed is NaN."""

    rounds: list[float]
    mean: list[float]
    sd: list[float]


def draw_curves(
    histories: Histories,
    path: Path,
    ylabel: str,
    xlabel: str = "round",
    title: str = "",
    log: bool = False,
) -> None:
    """Draw one line for each method into a PNG or SVG file; `log` for steps that multiply.

    A history is a list of (round, value), or such lists by seed; then the line is the mean over
    the seeds that have the round, and the band one SD to each side. None and NaN are gaps.
    """
    if path.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(
            f"a figure cannot be written as {path.name!r}", hint="Use a name in .png or .svg."
        )
    curves = {name: summarize_history(history) for name, history in histories.items()}
    series = [_make_series(name, curve) for name, curve in curves.items() if curve.rounds]
    if not series:
        raise DataError(f"no method has a value of {ylabel!r} to draw")
    ticks = sorted({at for one in series for at, _ in one.points}) if log else []
    room = min(340.0, 46 + max(estimate_width(one.name, 12) for one in series))
    axis = Across(xlabel, log, tuple(ticks), room, compares=True)
    drawing = draw_lines(series, title or ylabel, ylabel, _WIDE, shares=False, axis=axis)
    if title:
        words = Text((_WIDE / 2, 12), _shorten(title), "ink", 13, "middle", bold=True)
        drawing = replace(drawing, shapes=[*drawing.shapes, words])
    write_drawing(drawing, path)


def _make_series(name: str, curve: Curve) -> Series:
    points = tuple(zip(curve.rounds, curve.mean, strict=True))
    band = tuple(
        (at, mean - sd, mean + sd)
        for at, mean, sd in zip(curve.rounds, curve.mean, curve.sd, strict=True)
        if math.isfinite(sd)
    )
    return Series(_shorten(name), points, band=band)


def summarize_history(history: History | Mapping[Hashable, History]) -> Curve:
    """Mean and SD (ddof=1) over seeds, round by round."""
    seeds = history.values() if isinstance(history, Mapping) else [history]
    values: dict[float, list[float]] = {}
    for seed in seeds:
        for number, value in seed:
            if value is not None and math.isfinite(value):
                values.setdefault(number, []).append(float(value))
    rounds = sorted(values)
    mean = [float(np.mean(values[r])) for r in rounds]
    sd = [float(np.std(values[r], ddof=1)) if len(values[r]) > 1 else math.nan for r in rounds]
    return Curve(rounds, mean, sd)


def _shorten(name: str) -> str:
    text = " ".join(name.split()) or "(no name)"
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"
