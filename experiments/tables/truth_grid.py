"""Are explanations true? The table over a grid: pointing, deletion, insertion, random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tables.markdown import format_interval, to_markdown
from experiments.tables.needed import measure_faithfulness
from experiments.tables.truth import compute_metrics, iterate_models, play_pointing_game
from vitrail.config.load import Loaded
from vitrail.files import write_json
from vitrail.metrics.bootstrap import bootstrap
from vitrail.metrics.resampled import mean
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation
from vitrail.sweep.cells import Cell, make_cells, run_sweep
from vitrail.sweep.tables import TABLES, OnCell

_VERSION = 1
_MOST = 6  # correct predictions a model for deletion, insertion and random weights
_REPEATS = 1000
FAITHFULNESS_COLUMNS = {
    "deletion": "deletion, area minus random",
    "insertion": "insertion, area minus random",
    "same": "rank correlation with random weights",
}


def measure_run(run: Run) -> dict[str, Any]:
    """The pointing game of a run and what its models need, from its file if there is one."""
    file = run.path / "figures" / "truth.json"
    if not file.exists():
        federation, key = (
            load_run_federation(run),
            derive_server_key(run.config.run.seed).at("needs"),
        )
        needs = [
            asdict(need)
            for number, (model, rows) in enumerate(iterate_models(run, federation))
            for need in measure_faithfulness(model, federation.images, rows, key.at(number), _MOST)
        ]
        accuracy = run.curve("accuracy", "sites")[-1][1]
        measured = {
            **asdict(play_pointing_game(run)),
            "needs": needs,
            "accuracy": accuracy,
            "version": _VERSION,
        }
        write_json(file, measured)
    measured = json.loads(file.read_text(encoding="utf-8"))
    return dict(measured)


@TABLES.register("truth")
def make_truth_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing, then table each kind of model over all its seeds."""
    run_sweep(grid, folder, on_cell)
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in make_cells(grid):
        groups.setdefault(_make_label(cell), []).append(measure_run(Run(folder / cell.name)))
    pointing: list[list[str]] = []
    needed: list[list[str]] = []
    for name, runs in groups.items():
        pointing += _make_pointing_rows(name, runs)
        needed.append(_make_faithfulness_row(name, runs))
    head = ["model", "accuracy", "the middle of the top part's box is", "n", "rate", "chance"]
    return "\n\n".join(
        [
            to_markdown([*head, "ratio [95 %]"], pointing),
            to_markdown(["model", "n", *FAITHFULNESS_COLUMNS.values()], needed),
        ]
    )


def _make_label(cell: Cell) -> str:
    config = cell.loaded.config
    model = config.method.options.get("model")
    name = f"{config.method.name} ({model})" if model else config.method.name
    return f"{name}, {Path(config.data.path or config.data.source).stem}"


def _make_pointing_rows(name: str, runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    accuracy = float(np.mean([run["accuracy"] for run in runs]))
    lines = []
    for target in runs[0]["targets"]:
        parts = zip(*(run["targets"][target] for run in runs))
        rows, hits, odds = ([value for part in column for value in part] for column in parts)
        metrics = compute_metrics(
            rows, hits, odds, derive_server_key(1).at("truth", name, target), _REPEATS
        )
        plain = [
            "-" if metrics[key] is None else f"{metrics[key]:.3f}" for key in ("rate", "chance")
        ]
        limits = format_interval(metrics["ratio"], metrics["low"], metrics["high"])
        lines.append([name, f"{accuracy:.3f}", target, str(metrics["images"]), *plain, limits])
    return lines


def _make_faithfulness_row(name: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    needs = [need for run in runs for need in run["needs"]]
    cells = [name, str(len(needs))]
    for key in FAITHFULNESS_COLUMNS:
        known = [n for n in needs if n[key] is not None]
        values = np.array([n[key] for n in known])
        rows = [n["row"] for n in known]
        interval = bootstrap(
            mean(values), rows, derive_server_key(1).at("needs", name, key), _REPEATS
        )
        cells.append(format_interval(interval.value, interval.low, interval.high))
    return cells
