"""The top of the report: what happened, in sentences made from data, each with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.metrics.binomial import exact_interval
from vitrail.report.charts.scale import format_bytes, format_count, format_percent
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.pages.audit_words import list_doubted, write_headline
from vitrail.report.run_record import ATTACK, AUDIT, LEAKAGE, RunRecord
from vitrail.report.sections.comparison_section import write_comparison_sentence
from vitrail.report.sections.leakage_section import flatten_attack_rows, is_reference
from vitrail.report.sections.participation_section import write_participation_sentence
from vitrail.report.sections.privacy_section import (
    name_guarantee,
    write_release_sentence,
)
from vitrail.sweep.compare_runs import Comparison

_SENT = {
    "simulation": "sent by a site in all rounds, at most",
    "coordinator": "came from a site in all rounds, at most",
    "site": "sent by this site in all rounds",
}

_NO_AUDIT = {"simulation": "not made", "coordinator": "at the sites", "site": "not made"}


def make_summary(record: RunRecord, tables: Sequence[Comparison]) -> Html:
    """Tiles and sentences of one run."""
    sentences: list[tuple[Html | None, str]] = [
        (_write_training_sentence(record), "training"),
        (_write_accuracy_sentence(record), "training"),
        (_write_spread_sentence(record), "training"),
        (
            write_participation_sentence(record) if record.run.end == "coordinator" else None,
            "participation",
        ),
        (_write_audit_sentence(record), "audit"),
        (write_release_sentence(record), "privacy"),
        (_write_attack_sentence(record), "privacy"),
        (write_comparison_sentence(tables), "compare"),
    ]
    items = [
        el("li", sentence, " ", _render_link(anchor))
        for sentence, anchor in sentences
        if sentence is not None
    ]
    return join([_render_tiles(record), el("ul", *items, class_="said")])


def _render_link(anchor: str) -> Html:
    words = {
        "training": "Training",
        "participation": "Who took part",
        "audit": "Audit",
        "privacy": "Privacy",
        "compare": "Compare",
    }
    return el("a", f"→ {words[anchor]}", href=f"#{anchor}")


def _render_tiles(record: RunRecord) -> Html:
    train, test = record.images
    value, where = find_newest_accuracy(record)
    totals = [record.get_total(site, "bytes_up") for site in record.run.sites]
    sent = [total for total in totals if total is not None]
    audit = record.results.get(AUDIT)
    tiles = [
        _make_sites_tile(record),
        (
            f"{train + test:,}" if train + test else "untold",
            f"images of {format_count(len(record.run.classes), 'class', 'classes')}",
        ),
        (
            format_percent(value),
            f"accuracy on {where}" if value is not None else "accuracy: not known",
        ),
        (format_bytes(max(sent) if sent else None), _SENT[record.run.end]),
        (
            _NO_AUDIT[record.run.end] if audit is None else _describe_verdict(audit),
            "audit for shortcuts that one site taught",
        ),
        name_guarantee(record),
    ]
    return el("ul", *(el("li", el("b", b), el("span", s)) for b, s in tiles), class_="tiles")


def _make_sites_tile(record: RunRecord) -> tuple[str, str]:
    if record.run.end == "site":
        return record.run.sites[0], "this site, one of a federation"
    count = len(record.run.sites)
    return f"{count}", "site" if count == 1 else "sites"


def _describe_verdict(audit: object) -> str:
    assert isinstance(audit, dict)
    verdict, _ = write_headline(audit)
    words = {
        "untested": "not tested",
        "biased": "bias found",
        "suspect": "suspicion",
        "differs": "a difference",
        "clear": "no bias seen",
    }
    return words.get(verdict, "not possible")


def find_newest_accuracy(record: RunRecord) -> tuple[float | None, str]:
    """The newest accuracy, and on whose images: the server's where it has some."""
    server = record.run.curve("accuracy", "server")
    if server:
        return server[-1][1], "the server's test images"
    sites = record.run.curve("accuracy", "sites")
    whose = "the site's" if record.run.end == "site" else "the sites'"
    return (sites[-1][1], f"{whose} own test images") if sites else (None, "")


