"""The section on privacy: what left each site, when, how much, and under which guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.engine.storage.run_folder import HISTORY_FILE
from vitrail.release.image_protection import describe_remark_guarantee
from vitrail.release.ledger import is_remark, read_mechanisms
from vitrail.release.patient_budgets import list_worst_budgets
from vitrail.report.blocks import Block, Figure, MissingNote
from vitrail.report.charts.chart_rows import Bar, draw_bars
from vitrail.report.charts.chart_timeline import Event, draw_timeline
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_bytes, format_count, format_percent
from vitrail.report.html import Html, el, format_html
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import ATTACK, LEAKAGE, RunRecord
from vitrail.report.sections.attack_pictures import render_attack_pictures
from vitrail.report.sections.leakage_section import make_leakage_blocks
from vitrail.report.sections.privacy_budgets import make_budget_blocks, make_lifetime_blocks
from vitrail.report.sections.training_section import PRIVATE_FIGURES

KIND_WORDS = {
    "release": "update",
    "enroll": "facts before the first round",
    "classes": "which classes it has",
    "separability": "figures for the audit",
    "audit summary": "means for the audit",
    "audit histograms": "histograms for the audit",
    "audit": "findings of the audit",
}


_SOURCES = {
    "simulation": "as its ledger has it",
    "site": "as its ledger has it",
    "coordinator": "as it reached the coordinator (each site's own ledger is at that site)",
}
_NOTHING = {
    "simulation": "Nothing has left any site: the ledgers are empty.",
    "site": "Nothing has left this site: its ledger is empty.",
    "coordinator": "Nothing of any site has reached the coordinator yet.",
}
_NO_ATTACK = {
    "coordinator": "No attack can be scored here: the coordinator has no true images. ",
    "site": "No attack can be made here: the server's side of the run is elsewhere. ",
}
_PARTS = 6  # guarantees of parts that the page lists
_SIMULATED = (
    "This is a simulation: the sites' noise follows from the run's seed, so whoever knows the seed "
    "could take it away. The guarantee holds where sites draw it from their own secret."
)


def make_privacy_blocks(record: RunRecord) -> tuple[Block, ...]:
    """The ledger as a picture, what a message holds, guarantees apart from measurements, leaks."""
    return (
        *_make_ledger_blocks(record),
        *_make_contents_blocks(record),
        *_make_guarantee_blocks(record),
        el("h3", "What attacks got"),
        *_make_attack_blocks(record),
    )


def list_ledger_lines(record: RunRecord) -> list[tuple[str, Mapping[str, Any]]]:
    """Everything that left, once, as (site, line of its ledger)."""
    return [entry for entry in _list_lines_and_remarks(record) if not is_remark(entry[1])]


def _list_lines_and_remarks(record: RunRecord) -> list[tuple[str, Mapping[str, Any]]]:
    """What left, and remarks on parts of it; declarations say what lines mean."""
    return [
        (site, line)
        for site, lines in record.ledgers.items()
        for line in lines
        if "guarantee" in line and not str(line["guarantee"]).startswith("nothing")
    ]


def is_formal(line: Mapping[str, Any]) -> bool:
    """Whether a line of a ledger carries a proof."""
    return str(line.get("guarantee", "")).startswith("formal")


def _count_bytes(line: Mapping[str, Any]) -> float:
    if "bytes" in line:
        return float(line["bytes"])
    return 8.0 * len(line.get("facts", ()))  # a fact is one number


def _make_ledger_blocks(record: RunRecord) -> tuple[Block, ...]:
    lines = list_ledger_lines(record)
    head = el("h3", "What left the sites")
    if not lines:
        return head, MissingNote(format_html(_NOTHING[record.run.end]))
    events = [
        Event(
            site,
            int(line["round"]) if "round" in line else None,
            _count_bytes(line),
            str(line.get("kind")),
            is_formal(line),
        )
        for site, line in lines
    ]

    def draw(width: float) -> Drawing:
        return draw_timeline(events, record.sites, "What left each site, by round", width)

    source = _SOURCES[record.run.end]
    caption = format_html(
        "Each sign is what one site let out in one round, {}; its area is the number of bytes. "
        "Circles carry a formal guarantee, squares are empirical; triangles are figures that were "
        "told beside the rounds.",
        source,
    )
    return head, Figure(
        f"{record.name}-ledger",
        caption,
        draw,
        make_ledger_table(record, _list_lines_and_remarks(record)),
    )


def make_ledger_table(record: RunRecord, lines: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """The ledgers summed by site, kind, mechanism and guarantee; a remark adds no bytes."""
    sums: dict[tuple[str, str, str, str], list[float | None]] = {}
    for site, line in lines:
        kind = str(line.get("kind"))
        what = f"{kind}, in an update" if is_remark(line) else KIND_WORDS.get(kind, kind)
        mechanism = ", ".join(read_mechanisms(line)) or "none"
        key = (site, what, mechanism, str(line.get("guarantee", "not stated")))
        sums.setdefault(key, []).append(None if is_remark(line) else _count_bytes(line))
    rows = tuple(
        (site, what, len(sizes), _sum_known(sizes), mechanism, guarantee)
        for (site, what, mechanism, guarantee), sizes in sums.items()
    )
    columns = (
        Column("site"),
        Column("what"),
        Column("times", number=True),
        Column("bytes", format_bytes, number=True),
        Column("mechanism"),
        Column("guarantee"),
    )
    return Table(f"{record.name}-ledger", "The ledgers in sums", columns, rows)


def _sum_known(sizes: Sequence[float | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _make_contents_blocks(record: RunRecord) -> tuple[Block, ...]:
    shared = record.run.card.get("shared") or {}
    stages = [stage for stage in shared.get("stages", ()) if stage["parts"]]
    if not stages:
        return ()
    values, rows = [], []
    for stage in stages:
        for part, numbers in stage["parts"].items():
            name = part if len(stages) == 1 else f"{stage['stage']}: {part}"
            values.append(Bar(name, numbers, f"{numbers:,}"))
            rows.append((stage["stage"], part, numbers, stage["rounds"]))

    def draw(width: float) -> Drawing:
        return draw_bars(values, "Numbers that leave a site in a round, by part", width)

    columns = (
        Column("stage"),
        Column("part"),
        Column("numbers", lambda v: f"{v:,}", number=True),
        Column("rounds", number=True),
    )
    title = "What an update holds"
    table = Table(f"{record.name}-update", title, columns, tuple(rows))
    caption = format_html(
        "Numbers that leave a site in a round, by part of the model: {}.", shared.get("text", "")
    )
    return (
        el("h3", title),
        Figure(f"{record.name}-update", caption, draw, table),
    )


def _make_guarantee_blocks(record: RunRecord) -> tuple[Block, ...]:
    lines = list_ledger_lines(record)
    if not lines:
        return ()
    proven = sum(is_formal(line) for _, line in lines)
    rest = len(lines) - proven
    parts = list(
        dict.fromkeys(
            f"{x.get('kind')}, {describe_remark_guarantee(x)}"
            for _, x in _list_lines_and_remarks(record)
            if _is_part(x)
        )
    )
    blocks: list[Block] = [el("h3", "Formal guarantees")]
    budgets = make_budget_blocks(record.name, lines)
    if budgets:
        blocks += budgets
        blocks += [
            el("p", f"No guarantee for a patient: {budget.sentence()}.", class_="note")
            for budget in list_worst_budgets(record.ledgers)
        ]
        if any(line.get("secret") == "simulated" for _, line in lines):
            blocks.append(el("p", _SIMULATED, class_="note"))
    elif not proven and not parts:
        blocks.append(el("p", "None. Nothing that left a site carries a proof.", class_="note"))
    blocks += [el("p", f"Of a part of the updates: {part}.") for part in parts[:_PARTS]]
    if len(parts) > _PARTS:
        more = f"{len(parts) - _PARTS} more of this kind are in the sites' ledgers."
        blocks.append(el("p", more, class_="soft"))
    if history := record.results.get(HISTORY_FILE):
        blocks += make_lifetime_blocks(record.name, history, record.run.path.name)
    rest_sentence = format_html(
        "{} of {} are empirical: sent as they are, or changed in a way that no proof "
        "covers. What they give away can only be measured, by attacks.",
        format_count(rest, "release"),
        f"{len(lines):,}",
    )
    nothing = "Of what left, nothing: every release is covered by the proof above."
    blocks += [
        el("h3", "Without a formal guarantee"),
        el("p", rest_sentence if rest else nothing),
    ]
    if record.has_private_metrics:
        blocks.append(el("p", PRIVATE_FIGURES))
    return tuple(blocks)


def name_guarantee(record: RunRecord) -> tuple[str, str]:
    """The guarantee on what left, as (a word, what it is about): "none" is no guarantee at all."""
    lines = list_ledger_lines(record)
    if not lines:
        return "nothing", "has left a site"
    proven = sum(is_formal(line) for _, line in lines)
    if proven == len(lines):
        return "formal", "guarantee on what left"
    in_part = proven or any(_is_part(line) for _, line in _list_lines_and_remarks(record))
    return (
        ("in part", "formal guarantee on what left")
        if in_part
        else (
            "none",
            "formal guarantee on what left",
        )
    )


def _is_part(line: Mapping[str, Any]) -> bool:
    """Whether a line is the proof for a part of an update."""
    return is_remark(line) and is_formal(line)


def _make_attack_blocks(record: RunRecord) -> tuple[Block, ...]:
    files = [record.results[file] for file in (ATTACK, LEAKAGE) if file in record.results]
    if not files and record.run.end != "simulation":
        rehearse = "A simulation of the same terms can be attacked."
        return (MissingNote(format_html("{}{}", _NO_ATTACK[record.run.end], rehearse)),)
    if not files:
        return (
            MissingNote(
                format_html(
                    "No attack was tried on this run. {} tries to get images back from what was "
                    "released; the run must have been made with {}.",
                    el("code", f"vitrail attack {record.name}"),
                    el("code", "run.record_updates = true"),
                )
            ),
        )
    pictures = render_attack_pictures(record.run, f"{record.name}-attack")
    blocks = [block for results in files for block in make_leakage_blocks(record.name, results)]
    return tuple(blocks) if pictures is None else (*blocks, pictures)


def write_release_sentence(record: RunRecord) -> Html:
    """What left the sites, in a sentence for the summary."""
    lines = list_ledger_lines(record)
    if not lines:
        return format_html("{}", _NOTHING[record.run.end])
    bytes_by_site: dict[str, float] = {}
    for site, line in lines:
        bytes_by_site[site] = bytes_by_site.get(site, 0.0) + _count_bytes(line)
    shared = record.run.card.get("shared") or {}
    most = max((stage["share"] for stage in shared.get("stages", ())), default=None)
    part = "" if most is None else f"{format_percent(most, 0)} of what it trains in a round, "
    proven = sum(is_formal(line) for _, line in lines)
    if proven == len(lines):
        guarantee = f"all under a formal guarantee: {_describe_last(lines)}"
    elif proven:
        guarantee = (
            f"{proven} of {len(lines)} releases under a formal guarantee, the others empirical"
        )
    else:
        guarantee = "without any formal guarantee"
    return format_html(
        "{} sent {}{} {}in {}, {}.",
        "This site" if record.run.end == "site" else "Each site",
        part,
        el("b", format_bytes(max(bytes_by_site.values()))),
        "" if record.run.end == "site" else "at most ",
        format_count(len(lines) / max(1, len(bytes_by_site)), "release")
        if len(bytes_by_site)
        else "no release",
        el("b", guarantee),
    )


def _describe_last(lines: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    return str(lines[-1][1].get("guarantee", "")).removeprefix("formal").strip(": ")
