"""The pictures of one run: who holds what, and how good the model got."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from vitrail.engine.federation import SERVER
from vitrail.report.figures.curves import draw_curves
from vitrail.report.figures.partition_picture import make_counts
from vitrail.report.write_picture import write_drawing
from vitrail.runs.opened_run import Run

_MOST_LINES = 12


def draw_run_pictures(path: Path) -> dict[str, Path]:
    """Draw `figures/partition.png` and `figures/accuracy.png` of a run; returns what was drawn."""
    run = Run(path)
    figures = path / "figures"
    pictures = {}
    counts = path / "partition.json"
    if counts.is_file():
        pictures["partition"] = figures / "partition.png"
        _draw_partition(counts, pictures["partition"])
    lines = _collect_lines(run)
    if lines:
        pictures["accuracy"] = figures / "accuracy.png"
        draw_curves(
            lines,
            pictures["accuracy"],
            "accuracy",
            title=f"{run.config.method.name}, {len(run.sites)} sites",
        )
    return pictures


def _draw_partition(file: Path, out: Path) -> None:
    partition = json.loads(file.read_text(encoding="utf-8"))
    drawing = make_counts(
        tuple(partition["sites"]),
        np.array(partition["train"], dtype=np.int64),
        np.array(partition["test"], dtype=np.int64).sum(axis=1),
        tuple(partition["classes"]),
        partition["server_test"],
    )
    write_drawing(drawing, out)


def _collect_lines(run: Run) -> dict[str, list[tuple[int, float]]]:
    """The global curve, and one line per site while they can be told apart."""
    lines = {}
    overall = run.curve("accuracy")
    rows = [r for r in run.rows() if r.get("accuracy") is not None and r["site"] != SERVER]
    if overall:
        has_server = any(r["site"] == SERVER and r.get("accuracy") is not None for r in run.rows())
        lines["server's test images" if has_server else "mean over sites"] = overall
    if len(run.sites) < _MOST_LINES:
        for site in run.sites:
            points = [(int(r["round"]), float(r["accuracy"])) for r in rows if r["site"] == site]
            if points:
                lines[site] = points
    return lines
