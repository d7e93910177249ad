"""How much to share: accuracy, what the audit sees and what leaks, by what leaves a site.

MyTH's open question. With `model.frozen` the stages below are the same everywhere and never
travel, so that sharing every trained stage is sharing everything.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from vitrail.attack.assault import members_by_parts
from vitrail.audit.extract import Extractor
from vitrail.audit.null import shipped
from vitrail.config.load import Loaded
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.engine.sweep import cells, run_sweep
from vitrail.files import write_bytes, write_json
from vitrail.report.curves import COLORS, FONT, INK, MARKS
from vitrail.report.tables import TABLES, OnCell, averaged, markdown
from vitrail.report.trial import judged
from vitrail.report.trial_table import summarize

_WORDS = {"neck": "add-on"}


@dataclass(frozen=True)
class Point:
    """One setting over its seeds: what is shared, by how many sites, and what came of it.

    `numbers` and `bytes_up` are what one site sends, in a round and in the whole run. `audit` is
    how well the audit tells the biased class of the biased site from all others (AUC), `members`
    how well what a site sent tells its images from others' (AUC); NaN where nothing can be said.
    """

    share: tuple[str, ...]
    sites: int
    numbers: int
    bytes_up: int
    accuracy: tuple[float, ...]
    audit: tuple[float, ...] = ()
    members: tuple[float, ...] = ()

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
    seen: dict[bytes, Tensor] = {}  # maps of images, which runs of a grid have in common
    for (share, sites), runs in found.items():
        told = runs[0].card["shared"]
        numbers = max(stage["numbers"] for stage in told["stages"])
        last = tuple(run.curve("accuracy", "sites")[-1][1] for run in runs)
        looks = [looked_at(run, share, seen) for run in runs]
        made.append(
            Point(
                share,
                sites,
                numbers,
                told["bytes_up"],
                last,
                tuple(audit for audit, _ in looks),
                tuple(members for _, members in looks),
            )
        )
    return sorted(made, key=lambda point: (point.sites, point.numbers))


def looked_at(run: Run, share: Sequence[str], seen: dict[bytes, Tensor]) -> tuple[float, float]:
    """The audit's AUC and that of membership from the parts sent; from their file if there is one.

    Members are asked for at sites without a mark: a mark would tell them by itself. `seen`
    remembers maps of images from one run to the next.
    """
    file = run.path / "figures" / "share.json"
    if not file.exists():
        audit = members = float("nan")
        marked: set[str] = set()
        if run.config.bias:
            federation = images_of(run)
            case = judged(run.path.name, run.config, federation, Extractor(*run.extractor(), seen))
            audit = summarize([case], shipped()).auc
            marked = {case.truth[0]} if case.truth else set()
        plain = [site for site in run.sites if site not in marked]
        if run.config.run.record_updates and "prototypes" in share and plain:
            told = members_by_parts(run, plain)
            members = float(np.mean([one.auc for one in told])) if told else members
        write_json(file, {"audit": _known(audit), "members": _known(members)})
    raw = json.loads(file.read_text(encoding="utf-8"))
    audit, members = (float("nan") if raw[n] is None else raw[n] for n in ("audit", "members"))
    return audit, members


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


@TABLES.register("share")
def share(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing; a table, and the same by bytes with a line a number of sites."""
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
            averaged(point.accuracy, ".3f"),
            averaged(point.audit, ".3f"),
            averaged(point.members, ".3f"),
        ]
        for point in found
    ]
    head = ["sites", "shared", "numbers a round", "kB a site in all", "accuracy"]
    head += ["audit AUC", "membership AUC"]
    return f"{markdown(head, rows)}\n\nwrote {picture}"


def share_picture(found: Sequence[Point], path: Path) -> None:
    """Accuracy, audit and leakage by what is shared, little first; bars are one SD over seeds."""
    panels = [("accuracy, own test images", [point.accuracy for point in found])]
    for label, values in (
        ("audit AUC", [point.audit for point in found]),
        ("membership AUC", [point.members for point in found]),
    ):
        if np.isfinite([value for seeds in values for value in seeds]).any():
            panels.append((label, values))
    steps = {point.label: point for point in sorted(found, key=lambda point: point.bytes_up)}
    figure = Figure(figsize=(6.4, 1.2 + 1.9 * len(panels)), dpi=110)
    figure.set_layout_engine("constrained")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, values) in zip(grid, panels, strict=True):
        _panel(axes, found, values, list(steps))
        axes.set_ylabel(label, fontsize=FONT)
        if label.endswith("AUC"):
            axes.axhline(0.5, color=INK, alpha=0.4, linewidth=0.8, linestyle=":")
    ticks = [
        "\n".join([*label.split(", "), f"{point.bytes_up / 1000:,.0f} kB"])
        for label, point in steps.items()
    ]
    grid[-1].set_xticks(range(len(ticks)), ticks)
    grid[-1].set_xlabel("what a site shares, and how much it sends in the whole run", fontsize=FONT)
    grid[0].legend(frameon=False, fontsize=FONT - 1, ncols=3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "vitrail"})
    write_bytes(path, buffer.getvalue())


def _panel(
    axes: Axes, found: Sequence[Point], values: Sequence[Sequence[float]], steps: Sequence[str]
) -> None:
    """One line a number of sites; seeds of which nothing can be said are left out."""
    for number, sites in enumerate(sorted({point.sites for point in found})):
        mine = []
        for point, own in zip(found, values, strict=True):
            told = [value for value in own if np.isfinite(value)]
            if point.sites == sites and told:
                mine.append((steps.index(point.label), float(np.mean(told)), _sd(told)))
        if mine:
            x, y, spread = zip(*sorted(mine), strict=True)
            axes.errorbar(
                np.array(x) + 0.06 * number, y, yerr=spread, color=COLORS[number % len(COLORS)],
                marker=MARKS[1:][number % 2], markersize=4, linewidth=1.2, capsize=2,
                label=f"{sites} sites",
            )  # fmt: skip
    axes.tick_params(labelsize=FONT - 1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _sd(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
