"""What released parts give away: prototypes, basis vectors and subspaces under the same attack."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tables.markdown import format_mean, to_markdown
from vitrail.attack.choice import choose_whole_round
from vitrail.attack.run_attacks import run_attacks
from vitrail.config.load import Loaded
from vitrail.files import write_json
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import run_sweep
from vitrail.sweep.tables import TABLES, OnCell

UNITS, ITERATIONS, GENERATOR = 12, 150, 600


def attack_last_round(run: Run) -> dict[str, Any]:
    """The attack on the last recorded round at every site; from its file if there is one."""
    file = run.path / "figures" / "parts.json"
    if not file.exists():
        options = {"units": UNITS, "iterations": ITERATIONS, "generator_steps": GENERATOR}
        results = run_attacks(
            run, ["prototypes"], choose_whole_round(run), options={"prototypes": options}
        )
        measured: dict[str, Any] = {"accuracy": run.curve("accuracy", "sites")[-1][1], "rows": {}}
        for row in (row for rows in results.patches.values() for row in rows):
            scores = measured["rows"].setdefault(row.name, {"psnr": [], "ssim": []})
            scores["psnr"].append(row.psnr)
            scores["ssim"].append(row.ssim)
        measured["auc"] = [members.auc for members in results.members]
        measured["tpr"] = [members.tpr for members in results.members]
        write_json(file, measured)
    return dict(json.loads(file.read_text(encoding="utf-8")))


@TABLES.register("parts")
def make_parts_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing, attack each run, and put the methods side by side over seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path in run_sweep(grid, folder, on_cell):
        run = Run(path)
        groups.setdefault(run.config.method.name, []).append(attack_last_round(run))
    names = list(
        dict.fromkeys(n for runs in groups.values() for measured in runs for n in measured["rows"])
    )
    head = ["method", "accuracy", *(f"{n}, PSNR dB (SSIM)" for n in names)]
    rows = [_format_line(method, runs, names) for method, runs in groups.items()]
    return to_markdown([*head, "membership AUC", "members at 1 %"], rows)


def _format_line(method: str, runs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    cells = [method, format_mean([measured["accuracy"] for measured in runs], ".3f")]
    for name in names:
        scores = [measured["rows"][name] for measured in runs if name in measured["rows"]]
        psnr = format_mean([float(np.mean(one["psnr"])) for one in scores], ".1f")
        ssim = f"{np.mean([np.mean(one['ssim']) for one in scores]):.2f}" if scores else "-"
        cells.append(f"{psnr} ({ssim})")
    for figure in ("auc", "tpr"):
        cells.append(format_mean([float(np.mean(measured[figure])) for measured in runs], ".3f"))
    return cells
