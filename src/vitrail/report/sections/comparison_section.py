"""The section that puts runs side by side: curves, differences, significance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vitrail.metrics.method_tests import Row
from vitrail.report.blocks import Block, Figure, MissingNote
from vitrail.report.charts.chart_lines import Series, draw_lines
from vitrail.report.charts.chart_rows import Dot, draw_dots
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_count, format_percent, format_value
from vitrail.report.figures.curves import summarize_history
from vitrail.report.html import Html, el, format_html, to_html
from vitrail.report.html_table import Column, Table
from vitrail.sweep.compare_runs import Comparison, compare_runs


def load_comparisons(paths: Sequence[Path]) -> list[Comparison]:
    """The tables of several runs, on the sites' own images where the server has none."""
    return [] if len(paths) < 2 else compare_runs(paths)


def make_comparison_blocks(tables: Sequence[Comparison], names: Sequence[str]) -> tuple[Block, ...]:
    """One block for each setting in which methods can be compared."""
    if not tables:
        return (
            MissingNote(
                format_html(
                    "One run has nothing beside it. {} compares them: runs that differ in the "
                    "seed only are repeats of one row.",
                    el("code", "vitrail report RUN RUN ..."),
                )
            ),
        )
    blocks: list[Block] = []
    for number, table in enumerate(tables, start=1):
        if table.setting:
            blocks.append(el("h3", table.setting))
        blocks += _make_curves(table, number)
        blocks += _make_differences(table, number)
        blocks.append(_make_table(table, number))
    notes = list(dict.fromkeys(note for table in tables for note in table.notes))
    shown = [_remove_paths(note, names) for note in notes]
    blocks.append(el("ul", *(el("li", note) for note in shown), class_="soft"))
    return tuple(blocks)


def _remove_paths(note: str, names: Sequence[str]) -> Html:
    """Notes name runs by their folder; the report does not say where that is."""
    words = note.split(" ")
    return to_html(
        " ".join(Path(w).name if "/" in w and Path(w).name in names else w for w in words)
    )


def _make_curves(table: Comparison, number: int) -> list[Block]:
    series = []
    for name, history in table.histories.items():
        curve = summarize_history(history)
        rounds = [int(r) for r in curve.rounds]
        points = tuple(zip(rounds, curve.mean, strict=True))
        band = tuple((r, m - s, m + s) for r, m, s in zip(rounds, curve.mean, curve.sd) if s == s)
        if points:
            series.append(Series(name, points, band=band))
    if not series:
        return []
    columns = (
        Column("row"),
        Column("round", number=True),
        Column(table.figure, partial(format_value, places=4), number=True),
    )
    rows = tuple((s.name, r, v) for s in series for r, v in s.points)
    caption = format_html(
        "{} by round; the band is one standard deviation over seeds.", table.figure
    )

    def draw(width: float) -> Drawing:
        return draw_lines(series, f"{table.figure} by round", table.figure, width)

    stem = f"compare-{number}-{table.figure}"
    numbers = Table(stem, f"{table.figure} by round", columns, rows)
    return [Figure(stem, caption, draw, numbers, pick=tuple(s.name for s in series))]


def _make_differences(table: Comparison, number: int) -> list[Block]:
    rows = [row for row in table.rows if row.difference is not None and row.low is not None]
    if not rows:
        return []
    base = table.rows[0].name
    values = [
        Dot(row.name, row.difference or 0.0, row.low, row.high, "c1", "circle") for row in rows
    ]
    caption = format_html("Difference to {} with its 95 % interval over seeds.", base)

    def draw(width: float) -> Drawing:
        return draw_dots(
            values, f"Difference to {base}", table.figure, width, _format_signed, zero=0.0
        )

    return [Figure(f"compare-{number}-difference", caption, draw)]


def _format_signed(value: float) -> str:
    text = format_value(value, 3)
    return f"+{text}" if value > 0 else text


def _make_table(table: Comparison, number: int) -> Table:
    columns = (
        Column("row"),
        Column("seeds", number=True),
        Column(f"mean {table.figure}", partial(format_value, places=4), number=True),
        Column("SD", partial(format_value, places=4), number=True),
        Column("difference", _format_signed, number=True),
        Column("low", _format_signed, "95 % interval", number=True),
        Column("high", _format_signed, "95 % interval", number=True),
        Column("p, corrected", partial(format_value, places=4), "Holm over the rows", number=True),
        Column("effect", partial(format_value, places=2), "Cohen's d_z, Hedges' g", number=True),
        Column("note"),
    )
    rows = tuple(_list_cells(row) for row in table.rows)
    title = f"Against {table.rows[0].name}" if table.rows else "Nothing to compare"
    return Table(f"compare-{number}", title, columns, rows)


def _list_cells(row: Row) -> tuple[object, ...]:
    return (
        row.name,
        row.n,
        row.mean,
        row.sd,
        row.difference,
        row.low,
        row.high,
        row.p_holm,
        row.effect,
        row.note or None,
    )


def write_comparison_sentence(tables: Sequence[Comparison]) -> Html | None:
    """The best row against the first, in a sentence; what one seed cannot say is said."""
    for table in tables:
        known = [row for row in table.rows if row.mean is not None]
        if len(known) < 2:
            continue
        base, best = known[0], max(known, key=lambda r: r.mean or 0.0)
        if table.figure != "accuracy" or best is base:
            continue
        sure = "one seed each, so chance is not ruled out"
        if best.p_holm is not None:
            sure = f"p = {best.p_holm:.4f} after Holm, over {format_count(best.n, 'seed')}"
        return format_html(
            "Side by side, {} is right in {} of test images and {} in {} ({}).",
            el("b", best.name),
            el("b", format_percent(best.mean)),
            base.name,
            format_percent(base.mean),
            sure,
        )
    return None
