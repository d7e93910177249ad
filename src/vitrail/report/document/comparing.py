"""The section that puts runs side by side: curves, differences, significance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vitrail.report.compare import Comparison, compare_runs
from vitrail.report.curves import summary
from vitrail.report.document.block import Block, Figure, Missing
from vitrail.report.document.chart_lines import Series, lines
from vitrail.report.document.chart_rows import Dot, dots
from vitrail.report.document.markup import Html, el, html, say
from vitrail.report.document.scale import count, figure, percent
from vitrail.report.document.scene import Scene
from vitrail.report.document.table import Column, Table
from vitrail.report.statistics import Row


def comparisons(paths: Sequence[Path]) -> list[Comparison]:
    """The tables of several runs, on the sites' own images where the server has none."""
    return [] if len(paths) < 2 else compare_runs(paths)


def comparing(tables: Sequence[Comparison], names: Sequence[str]) -> tuple[Block, ...]:
    """One block for each setting in which methods can be compared."""
    if not tables:
        return (
            Missing(
                say(
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
        blocks += _curves(table, number)
        blocks += _differences(table, number)
        blocks.append(_table(table, number))
    notes = list(dict.fromkeys(note for table in tables for note in table.notes))
    shown = [_without_paths(note, names) for note in notes]
    blocks.append(el("ul", *(el("li", note) for note in shown), class_="soft"))
    return tuple(blocks)


def _without_paths(note: str, names: Sequence[str]) -> Html:
    """Notes name runs by their folder; the report does not say where that is."""
    words = note.split(" ")
    return html(" ".join(Path(w).name if "/" in w and Path(w).name in names else w for w in words))


def _curves(table: Comparison, number: int) -> list[Block]:
    series = []
    for name, history in table.histories.items():
        one = summary(history)
        rounds = [int(r) for r in one.rounds]
        points = tuple(zip(rounds, one.mean, strict=True))
        band = tuple((r, m - s, m + s) for r, m, s in zip(rounds, one.mean, one.sd) if s == s)
        if points:
            series.append(Series(name, points, band=band))
    if not series:
        return []
    columns = (
        Column("row"),
        Column("round", number=True),
        Column(table.figure, partial(figure, places=4), number=True),
    )
    rows = tuple((s.name, r, v) for s in series for r, v in s.points)
    told = say("{} by round; the band is one standard deviation over seeds.", table.figure)

    def draw(width: float) -> Scene:
        return lines(series, f"{table.figure} by round", table.figure, width)

    stem = f"compare-{number}-{table.figure}"
    behind = Table(stem, f"{table.figure} by round", columns, rows)
    return [Figure(stem, told, draw, behind, pick=tuple(s.name for s in series))]


def _differences(table: Comparison, number: int) -> list[Block]:
    rows = [row for row in table.rows if row.difference is not None and row.low is not None]
    if not rows:
        return []
    base = table.rows[0].name
    values = [
        Dot(row.name, row.difference or 0.0, row.low, row.high, "c1", "circle") for row in rows
    ]
    told = say("Difference to {} with its 95 % interval over seeds.", base)

    def draw(width: float) -> Scene:
        return dots(values, f"Difference to {base}", table.figure, width, _signed, zero=0.0)

    return [Figure(f"compare-{number}-difference", told, draw)]


def _signed(value: float) -> str:
    text = figure(value, 3)
    return f"+{text}" if value > 0 else text


def _table(table: Comparison, number: int) -> Table:
    columns = (
        Column("row"),
        Column("seeds", number=True),
        Column(f"mean {table.figure}", partial(figure, places=4), number=True),
        Column("SD", partial(figure, places=4), number=True),
        Column("difference", _signed, number=True),
        Column("low", _signed, "95 % interval", number=True),
        Column("high", _signed, "95 % interval", number=True),
        Column("p, corrected", partial(figure, places=4), "Holm over the rows", number=True),
        Column("effect", partial(figure, places=2), "Cohen's d_z, Hedges' g", number=True),
        Column("note"),
    )
    rows = tuple(_row(row) for row in table.rows)
    title = f"Against {table.rows[0].name}" if table.rows else "Nothing to compare"
    return Table(f"compare-{number}", title, columns, rows)


def _row(row: Row) -> tuple[object, ...]:
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


def compared_sentence(tables: Sequence[Comparison]) -> Html | None:
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
            sure = f"p = {best.p_holm:.4f} after Holm, over {count(best.n, 'seed')}"
        return say(
            "Side by side, {} is right in {} of test images and {} in {} ({}).",
            el("b", best.name),
            el("b", percent(best.mean)),
            base.name,
            percent(base.mean),
            sure,
        )
    return None
