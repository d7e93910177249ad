"""The section on privacy: what left each site, when, how much, and under which guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitrail.release.images import promised
from vitrail.release.ledger import is_remark, mechanisms_of
from vitrail.report.document.account import ATTACK, LEAKAGE, Account
from vitrail.report.document.block import Block, Figure, Missing
from vitrail.report.document.budgets import budgets
from vitrail.report.document.chart_rows import Bar, bars
from vitrail.report.document.chart_timeline import Event, timeline
from vitrail.report.document.leakage import leakage
from vitrail.report.document.markup import Html, el, say
from vitrail.report.document.scale import amount, count, percent
from vitrail.report.document.scene import Scene
from vitrail.report.document.stolen import stolen
from vitrail.report.document.table import Column, Table

WORDS = {
    "release": "update",
    "enroll": "facts before the first round",
    "classes": "which classes it has",
    "separability": "figures for the audit",
    "audit": "findings of the audit",
}


_PARTS = 6  # guarantees of parts that the page lists
_SIMULATED = (
    "This is a simulation: the sites' noise follows from the run's seed, so whoever knows the seed "
    "could take it away. The guarantee holds where sites draw it from their own secret."
)


def privacy(account: Account) -> tuple[Block, ...]:
    """The ledger as a picture, what a message holds, guarantees apart from measurements, leaks."""
    return (
        *_ledger(account),
        *_contents(account),
        *_guarantees(account),
        Html("<h3>What attacks got</h3>"),
        *_attacks(account),
    )


def lines_of(account: Account) -> list[tuple[str, Mapping[str, Any]]]:
    """Everything that left, once, as (site, line of its ledger)."""
    return [told for told in _told(account) if not is_remark(told[1])]


def _told(account: Account) -> list[tuple[str, Mapping[str, Any]]]:
    """What left, and remarks on parts of it; declarations say what lines mean."""
    return [
        (site, line)
        for site, lines in account.ledgers.items()
        for line in lines
        if "guarantee" in line and not str(line["guarantee"]).startswith("nothing")
    ]


def formal(line: Mapping[str, Any]) -> bool:
    """Whether a line of a ledger carries a proof."""
    return str(line.get("guarantee", "")).startswith("formal")


def _bytes(line: Mapping[str, Any]) -> float:
    if "bytes" in line:
        return float(line["bytes"])
    return 8.0 * len(line.get("facts", ()))  # a fact is one number


def _ledger(account: Account) -> tuple[Block, ...]:
    lines = lines_of(account)
    head = Html("<h3>What left the sites</h3>")
    if not lines:
        return head, Missing(say("Nothing has left any site: the ledgers are empty."))
    events = [
        Event(
            site,
            int(line["round"]) if "round" in line else None,
            _bytes(line),
            str(line.get("kind")),
            formal(line),
        )
        for site, line in lines
    ]

    def draw(width: float) -> Scene:
        return timeline(events, account.run.sites, "What left each site, by round", width)

    told = say(
        "Each sign is what one site let out in one round, as its ledger has it; its area is the "
        "number of bytes. Circles carry a formal guarantee, squares are empirical; triangles are "
        "figures that were told beside the rounds."
    )
    return head, Figure(f"{account.name}-ledger", told, draw, ledger_table(account, _told(account)))


def ledger_table(account: Account, lines: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
    """The ledgers summed by site, kind, mechanism and guarantee; a remark adds no bytes."""
    sums: dict[tuple[str, str, str, str], list[float | None]] = {}
    for site, line in lines:
        kind = str(line.get("kind"))
        what = f"{kind}, in an update" if is_remark(line) else WORDS.get(kind, kind)
        mechanism = ", ".join(mechanisms_of(line)) or "none"
        key = (site, what, mechanism, str(line.get("guarantee", "not stated")))
        sums.setdefault(key, []).append(None if is_remark(line) else _bytes(line))
    rows = tuple(
        (site, what, len(sizes), _added(sizes), mechanism, guarantee)
        for (site, what, mechanism, guarantee), sizes in sums.items()
    )
    columns = (
        Column("site"),
        Column("what"),
        Column("times", number=True),
        Column("bytes", amount, number=True),
        Column("mechanism"),
        Column("guarantee"),
    )
    return Table(f"{account.name}-ledger", "The ledgers in sums", columns, rows)


def _added(sizes: Sequence[float | None]) -> float | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _contents(account: Account) -> tuple[Block, ...]:
    shared = account.run.card.get("shared") or {}
    stages = [stage for stage in shared.get("stages", ()) if stage["parts"]]
    if not stages:
        return ()
    values, rows = [], []
    for stage in stages:
        for part, numbers in stage["parts"].items():
            name = part if len(stages) == 1 else f"{stage['stage']}: {part}"
            values.append(Bar(name, numbers, f"{numbers:,}"))
            rows.append((stage["stage"], part, numbers, stage["rounds"]))

    def draw(width: float) -> Scene:
        return bars(values, "Numbers that leave a site in a round, by part", width)

    columns = (
        Column("stage"),
        Column("part"),
        Column("numbers", lambda v: f"{v:,}", number=True),
        Column("rounds", number=True),
    )
    title = "What an update holds"
    table = Table(f"{account.name}-update", title, columns, tuple(rows))
    told = say(
        "Numbers that leave a site in a round, by part of the model: {}.", shared.get("text", "")
    )
    return (
        Html(f"<h3>{title}</h3>"),
        Figure(f"{account.name}-update", told, draw, table),
    )


def _guarantees(account: Account) -> tuple[Block, ...]:
    lines = lines_of(account)
    if not lines:
        return ()
    proven = sum(formal(line) for _, line in lines)
    rest = len(lines) - proven
    parts = list(
        dict.fromkeys(f"{x.get('kind')}, {promised(x)}" for _, x in _told(account) if _part(x))
    )
    blocks: list[Block] = [Html("<h3>Formal guarantees</h3>")]
    told = budgets(account.name, lines)
    if told:
        blocks += told
        if any(line.get("secret") == "simulated" for _, line in lines):
            blocks.append(el("p", _SIMULATED, class_="note"))
    elif not proven and not parts:
        blocks.append(el("p", "None. Nothing that left a site carries a proof.", class_="note"))
    blocks += [el("p", f"Of a part of the updates: {told}.") for told in parts[:_PARTS]]
    if len(parts) > _PARTS:
        more = f"{len(parts) - _PARTS} more of this kind are in the sites' ledgers."
        blocks.append(el("p", more, class_="soft"))
    rest_told = say(
        "{} of {} are empirical: sent as they are, or changed in a way that no proof "
        "covers. What they give away can only be measured, by attacks.",
        count(rest, "release"),
        f"{len(lines):,}",
    )
    blocks += [
        Html("<h3>Without a formal guarantee</h3>"),
        el("p", rest_told if rest else "Nothing: every release is covered by the proof above."),
    ]
    return tuple(blocks)


def _part(line: Mapping[str, Any]) -> bool:
    """Whether a line is the proof for a part of an update."""
    return is_remark(line) and formal(line)


def _attacks(account: Account) -> tuple[Block, ...]:
    found = [account.found[file] for file in (ATTACK, LEAKAGE) if file in account.found]
    if not found:
        return (
            Missing(
                say(
                    "No attack was tried on this run. {} tries to get images back from what was "
                    "released; the run must have been made with {}.",
                    el("code", f"vitrail attack {account.name}"),
                    el("code", "run.record_updates = true"),
                )
            ),
        )
    pictures = stolen(account.run, f"{account.name}-attack")
    told = [block for one in found for block in leakage(account.name, one)]
    return tuple(told) if pictures is None else (*told, pictures)


def sent_sentence(account: Account) -> Html:
    """What left the sites, in a sentence for the summary."""
    lines = lines_of(account)
    if not lines:
        return say("Nothing has left any site yet.")
    each: dict[str, float] = {}
    for site, line in lines:
        each[site] = each.get(site, 0.0) + _bytes(line)
    shared = account.run.card.get("shared") or {}
    most = max((stage["share"] for stage in shared.get("stages", ())), default=None)
    part = "" if most is None else f"{percent(most, 0)} of what it trains in a round, "
    proven = sum(formal(line) for _, line in lines)
    if proven == len(lines):
        told = f"all under a formal guarantee: {_last(lines)}"
    elif proven:
        told = f"{proven} of {len(lines)} releases under a formal guarantee, the others empirical"
    else:
        told = "without any formal guarantee"
    return say(
        "Each site sent {}{} at most in {}, {}.",
        part,
        el("b", amount(max(each.values()))),
        count(len(lines) / max(1, len(each)), "release") if len(each) else "no release",
        el("b", told),
    )


def _last(lines: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    return str(lines[-1][1].get("guarantee", "")).removeprefix("formal").strip(": ")
