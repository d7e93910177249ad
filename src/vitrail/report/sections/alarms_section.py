"""The section on sites whose updates were odd: sums round by round, and who is under alarm."""

from __future__ import annotations

from typing import Any

from vitrail.engine.alarms import ALARM_FILE, ALLOWANCE, THRESHOLD, find_alarmed, read_alarms
from vitrail.report.blocks import Block, Figure, FoldedTable
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.drawing import Drawing
from vitrail.report.html import Html, el, format_html
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import RunRecord

_MOST_ROUNDS, _MOST_SITES = 60, 60


def make_alarm_blocks(record: RunRecord) -> tuple[Block, ...]:
    """How odd every site's updates were; nothing where updates were not seen one by one."""
    everything = read_alarms(record.run.path / "server" / ALARM_FILE)
    named = tuple(_name_excluded(line) for line in everything if "excluded" in line)
    lines = [line for line in everything if line["sites"]]
    if not lines:
        return named
    sums = {(site, line["round"]): s["sum"] for line in lines for site, s in line["sites"].items()}
    sites = [site for site in record.run.sites if any(name == site for name, _ in sums)]
    rounds = [int(line["round"]) for line in lines]
    blocks: list[Block] = [*named, el("p", _write_sentence(lines))]
    if len(rounds) <= _MOST_ROUNDS and len(sites) <= _MOST_SITES:
        blocks.append(_make_figure(record.name, sites, rounds, sums))
    blocks.append(
        FoldedTable("How odd each site was at most", _make_table(record.name, lines, sites))
    )
    return tuple(blocks)


def _name_excluded(line: dict[str, Any]) -> Html:
    """Who lied in the steps of a secure sum."""
    why = "; ".join(f"{site}: {reason}" for site, reason in line["excluded"].items())
    return el("p", format_html("{} {}.", el("b", f"Left out after round {line['round']}:"), why))


def _write_sentence(lines: list[dict[str, Any]]) -> Html:
    alarmed = find_alarmed(lines)
    if not alarmed:
        return format_html("{}.", el("b", "No site came under alarm"))
    named = ", ".join(f"{site} (from round {first})" for site, first in alarmed.items())
    return format_html(
        "{}: {}. That is a reason to look at the site, not a proof: a site whose images differ "
        "from all others' is odd as well.",
        el("b", "Under alarm"),
        named,
    )


def _make_figure(
    name: str, sites: list[str], rounds: list[int], sums: dict[tuple[str, int], float]
) -> Figure:
    cells = []
    for site in sites:
        row = []
        for round_ in rounds:
            total = sums.get((site, round_))
            text = "-" if total is None else f"{total:.0f}"
            row.append(Cell(None if total is None else min(1.0, total / THRESHOLD), text))
        cells.append(row)

    def draw(width: float) -> Drawing:
        names = [str(round_) for round_ in rounds]
        return draw_matrix(sites, names, cells, "How odd each site's updates were", width)

    caption = format_html(
        "What adds up over the rounds of how odd each site's updates were, beyond {} standard "
        "deviations a round; from {} on a site is under alarm. A hyphen: no update, or too few "
        "to compare.",
        f"{ALLOWANCE:g}",
        f"{THRESHOLD:g}",
    )
    return Figure(f"{name}-alarms", caption, draw)


def _make_table(name: str, lines: list[dict[str, Any]], sites: list[str]) -> Table:
    kinds = ("norm", "distance", "direction", "twin", "sum")
    rows = []
    for site in sites:
        figures = [line["sites"][site] for line in lines if site in line["sites"]]
        rows.append((site, *(max(f[kind] for f in figures) for kind in kinds)))
    heads = ("longer", "farther", "turned away", "a twin", "added up")
    columns = (Column("site"), *(Column(head, "{:.1f}".format, number=True) for head in heads))
    caption = "How odd each site was at most, in standard deviations"
    return Table(f"{name}-oddness", caption, columns, tuple(rows))
