"""The section on who took part in a federation with remote sites: joined, absent, refused, gone."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.engine.storage.roster_log import RosterEvent
from vitrail.report.blocks import Block, Figure, FoldedTable
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_count
from vitrail.report.html import Html, el, format_html
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import RunRecord

_EVENT_WORDS = {"joined": "joined", "declined": "declined", "left": "left"}
_MOST_ROUNDS = 60  # rounds beyond which a picture has no room for all of them


def make_participation_blocks(record: RunRecord) -> tuple[Block, ...]:
    """Who took part in which round, and every absence, refusal and decision with its reason."""
    if record.run.end != "coordinator":
        return ()
    blocks: list[Block] = [el("p", write_participation_sentence(record))]
    if 0 < record.run.round <= _MOST_ROUNDS:
        blocks.append(_make_figure(record))
    blocks.append(make_participation_table(record))
    events = _make_event_table(record)
    if events.rows:
        blocks.append(FoldedTable("Everything that happened, in order", events))
    return tuple(blocks)


def write_participation_sentence(record: RunRecord) -> Html:
    """How many came, and what went wrong, in one sentence."""
    declined = list_declined(record)
    late = [e for e in record.roster_events if e.event == "joined" and e.round > 0]
    absent = sum(missed.kind == "dropped" for missed in record.missed_updates)
    refused = len(record.missed_updates) - absent
    return format_html(
        "{} took part{}{}; {}, {}.",
        el("b", format_count(len(record.run.sites), "site")),
        f", {len(declined)} declined ({', '.join(e.site for e in declined)})" if declined else "",
        f", {len(late)} joined later" if late else "",
        format_count(absent, "absence"),
        format_count(refused, "refused update"),
    )


def list_declined(record: RunRecord) -> list[RosterEvent]:
    """The sites that said no and never came back, with their last word."""
    last = {event.site: event for event in record.roster_events}
    return [event for event in last.values() if event.event == "declined"]


def _list_played_rounds(record: RunRecord, site: str) -> set[int]:
    rows = record.list_site_rows(site)
    return {int(row["round"]) for row in rows if row.get("bytes_up") is not None}


def _find_joining_round(events: Sequence[RosterEvent], site: str) -> int:
    rounds = [event.round for event in events if event.site == site and event.event == "joined"]
    return rounds[0] if rounds else 0


def _make_figure(record: RunRecord) -> Figure:
    rounds = range(1, record.run.round + 1)
    missed = {(m.site, m.round): m.kind for m in record.missed_updates}
    cells = []
    for site in record.run.sites:
        played = _list_played_rounds(record, site)
        row = []
        for round_ in rounds:
            kind = missed.get((site, round_))
            word = "refused" if kind == "refused" else "absent" if kind else "-"
            row.append(Cell(0.6, "✓") if round_ in played and not kind else Cell(None, word))
        cells.append(row)

    def draw(width: float) -> Drawing:
        names = [str(round_) for round_ in rounds]
        return draw_matrix(record.run.sites, names, cells, "Who took part in which round", width)

    caption = format_html(
        "Who took part in which round. A hyphen is a round for which a site was not drawn, or had "
        "not joined yet."
    )
    return Figure(f"{record.name}-participation", caption, draw)


def make_participation_table(record: RunRecord) -> Table:
    """A line for each site that was ever seen."""
    names = dict.fromkeys((*record.run.sites, *(e.site for e in record.roster_events)))
    rows = []
    for site in names:
        events = [event for event in record.roster_events if event.site == site]
        missed = [one for one in record.missed_updates if one.site == site]
        last = events[-1] if events else None
        rows.append(
            (
                site,
                _find_joining_round(events, site) if site in record.run.sites else None,
                len(_list_played_rounds(record, site)),
                sum(one.kind == "dropped" for one in missed),
                sum(one.kind == "refused" for one in missed),
                _describe_status(last, site in record.run.sites),
            )
        )
    columns = (
        Column("site"),
        Column("joined after round", number=True),
        Column("rounds", number=True),
        Column("absent", number=True),
        Column("refused", number=True),
        Column("in the end"),
    )
    return Table(f"{record.name}-participation", "Who took part", columns, tuple(rows))


def _describe_status(last: RosterEvent | None, member: bool) -> str:
    if last is None or last.event == "joined":
        return "took part" if member else "did not take part"
    return f"{_EVENT_WORDS.get(last.event, last.event)}{f': {last.why}' if last.why else ''}"


def _make_event_table(record: RunRecord) -> Table:
    rows = [
        (e.round, e.site, _EVENT_WORDS.get(e.event, e.event), e.why) for e in record.roster_events
    ]
    for one in record.missed_updates:
        rows.append(
            (one.round, one.site, "absent" if one.kind == "dropped" else "refused", one.reason)
        )
    rows.sort(key=lambda row: row[0])
    columns = (Column("round", number=True), Column("site"), Column("what"), Column("why"))
    return Table(f"{record.name}-events", "Who came and went", columns, tuple(rows))
