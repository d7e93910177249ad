"""What released parts give away: prototypes, basis vectors and subspaces under the same attack."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.attack.assault import assault
from vitrail.attack.cases import whole_round
from vitrail.config.load import Loaded
from vitrail.engine.loaded import Run
from vitrail.engine.sweep import run_sweep
from vitrail.files import write_json
from vitrail.report.tables import TABLES, OnCell, averaged, markdown

UNITS, ITERATIONS, GENERATOR = 12, 150, 600


def given_away(run: Run) -> dict[str, Any]:
    """The attack on the last recorded round at every site; from its file if there is one."""
    file = run.path / "figures" / "parts.json"
    if not file.exists():
        options = {"units": UNITS, "iterations": ITERATIONS, "generator_steps": GENERATOR}
        found = assault(run, ["prototypes"], whole_round(run), options={"prototypes": options})
        told: dict[str, Any] = {"accuracy": run.curve("accuracy", "sites")[-1][1], "rows": {}}
        for row in (row for rows in found.patches.values() for row in rows):
            own = told["rows"].setdefault(row.name, {"psnr": [], "ssim": []})
            own["psnr"].append(row.psnr)
            own["ssim"].append(row.ssim)
        told["auc"] = [one.auc for one in found.members]
        told["tpr"] = [one.tpr for one in found.members]
        write_json(file, told)
    return dict(json.loads(file.read_text(encoding="utf-8")))


@TABLES.register("parts")
def parts_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing, attack each run, and put the methods side by side over seeds."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path in run_sweep(grid, folder, on_cell):
        run = Run(path)
        groups.setdefault(run.config.method.name, []).append(given_away(run))
    names = list(
        dict.fromkeys(n for runs in groups.values() for told in runs for n in told["rows"])
    )
    head = ["method", "accuracy", *(f"{n}, PSNR dB (SSIM)" for n in names)]
    rows = [_line(method, runs, names) for method, runs in groups.items()]
    return markdown([*head, "membership AUC", "members at 1 %"], rows)


def _line(method: str, runs: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    cells = [method, averaged([told["accuracy"] for told in runs], ".3f")]
    for name in names:
        own = [told["rows"][name] for told in runs if name in told["rows"]]
        psnr = averaged([float(np.mean(one["psnr"])) for one in own], ".1f")
        ssim = f"{np.mean([np.mean(one['ssim']) for one in own]):.2f}" if own else "-"
        cells.append(f"{psnr} ({ssim})")
    for figure in ("auc", "tpr"):
        cells.append(averaged([float(np.mean(told[figure])) for told in runs], ".3f"))
    return cells
