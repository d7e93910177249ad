"""What formal mechanisms have spent at each site: epsilon by round, against whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from vitrail.report.blocks import Block, Figure
from vitrail.report.charts.chart_lines import Series, draw_lines
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_value
from vitrail.report.figures.lifetime_picture import draw_history
from vitrail.report.html import format_html
from vitrail.report.html_table import Column, Table

Line = Mapping[str, Any]


def list_spending(ledger: Iterable[tuple[str, Line]]) -> list[tuple[str, int, Mapping[str, Any]]]:
    """Everything spent, as (site, round, what), in the order of the ledgers."""
    return [
        (site, int(line.get("round", 0)), spend)
        for site, line in ledger
        for spend in line.get("spends", ())
    ]


def make_budget_blocks(name: str, ledger: Sequence[tuple[str, Line]]) -> tuple[Block, ...]:
    """Epsilon by round, and after the last release of each site with its adversary."""
    spending = list_spending(ledger)
    if not spending:
        return ()
    last: dict[tuple[str, str], Mapping[str, Any]] = {}
    curves: dict[str, list[tuple[int, float]]] = {}
    for site, round_, spend in spending:
        last[site, str(spend["mechanism"])] = spend
        if spend.get("epsilon") is not None:
            curves.setdefault(f"{site}, {spend['mechanism']}", []).append(
                (round_, float(spend["epsilon"]))
            )
    table = _make_table(name, last)
    if not curves:
        return (table,)
    series = [
        Series(spender, tuple(points), faint=len(curves) > 12) for spender, points in curves.items()
    ]

    def draw(width: float) -> Drawing:
        return draw_lines(series, "Epsilon spent by round", "epsilon", width, shares=False)

    caption = format_html(
        "Epsilon that each site has spent by each round, over all its releases so far, at the "
        "delta in the table. Smaller is stronger."
    )
    return (Figure(f"{name}-epsilon", caption, draw, pick=tuple(s.name for s in series)), table)


def make_lifetime_blocks(
    name: str, history: Mapping[str, Any] | None, this: str
) -> tuple[Block, ...]:
    """What all runs at a site have spent, by run, and what is left; nothing elsewhere."""
    if not history or not history["runs"]:
        return ()

    def draw(width: float) -> Drawing:
        return draw_history(history, width, this)

    caption = format_html(
        "Epsilon over all runs at this site, for {} (there or blank) of those that have spent "
        "most, at delta {}, against {}. Light is what was spent before a run, dark what it added: "
        "runs add up to less than the sum of their epsilons. A run that is still open counts with "
        "all that it may spend.",
        history["unit"],
        f"{history['delta']:g}",
        "; ".join(history["against"]),
    )
    return (Figure(f"{name}-lifetime", caption, draw, _make_history_table(name, history)),)


def _make_history_table(name: str, history: Mapping[str, Any]) -> Table:
    columns = (
        Column("run"),
        Column("images", number=True),
        Column("epsilon alone", _format_bound, number=True),
        Column("epsilon so far", _format_bound, number=True),
        Column("over"),
    )
    rows = tuple(
        (r["run"], r["images"], r["alone"], r["total"], "yes" if r["over"] else "no")
        for r in history["runs"]
    )
    return Table(f"{name}-lifetime-runs", "What each run has spent", columns, rows)


def _format_bound(value: float | None) -> str:
    return "no bound" if value is None else format_value(value, places=3)


def _make_table(name: str, last: Mapping[tuple[str, str], Mapping[str, Any]]) -> Table:
    columns = (
        Column("site"),
        Column("mechanism"),
        Column("epsilon", partial(format_value, places=3), number=True),
        Column("delta", lambda v: f"{v:.1g}", number=True),
        Column(
            "allowed", partial(format_value, places=2), "The target of the whole run", number=True
        ),
        Column("protects"),
        Column("against"),
    )
    rows = tuple(
        (
            site,
            mechanism,
            spend.get("epsilon"),
            spend.get("delta"),
            spend.get("target"),
            spend.get("unit"),
            spend.get("against"),
        )
        for (site, mechanism), spend in last.items()
    )
    return Table(f"{name}-budgets", "Budgets after the last release", columns, rows)
