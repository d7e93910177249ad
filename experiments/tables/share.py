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
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from experiments.tables.audit_trial import judge_federation
from experiments.tables.audit_trial_table import summarize
from experiments.tables.figure_style import COLORS, FONT, INK, MARKS
from experiments.tables.markdown import format_mean, to_markdown
from vitrail.attack.choice import choose_whole_round
from vitrail.attack.ground_truth import RunTruth
from vitrail.attack.inversion.prototype_patches import infer_members_by_parts
from vitrail.attack.run_view import RunView
from vitrail.audit.audit_tables import make_extractor
from vitrail.config.load import Loaded
from vitrail.files import write_bytes, write_json
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation
from vitrail.sweep.cells import make_cells, run_sweep
from vitrail.sweep.tables import TABLES, OnCell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def collect_points(paths: Sequence[Path]) -> list[Point]:
    """The runs of a grid, those that differ in the seed alone as one."""
    groups: dict[tuple[tuple[str, ...], int], list[Run]] = {}
    for path in paths:
        run = Run(path)
        share = tuple(run.config.method.options.get("share", ("prototypes", "head")))
        groups.setdefault((share, len(run.sites)), []).append(run)
    points = []
    seen: dict[bytes, Tensor] = {}  # maps of images, which runs of a grid have in common
    for (share, sites), runs in groups.items():
        shared = runs[0].card["shared"]
        numbers = max(stage["numbers"] for stage in shared["stages"])
        last = tuple(run.curve("accuracy", "sites")[-1][1] for run in runs)
        looks = [measure_audit_and_membership(run, share, seen) for run in runs]
        points.append(
            Point(
                share,
                sites,
                numbers,
                shared["bytes_up"],
                last,
                tuple(audit for audit, _ in looks),
                tuple(members for _, members in looks),
            )
        )
    return sorted(points, key=lambda point: (point.sites, point.numbers))


def measure_audit_and_membership(
    run: Run, share: Sequence[str], seen: dict[bytes, Tensor]
) -> tuple[float, float]:
    """The audit's AUC and that of membership from the parts sent; from their file if there is one.

    Members are asked for at sites without a mark: a mark would tell them by itself. `seen`
    remembers maps of images from one run to the next.
    """
    file = run.path / "figures" / "share.json"
    if not file.exists():
        audit = members = float("nan")
        marked: set[str] = set()
        if run.config.bias:
            federation = load_run_federation(run)
            extractor = make_extractor(run)
            extractor.seen = seen
            case = judge_federation(run.path.name, run.config, federation, extractor)
            audit = summarize([case]).auc
            marked = {case.truth[0]} if case.truth else set()
        plain = [site for site in run.sites if site not in marked]
        if run.config.run.record_updates and "prototypes" in share and plain:
            key = derive_server_key(run.config.run.seed).at("attack")
            view = RunView(run, choose_whole_round(run, plain))
            results = infer_members_by_parts(view, RunTruth(run, key))
            members = float(np.mean([result.auc for result in results])) if results else members
        write_json(file, {"audit": _finite_or_none(audit), "members": _finite_or_none(members)})
    raw = json.loads(file.read_text(encoding="utf-8"))
    audit, members = (float("nan") if raw[n] is None else raw[n] for n in ("audit", "members"))
    return audit, members


def _finite_or_none(value: float) -> float | None:
    return value if np.isfinite(value) else None


@TABLES.register("share")
def make_share_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Train what is missing; a table, and the same by bytes with a line a number of sites."""
    run_sweep(grid, folder, on_cell)
    points = collect_points([folder / cell.name for cell in make_cells(grid)])
    picture = folder / "figures" / "share.png"
    draw_share(points, picture)
    rows = [
        [
            str(point.sites),
            point.label,
            f"{point.numbers:,}",
            f"{point.bytes_up / 1000:,.1f}",
            format_mean(point.accuracy, ".3f"),
            format_mean(point.audit, ".3f"),
            format_mean(point.members, ".3f"),
        ]
        for point in points
    ]
    head = ["sites", "shared", "numbers a round", "kB a site in all", "accuracy"]
    head += ["audit AUC", "membership AUC"]
    return f"{to_markdown(head, rows)}\n\nwrote {picture}"


def draw_share(points: Sequence[Point], path: Path) -> None:
    """Accuracy, audit and leakage by what is shared, little first; bars are one SD over seeds."""
    panels = [("accuracy, own test images", [point.accuracy for point in points])]
    for label, values in (
        ("audit AUC", [point.audit for point in points]),
        ("membership AUC", [point.members for point in points]),
    ):
        if np.isfinite([value for seeds in values for value in seeds]).any():
            panels.append((label, values))
    steps = {point.label: point for point in sorted(points, key=lambda point: point.bytes_up)}
    from matplotlib.figure import Figure  # for figures only

    figure = Figure(figsize=(6.4, 1.2 + 1.9 * len(panels)), dpi=110)
    figure.set_layout_engine("constrained")
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, values) in zip(grid, panels, strict=True):
        _draw_panel(axes, points, values, list(steps))
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


def _draw_panel(
    axes: Axes, points: Sequence[Point], values: Sequence[Sequence[float]], steps: Sequence[str]
) -> None:
    """One line a number of sites; seeds of which nothing can be said are left out."""
    for number, sites in enumerate(sorted({point.sites for point in points})):
        line = []
        for point, seeds in zip(points, values, strict=True):
            known = [value for value in seeds if np.isfinite(value)]
            if point.sites == sites and known:
                line.append((steps.index(point.label), float(np.mean(known)), _compute_sd(known)))
        if line:
            x, y, spread = zip(*sorted(line), strict=True)
            axes.errorbar(
                np.array(x) + 0.06 * number, y, yerr=spread, color=COLORS[number % len(COLORS)],
                marker=MARKS[1:][number % 2], markersize=4, linewidth=1.2, capsize=2,
                label=f"{sites} sites",
            )  # fmt: skip
    axes.tick_params(labelsize=FONT - 1)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _compute_sd(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
