"""Are explanations true? The table over a grid: pointing, deletion, insertion, random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.config.load import Loaded
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.engine.sweep import Cell, cells, run_sweep
from vitrail.files import write_json
from vitrail.local.intervals import bootstrap
from vitrail.report.bootstrapped import mean
from vitrail.report.needed import needs
from vitrail.report.tables import TABLES, OnCell, markdown, ranged
from vitrail.report.truth import figures, play, players
from vitrail.rng import server

_VERSION = 1
_MOST = 6  # correct predictions a model for deletion, insertion and random weights
_REPEATS = 1000
NEEDS = {
    "deletion": "deletion, area minus random",
    "insertion": "insertion, area minus random",
    "same": "rank correlation with random weights",
}


def judged(run: Run) -> dict[str, Any]:
    """The pointing game of a run and what its models need, from its file if there is one."""
    file = run.path / "figures" / "truth.json"
    if not file.exists():
        federation, key = images_of(run), server(run.config.run.seed).at("needs")
        found = [
            asdict(need)
            for number, (model, rows) in enumerate(players(run, federation))
            for need in needs(model, federation.images, rows, key.at(number), _MOST)
        ]
        accuracy = run.curve("accuracy", "sites")[-1][1]
        told = {**asdict(play(run)), "needs": found, "accuracy": accuracy, "version": _VERSION}
        write_json(file, told)
    told = json.loads(file.read_text(encoding="utf-8"))
    return dict(told)


@TABLES.register("truth")
def truth_grid(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing, then table each kind of model over all its seeds."""
    run_sweep(grid, folder, on_cell)
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in cells(grid):
        groups.setdefault(_label(cell), []).append(judged(Run(folder / cell.name)))
    pointing: list[list[str]] = []
    needed: list[list[str]] = []
    for name, runs in groups.items():
        pointing += _pointing(name, runs)
        needed.append(_needed(name, runs))
    head = ["model", "accuracy", "the middle of the top part's box is", "n", "rate", "chance"]
    return "\n\n".join(
        [
            markdown([*head, "ratio [95 %]"], pointing),
            markdown(["model", "n", *NEEDS.values()], needed),
        ]
    )


def _label(cell: Cell) -> str:
    config = cell.loaded.config
    model = config.method.options.get("model")
    name = f"{config.method.name} ({model})" if model else config.method.name
    return f"{name}, {Path(config.data.path or config.data.source).stem}"


def _pointing(name: str, runs: Sequence[dict[str, Any]]) -> list[list[str]]:
    accuracy = float(np.mean([run["accuracy"] for run in runs]))
    made = []
    for target in runs[0]["targets"]:
        parts = zip(*(run["targets"][target] for run in runs))
        rows, hits, odds = ([value for part in column for value in part] for column in parts)
        found = figures(rows, hits, odds, server(1).at("truth", name, target), _REPEATS)
        plain = ["-" if found[key] is None else f"{found[key]:.3f}" for key in ("rate", "chance")]
        limits = ranged(found["ratio"], found["low"], found["high"])
        made.append([name, f"{accuracy:.3f}", target, str(found["images"]), *plain, limits])
    return made


def _needed(name: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    every = [need for run in runs for need in run["needs"]]
    cells_ = [name, str(len(every))]
    for key in NEEDS:
        known = [n for n in every if n[key] is not None]
        values = np.array([n[key] for n in known])
        rows = [n["row"] for n in known]
        found = bootstrap(mean(values), rows, server(1).at("needs", name, key), _REPEATS)
        cells_.append(ranged(found.value, found.low, found.high))
    return cells_
