"""The pictures of one run: who holds what, and how good the model got."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from vitrail.data.picture import counts_picture
from vitrail.engine.federation import SERVER
from vitrail.engine.loaded import Run
from vitrail.report.curves import curves

_MOST_LINES = 12


def run_pictures(path: Path) -> dict[str, Path]:
    """Draw `figures/partition.png` and `figures/accuracy.png` of a run; returns what was drawn."""
    run = Run(path)
    figures = path / "figures"
    found = {}
    counts = path / "partition.json"
    if counts.is_file():
        found["partition"] = figures / "partition.png"
        _partition(counts, found["partition"])
    lines = _lines(run)
    if lines:
        found["accuracy"] = figures / "accuracy.png"
        curves(
            lines,
            found["accuracy"],
            "accuracy",
            title=f"{run.config.method.name}, {len(run.sites)} sites",
        )
    return found


def _partition(file: Path, out: Path) -> None:
    told = json.loads(file.read_text(encoding="utf-8"))
    counts_picture(
        tuple(told["sites"]),
        np.array(told["train"], dtype=np.int64),
        np.array(told["test"], dtype=np.int64).sum(axis=1),
        tuple(told["classes"]),
        told["server_test"],
        out,
    )


def _lines(run: Run) -> dict[str, list[tuple[int, float]]]:
    """The global curve, and one line per site while they can be told apart."""
    lines = {}
    overall = run.curve("accuracy")
    rows = [r for r in run.rows() if r.get("accuracy") is not None and r["site"] != SERVER]
    if overall:
        has_server = any(r["site"] == SERVER and r.get("accuracy") is not None for r in run.rows())
        lines["server's test images" if has_server else "mean over sites"] = overall
    if len(run.sites) < _MOST_LINES:
        for site in run.sites:
            own = [(int(r["round"]), float(r["accuracy"])) for r in rows if r["site"] == site]
            if own:
                lines[site] = own
    return lines
