"""Learning curves of several methods in one figure: mean line, SD band, names at the line ends."""

from __future__ import annotations

import io
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from vitrail.errors import ConfigError, DataError
from vitrail.files import write_bytes
from vitrail.metrics.method_tests import Histories, History
from vitrail.report.charts.label_places import spread_labels

# Okabe and Ito's colors without the yellow, which white paper swallows. Lines also differ in
# dashes and marks, so that no two of the first twelve look alike in gray.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#000000", "#CC79A7", "#56B4E9", "#E69F00")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.4)), (0, (6, 2, 1.2, 2)))
MARKS = ("", "o", "s")
INK = "#333333"
FONT = 9
LINE_HEIGHT = 1.25 * FONT / 72  # inches a name needs


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
    form = path.suffix.lower().lstrip(".")
    if form not in ("png", "svg"):
        raise ConfigError(
            f"a figure cannot be written as {path.name!r}", hint="Use a name in .png or .svg."
        )
    curves = {name: summarize_history(history) for name, history in histories.items()}
    curves = {name: curve for name, curve in curves.items() if curve.rounds}
    if not curves:
        raise DataError(f"no method has a value of {ylabel!r} to draw")
    # text stays text, and the same input gives the same bytes
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vitrail"}):
        figure = _draw_figure(curves, ylabel, xlabel, title, log)
        buffer = io.BytesIO()
        date = {"Date": None} if form == "svg" else {}
        figure.savefig(buffer, format=form, metadata=date)
    write_bytes(path, buffer.getvalue())


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


def _draw_figure(
    curves: Mapping[str, Curve], ylabel: str, xlabel: str, title: str, log: bool
) -> Figure:
    height = max(3.6, 1.0 + len(curves) * LINE_HEIGHT)
    figure = Figure(figsize=(6.4, height), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    for index, curve in enumerate(curves.values()):
        _draw_line(axes, curve, index)
    _style_axes(axes, ylabel, xlabel, title)
    if log:
        _set_log_axis(axes, sorted({at for curve in curves.values() for at in curve.rounds}))
    names = _draw_names(axes, curves, height)
    _fit_names(figure, axes, names, height)
    return figure


def _draw_line(axes: Any, curve: Curve, index: int) -> None:
    color = COLORS[index % len(COLORS)]
    mark = MARKS[index // len(DASHES) % len(MARKS)]
    count = len(curve.rounds)
    axes.plot(
        curve.rounds,
        curve.mean,
        color=color,
        linestyle=DASHES[index % len(DASHES)],
        linewidth=1.8,
        marker=mark or ("o" if count == 1 else ""),
        markersize=4.5,
        markevery=(index * count // 40 % max(1, count // 8), max(1, count // 8)),
        zorder=3,
    )
    mean, sd = np.array(curve.mean), np.array(curve.sd)
    if np.isfinite(sd).any():
        low, high = mean - sd, mean + sd
        axes.fill_between(curve.rounds, low, high, color=color, alpha=0.13, linewidth=0, zorder=1)


def _style_axes(axes: Any, ylabel: str, xlabel: str, title: str) -> None:
    """Two thin axes and light horizontal lines; nothing else."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.tick_params(colors=INK, labelsize=FONT, length=3, color="#999999")
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(
        MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10], min_n_ticks=1)
    )
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))
    # a "$" in a label is a character, not mathematics
    axes.set_xlabel(xlabel, fontsize=FONT, color=INK, parse_math=False)
    axes.set_ylabel(ylabel, fontsize=FONT, color=INK, parse_math=False)
    if title:
        axes.set_title(title, fontsize=FONT + 1, color=INK, loc="left", parse_math=False)


def _set_log_axis(axes: Any, places: Sequence[float]) -> None:
    """A logarithmic axis whose ticks are the places that were measured."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    for line in axes.get_lines():
        line.set_marker("o")
        line.set_markevery(1)


def _draw_names(axes: Any, curves: Mapping[str, Curve], height: float) -> list[Any]:
    """Each name right of the axes near the height of its line's end, beside a sample of it."""
    axes.margins(x=0.02)
    axes.autoscale_view()
    bottom, top = axes.get_ylim()
    ends = [(curve.mean[-1] - bottom) / (top - bottom) for curve in curves.values()]
    places = spread_labels(ends, LINE_HEIGHT / (height - 1.0), 0.0, 1.0)
    texts = []
    for index, (name, curve) in enumerate(curves.items()):
        color = COLORS[index % len(COLORS)]
        across = axes.get_yaxis_transform()
        axes.plot(curve.rounds[-1], curve.mean[-1], "o", color=color, markersize=3.5, zorder=4)
        # Outside the axes and in no line's color: what leads to a name is not data.
        outside = {"transform": axes.transAxes, "clip_on": False, "zorder": 2}
        leader = ([1.005, 1.02], [ends[index], places[index]])
        axes.plot(*leader, color="#999999", linewidth=0.7, linestyle=":", **outside)
        sample = ([1.025, 1.055], [places[index], places[index]])
        axes.plot(*sample, color=color, linestyle=DASHES[index % len(DASHES)], **outside)
        at = (1.06, bottom + places[index] * (top - bottom))
        text = _shorten(name)
        texts.append(
            axes.text(
                *at, text, transform=across, va="center", color=INK, fontsize=FONT, parse_math=False
            )
        )
    axes.set_ylim(bottom, top)
    return texts


def _shorten(name: str, most: int = 40) -> str:
    text = " ".join(name.split()) or "(no name)"
    return text if len(text) <= most else text[: most - 1] + "…"


def _fit_names(figure: Figure, axes: Any, names: list[Any], height: float) -> None:
    """Leave exactly the room on the right that the longest name needs."""
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    widest = max(text.get_window_extent(renderer).width for text in names) / figure.dpi
    width = figure.get_figwidth()
    left, room = 0.75, widest + 0.15
    inner = (width - left - room) / 1.06  # names begin at 1.06 of the axes
    axes.set_position((left / width, 0.6 / height, inner / width, (height - 1.0) / height))
