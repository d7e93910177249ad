"""Fidelity over a grid: every defense beside the run without one, over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vitrail.audit.fidelity import Fidelity, fidelity
from vitrail.config.load import Loaded
from vitrail.engine.loaded import Run
from vitrail.engine.sweep import release_name, run_sweep
from vitrail.files import write_text
from vitrail.report.compare import compare_runs, write_comparison
from vitrail.report.statistics import table_markdown as accuracy_table
from vitrail.report.tables import TABLES, OnCell, averaged, markdown

FIGURES = ("accuracy", "agreement", "mse", "psnr", "ssim", "rank_correlation", "top_overlap")
NONE = "none"
OTHER = "none, next seed"


@dataclass(frozen=True)
class FidelityRow:
    """One defense over seeds: what it really added, and each figure by seed."""

    name: str
    energy: float | None  # mean noise length over change length, from the ledgers
    values: Mapping[str, tuple[float, ...]]
    failures: int
    images: int


def fidelity_table(paths: Sequence[Path], images: int = 200) -> list[FidelityRow]:
    """A row a defense, seeds kept apart; empty where no run is without one or none has one.

    The row `none, next seed` compares undefended runs of different seeds on the same images:
    what training from another start changes, with no defense at all.
    """
    runs: dict[int, dict[str, Run]] = {}
    for path in paths:
        run = Run(path)
        name = release_name(run.config.release.model_dump())
        runs.setdefault(run.config.run.seed, {})[name] = run
    seeds = [seed for seed in sorted(runs) if NONE in runs[seed] and len(runs[seed]) > 1]
    found: dict[str, list[Fidelity]] = {}
    spent: dict[str, list[float]] = {}
    for at, seed in enumerate(seeds):
        others = {name: run for name, run in runs[seed].items() if name != NONE}
        if len(seeds) > 1:
            others[OTHER] = runs[seeds[(at + 1) % len(seeds)]][NONE]
        report = fidelity(runs[seed][NONE], list(others.values()), images)
        for name, one in zip(others, report.runs, strict=True):
            found.setdefault(name, []).append(one)
            spent.setdefault(name, []).extend(energies(others[name]))
        base = runs[seed][NONE]
        found.setdefault(NONE, []).append(_undefended(base, report.accuracy, report.images))
    return [_row(name, each, spent.get(name, [])) for name, each in found.items()]


def _undefended(run: Run, accuracy: float, images: int) -> Fidelity:
    """The baseline itself, of which only the accuracy is news."""
    return Fidelity(run.path.name, (NONE,), None, images, 0, accuracy, 1.0, {}, 0.0, None, None)


def energies(run: Run) -> list[float]:
    """The noise of every release over the change it was added to, as the ledgers say."""
    found = []
    for file in sorted(run.path.glob("sites/*/ledger.jsonl")):
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            each = [d["figures"]["energy"] for d in line.get("defenses", ()) if _has(d)]
            found += [float(np.hypot.reduce(each))] if each else []
    return found


def _has(defense: Mapping[str, Mapping[str, float]]) -> bool:
    return "energy" in defense["figures"]


def _row(name: str, each: Sequence[Fidelity], spent: Sequence[float]) -> FidelityRow:
    def value(one: Fidelity, figure: str) -> float:
        if figure in ("accuracy", "agreement"):
            return float(getattr(one, figure))
        told = one.figures.get(figure)
        return float("nan") if told is None else told

    return FidelityRow(
        name,
        float(np.mean(spent)) if spent else None,
        {figure: tuple(value(one, figure) for one in each) for figure in FIGURES},
        sum(one.failures for one in each),
        sum(one.images for one in each),
    )


def table_markdown(rows: Sequence[FidelityRow]) -> str:
    """The table as Markdown: means over seeds, with the SD behind them."""
    cells = [
        [
            f"`{row.name}`",
            "-" if row.energy is None else f"{row.energy:.2f}",
            *(averaged(row.values[name]) for name in FIGURES),
            f"{row.failures}/{row.images}",
        ]
        for row in rows
    ]
    return markdown(["defense", "energy", *FIGURES, "constant maps"], cells)


@TABLES.register("fidelity")
def grid_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Defenses side by side: accuracy over seeds and rounds, and Grad-CAM beside no defense."""
    paths = run_sweep(grid, folder, on_cell)
    tables = compare_runs(paths)
    write_comparison(tables, folder / "figures")
    told = [accuracy_table(table.rows) for table in tables]
    told.append(table_markdown(fidelity_table(paths)))
    text = "\n\n".join(told)
    write_text(folder / "figures" / "fidelity.md", text + "\n")
    return text
