"""Accuracy and fidelity against epsilon: a grid of methods behind mechanisms at some budgets."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.tables.fidelity_table import compute_fidelity_rows
from experiments.tables.markdown import format_mean, to_markdown
from vitrail.config.load import Loaded
from vitrail.errors import VitrailError
from vitrail.files import write_text
from vitrail.report.figures.curves import draw_curves
from vitrail.runs.ledgers import read_ledgers
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import name_release, run_sweep
from vitrail.sweep.tables import TABLES, OnCell

HEAD = ["method", "images", "defense", "epsilon", "for", "accuracy", "SSIM of Grad-CAM"]


@dataclass(frozen=True)
class PrivacyRow:
    """One method behind one release section: each figure by seed.

    `accuracy` is the balanced one where there are two classes.
    """

    method: str
    images: int | None  # data.limit, where the grid has several
    release: str
    epsilon: float | None  # the largest that a site spent, None without a guarantee
    unit: str
    accuracy: tuple[float, ...]
    ssim: tuple[float, ...]


def collect_privacy_rows(paths: Sequence[Path]) -> list[PrivacyRow]:
    """A row for each method, size of the data and release section."""
    cells: dict[tuple[str, int | None, str], list[Run]] = {}
    for run in map(Run, paths):
        config = run.config
        name = name_release(config.release.model_dump())
        cells.setdefault((config.method.name, config.data.limit, name), []).append(run)
    seen = {group: _compute_ssim(group, cells) for group in dict.fromkeys(key[:2] for key in cells)}
    return [
        PrivacyRow(
            *key,
            *_find_largest_epsilon(runs),
            tuple(run.curve(_choose_metric(run), "sites")[-1][1] for run in runs),
            seen[key[:2]].get(key[2], ()),
        )
        for key, runs in cells.items()
    ]


def _choose_metric(run: Run) -> str:
    """Two classes are a finding against the rest, of which there are far more."""
    return "balanced_accuracy" if len(run.classes) == 2 else "accuracy"


def _compute_ssim(
    group: tuple[str, int | None], cells: Mapping[tuple[str, int | None, str], Sequence[Run]]
) -> dict[str, tuple[float, ...]]:
    """SSIM of maps beside the undefended run, by release; none where there is no such model."""
    paths = [run.path for key, runs in cells.items() if key[:2] == group for run in runs]
    try:
        return {row.name: row.values["ssim"] for row in compute_fidelity_rows(paths)}
    except VitrailError:  # a method that keeps its features home has no model to compare
        return {}


def _find_largest_epsilon(runs: Iterable[Run]) -> tuple[float | None, str]:
    """The largest epsilon that any site spent, and what it is for."""
    budgets = [b for run in runs for site in read_ledgers(run.path).sites for b in site.budgets]
    epsilons = [float(b["epsilon"]) for b in budgets if b["epsilon"] is not None]
    return (max(epsilons), str(budgets[0]["unit"])) if epsilons else (None, "")


@TABLES.register("privacy")
def make_privacy_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The table as Markdown; the figures are drawn beside the runs."""
    rows = collect_privacy_rows(run_sweep(grid, folder, on_cell))
    cells = [
        [
            row.method,
            "all" if row.images is None else str(row.images),
            f"`{row.release}`",
            "-" if row.epsilon is None else f"{row.epsilon:.3g}",
            row.unit or "-",
            format_mean(row.accuracy, ".3f"),
            format_mean(row.ssim, ".3f"),
        ]
        for row in rows
    ]
    text = to_markdown(HEAD, cells)
    write_text(folder / "figures" / "privacy.md", text + "\n")
    for figure in ("accuracy", "ssim"):
        histories = collect_lines(rows, figure)
        if histories:
            path = folder / "figures" / f"{figure}-by-epsilon.png"
            draw_curves(histories, path, figure, "epsilon of the whole run", log=True)
    return text


def collect_lines(
    rows: Sequence[PrivacyRow], figure: str
) -> dict[str, dict[Hashable, list[tuple[int, float | None]]]]:
    """A line for each method, size and mechanism: (epsilon, figure) by seed."""
    lines: dict[str, dict[Hashable, list[tuple[int, float | None]]]] = {}
    for row in sorted(rows, key=lambda row: row.epsilon or 0.0):
        if row.epsilon is None:
            continue
        size = "" if row.images is None else f", {row.images} images"
        name = f"{row.method}, {row.release.partition('-eps')[0]}{size}"
        for seed, value in enumerate(getattr(row, figure)):
            if np.isfinite(value):
                lines.setdefault(name, {}).setdefault(seed, []).append((round(row.epsilon), value))
    return lines
