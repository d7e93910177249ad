"""Fidelity over a grid: every defense beside the run without one, over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from experiments.tables.markdown import format_mean, to_markdown
from vitrail.audit.map_fidelity import Fidelity, measure_fidelity
from vitrail.config.load import Loaded
from vitrail.files import write_text
from vitrail.metrics.method_tests import table_markdown as accuracy_table
from vitrail.report.write_comparison import write_comparison
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import name_release, run_sweep
from vitrail.sweep.compare_runs import compare_runs
from vitrail.sweep.tables import TABLES, OnCell

METRICS = ("accuracy", "agreement", "mse", "psnr", "ssim", "rank_correlation", "top_overlap")
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


def compute_fidelity_rows(paths: Sequence[Path], images: int = 200) -> list[FidelityRow]:
    """A row a defense, seeds kept apart; empty where no run is without one or none has one.

    The row `none, next seed` compares undefended runs of different seeds on the same images:
    what training from another start changes, with no defense at all.
    """
    runs: dict[int, dict[str, Run]] = {}
    for path in paths:
        run = Run(path)
        name = name_release(run.config.release.model_dump())
        runs.setdefault(run.config.run.seed, {})[name] = run
    seeds = [seed for seed in sorted(runs) if NONE in runs[seed] and len(runs[seed]) > 1]
    measured: dict[str, list[Fidelity]] = {}
    spent: dict[str, list[float]] = {}
    for at, seed in enumerate(seeds):
        others = {name: run for name, run in runs[seed].items() if name != NONE}
        if len(seeds) > 1:
            others[OTHER] = runs[seeds[(at + 1) % len(seeds)]][NONE]
        report = measure_fidelity(runs[seed][NONE], list(others.values()), images)
        for name, fidelity in zip(others, report.runs, strict=True):
            measured.setdefault(name, []).append(fidelity)
            spent.setdefault(name, []).extend(read_energies(others[name]))
        base = runs[seed][NONE]
        measured.setdefault(NONE, []).append(_make_undefended(base, report.accuracy, report.images))
    return [
        _make_row(name, fidelities, spent.get(name, [])) for name, fidelities in measured.items()
    ]


def _make_undefended(run: Run, accuracy: float, images: int) -> Fidelity:
    """The baseline itself, of which only the accuracy is news."""
    return Fidelity(run.path.name, (NONE,), None, images, 0, accuracy, 1.0, {}, 0.0, None, None)


def read_energies(run: Run) -> list[float]:
    """The noise of every release over the change it was added to, as the ledgers say."""
    energies = []
    for file in sorted(run.path.glob("sites/*/ledger.jsonl")):
        for line in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            added = [d["figures"]["energy"] for d in line.get("defenses", ()) if _has_energy(d)]
            energies += [float(np.hypot.reduce(added))] if added else []
    return energies


def _has_energy(defense: Mapping[str, Mapping[str, float]]) -> bool:
    return "energy" in defense["figures"]


def _make_row(name: str, fidelities: Sequence[Fidelity], spent: Sequence[float]) -> FidelityRow:
    def value(fidelity: Fidelity, figure: str) -> float:
        if figure in ("accuracy", "agreement"):
            return float(getattr(fidelity, figure))
        measured = fidelity.figures.get(figure)
        return float("nan") if measured is None else measured

    return FidelityRow(
        name,
        float(np.mean(spent)) if spent else None,
        {figure: tuple(value(fidelity, figure) for fidelity in fidelities) for figure in METRICS},
        sum(fidelity.failures for fidelity in fidelities),
        sum(fidelity.images for fidelity in fidelities),
    )


def format_rows(rows: Sequence[FidelityRow]) -> str:
    """The table as Markdown: means over seeds, with the SD behind them."""
    cells = [
        [
            f"`{row.name}`",
            "-" if row.energy is None else f"{row.energy:.2f}",
            *(format_mean(row.values[name]) for name in METRICS),
            f"{row.failures}/{row.images}",
        ]
        for row in rows
    ]
    return to_markdown(["defense", "energy", *METRICS, "constant maps"], cells)


@TABLES.register("fidelity")
def make_fidelity_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Defenses side by side: accuracy over seeds and rounds, and Grad-CAM beside no defense."""
    paths = run_sweep(grid, folder, on_cell)
    tables = compare_runs(paths)
    write_comparison(tables, folder / "figures")
    parts = [accuracy_table(table.rows) for table in tables]
    parts.append(format_rows(compute_fidelity_rows(paths)))
    text = "\n\n".join(parts)
    write_text(folder / "figures" / "fidelity.md", text + "\n")
    return text
