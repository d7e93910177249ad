"""How much to share: accuracy against what leaves a site, MyTH's open question.

With `model.frozen` the stages below are the same everywhere and never travel, so that sharing
every trained stage is sharing everything.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from vitrail.config.load import Loaded
from vitrail.engine.loaded import Run
from vitrail.engine.sweep import cells, run_sweep
from vitrail.files import write_bytes
from vitrail.report.curves import COLORS, FONT, INK, MARKS
from vitrail.report.tables import TABLES, OnCell, markdown

_WORDS = {"neck": "add-on"}


@dataclass(frozen=True)
class Point:
    """One setting over its seeds: what is shared, by how many sites, and what came of it.

    `numbers` and `bytes_up` are what one site sends, in a round and in the whole run.
    """

    share: tuple[str, ...]
    sites: int
    numbers: int
    bytes_up: int
    accuracy: tuple[float, ...]

    @property
    def label(self) -> str:
        """Such as "prototypes, head"."""
        words = [_WORDS.get(part, part.removeprefix("backbone.")) for part in self.share]
        return ", ".join(words) or "nothing"


def points(paths: Sequence[Path]) -> list[Point]:
    """The runs of a grid, those that differ in the seed alone as one."""
    found: dict[tuple[tuple[str, ...], int], list[Run]] = {}
    for path in paths:
        run = Run(path)
        share = tuple(run.config.method.options.get("share", ("prototypes", "head")))
        found.setdefault((share, len(run.sites)), []).append(run)
    made = []
    for (share, sites), runs in found.items():
        told = runs[0].card["shared"]
        numbers = max(stage["numbers"] for stage in told["stages"])
        last = tuple(run.curve("accuracy", "sites")[-1][1] for run in runs)
        made.append(Point(share, sites, numbers, told["bytes_up"], last))
    return sorted(made, key=lambda point: (point.sites, point.numbers))


@TABLES.register("share")
def share(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing; a table, and accuracy by bytes with a line a number of sites."""
    run_sweep(grid, folder, on_cell)
    found = points([folder / cell.name for cell in cells(grid)])
    picture = folder / "figures" / "share.png"
    share_picture(found, picture)
    rows = [
        [
            str(point.sites),
            point.label,
            f"{point.numbers:,}",
            f"{point.bytes_up / 1000:,.1f}",
            f"{np.mean(point.accuracy):.3f} ± {_sd(point.accuracy):.3f}",
        ]
        for point in found
    ]
    head = ["sites", "shared", "numbers a round", "kB a site in all", "accuracy"]
    return f"{markdown(head, rows)}\n\nwrote {picture}"


def _sd(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def share_picture(found: Sequence[Point], path: Path) -> None:
    """Accuracy by kilobytes that a site sends; bars are one SD over seeds."""
    figure = Figure(figsize=(6.4, 3.6), dpi=110)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    for number, sites in enumerate(sorted({point.sites for point in found})):
        mine = [point for point in found if point.sites == sites]
        x = [point.bytes_up / 1000 for point in mine]
        y = [float(np.mean(point.accuracy)) for point in mine]
        axes.errorbar(
            x,
            y,
            yerr=[_sd(point.accuracy) for point in mine],
            color=COLORS[number % len(COLORS)],
            marker=MARKS[1:][number % 2],
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=f"{sites} sites",
        )
    first = [point for point in found if point.sites == found[0].sites]
    for point in first:
        place = (point.bytes_up / 1000, 0.02)
        axes.annotate(
            point.label, place, xycoords=("data", "axes fraction"), rotation=90, fontsize=FONT - 2,
            color=INK, ha="right", va="bottom",
        )  # fmt: skip
        axes.axvline(place[0], color=INK, alpha=0.15, linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_xlabel("kB that a site sends in the whole run", fontsize=FONT)
    axes.set_ylabel("accuracy on the sites' own test images", fontsize=FONT)
    axes.tick_params(labelsize=FONT - 1)
    axes.legend(frameon=False, fontsize=FONT - 1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())