def _write_training_sentence(record: RunRecord) -> Html:
    run, config = record.run, record.run.config
    train, _ = record.images
    done = "" if run.finished else f" (of {config.run.rounds}: the run is not finished)"
    return format_html(
        "{} trained {} on {} of {} at {}, for {}{}.",
        el("b", config.method.name),
        run.card["backbone"],
        el("b", format_count(train, "image") if train else "an untold number of images"),
        format_count(len(run.classes), "class", "classes"),
        el(
            "b",
            f"site {run.sites[0]}, together with others"
            if run.end == "site"
            else format_count(len(run.sites), "site"),
        ),
        format_count(run.round, "round"),
        done,
    )


def _write_accuracy_sentence(record: RunRecord) -> Html:
    value, where = find_newest_accuracy(record)
    if value is None:
        why = "No model has been evaluated yet"
        if record.run.finished:
            why = "No figure of a model is at hand, because no test image was held out or told of"
        return format_html("{}, so nothing can be said about how good it is.", why)
    images = _count_tested_images(record)
    interval = ""
    if images:
        low, high = exact_interval(round(value * images), images)
        reach = f"{format_percent(low, 0)} to {format_percent(high, 0)}"
        interval = f" (95 % interval {reach} over {images:,} images)"
    chance = 1 / max(1, len(record.run.classes))
    is_from_sites = not record.run.curve("accuracy", "server")
    kept = " The sites told this to nobody." if record.has_private_metrics and is_from_sites else ""
    return format_html(
        "It is right in {} of {}{}; guessing would be right in about {}.{}",
        el("b", format_percent(value)),
        where,
        interval,
        format_percent(chance, 0),
        kept,
    )


def _count_tested_images(record: RunRecord) -> int:
    """How many images the newest accuracy rests on."""
    server = [r for r in record.server_rows if r.get("accuracy") is not None]
    if server:
        return int(server[-1].get("test_examples") or 0)
    return int(sum(record.get_last(site, "test_examples") or 0 for site in record.run.sites))


def _write_spread_sentence(record: RunRecord) -> Html | None:
    known = {s: v for s in record.run.sites if (v := record.get_last(s, "accuracy")) is not None}
    if len(known) < 2:
        return None
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    refused = sum(t.kind == "refused" for t in record.missed_updates)
    trouble = f" {format_count(refused, 'update')} were refused." if refused > 1 else ""
    trouble = " 1 update was refused." if refused == 1 else trouble
    if known[low] == known[high]:
        return format_html("It is {} at every site.{}", format_percent(known[low]), trouble)
    return format_html(
        "Between sites it goes from {} at {} to {} at {}.{}",
        format_percent(known[low]),
        low,
        format_percent(known[high]),
        high,
        trouble,
    )


def _write_audit_sentence(record: RunRecord) -> Html:
    audit = record.results.get(AUDIT)
    if audit is None and record.run.end == "coordinator":
        return format_html(
            "Whether a site taught the model a shortcut is asked at the sites, which have images."
        )
    if audit is None:
        return format_html("Nobody has asked yet whether a site taught the model a shortcut.")
    verdict, words = write_headline(audit)
    if verdict == "untested":
        return format_html("The audit: {}.", words)
    if verdict == "clear":
        return format_html("The audit: {}. That is no proof of absence.", words)
    worst = list_doubted(audit)[0]
    p = worst["p_value"]
    sure = "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"
    return format_html(
        "The audit: {} ({}), in {}. What it suggests: {}.",
        el("b", words),
        sure,
        worst["where"],
        worst["action"],
    )


def _write_attack_sentence(record: RunRecord) -> Html:
    files = [record.results[file] for file in (ATTACK, LEAKAGE) if file in record.results]
    rows = [row for results in files for row in flatten_attack_rows(results)]
    known = [row for row in rows if isinstance(row.get("psnr"), int | float)]
    best = [row for row in known if not is_reference(row)]
    if not best:
        return format_html(
            "No attack was tried on what was released, so what it gives away is not known."
        )
    top = max(best, key=lambda row: float(row["psnr"]))
    plain = max((float(row["psnr"]) for row in known if is_reference(row)), default=None)
    beside = "" if plain is None else f"; an image that needs no attack reaches {plain:.1f} dB"
    behind = "" if top.get("defense") in (None, "none") else f" behind {top['defense']}"
    return format_html(
        "Of {}, the best recovered images at {}{} ({}){}.",
        format_count(len(best), "attack"),
        el("b", f"{float(top['psnr']):.1f} dB"),
        behind,
        top.get("attack", "attack"),
        beside,
    )
