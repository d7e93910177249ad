"""The figure of where noise is added: a row of panels a model, a panel a number of sites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Row = dict[str, Any]
NEAR_CHANCE = 0.3  # three times that of ten classes; what is below is not shown
PANELS = {
    "linear classifier": (("linear", "site"), ("linear", "sum"), ("linear", "distributed")),
    "FedGraSP's subspaces": (
        ("subspaces", "site"),
        ("subspaces", "sum"),
        ("subspaces", "distributed"),
        ("projectors", "sum"),
    ),
}
LABELS = {
    ("linear", "site"): "at the site",
    ("linear", "sum"): "in the sum, trusted server",
    ("linear", "distributed"): "distributed",
    ("projectors", "sum"): "whole projectors in the sum",
}
STYLES = {
    "site": ("#b0413e", "s"),
    "sum": ("#7a7a7a", "^"),
    "distributed": ("#1f6f8b", "o"),
    "projectors": ("#c58b1b", "v"),
}


def draw_figure(rows: list[Row], out: Path) -> None:
    """Test accuracy against epsilon, with the range over seeds."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "vitrail"
    from matplotlib import pyplot as plt

    sizes = sorted({row["sites"] for row in rows})
    figure, panels = plt.subplots(
        len(PANELS), len(sizes), figsize=(11, 5.6), sharey=True, sharex=True, squeeze=False
    )
    for line, (title, curves) in zip(panels, PANELS.items(), strict=True):
        for panel, sites in zip(line, sizes, strict=True):
            _draw_panel(panel, [row for row in rows if row["sites"] == sites], curves)
        line[0].set_ylabel(f"{title}\ntest accuracy")
    for panel, sites in zip(panels[0], sizes, strict=True):
        panel.set_title(f"{sites} sites")
    for panel in panels[-1]:
        panel.set_xlabel("epsilon of a whole site")
    for curve, label in LABELS.items():
        color, marker = _find_style(curve)
        panels[0][0].plot([], [], color=color, marker=marker, ms=4, label=label)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=110)


def _draw_panel(panel: Any, rows: list[Row], curves: tuple[tuple[str, str], ...]) -> None:
    """The curves of one model at one number of sites."""
    epsilons = sorted({row["epsilon"] for row in rows if row["where"] != "none"})
    plain = [r for r in rows if (r["model"], r["where"]) == (curves[0][0], "none")]
    for row in plain:
        panel.axhline(row["accuracy"], color="black", lw=0.8, ls="--", label="no noise")
    for curve in curves:
        shown = [
            r
            for r in sorted(rows, key=lambda row: float(row["epsilon"]))
            if (r["model"], r["where"]) == curve and r["accuracy"] >= NEAR_CHANCE
        ]
        color, marker = _find_style(curve)
        x = [row["epsilon"] for row in shown]
        panel.plot(x, [row["accuracy"] for row in shown], color=color, marker=marker, ms=4)
        low, high = [row["least"] for row in shown], [row["most"] for row in shown]
        panel.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
    panel.set(xscale="log", ylim=(0.25, 1))
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()


def _find_style(curve: tuple[str, str]) -> tuple[str, str]:
    return STYLES["projectors" if curve[0] == "projectors" else curve[1]]
