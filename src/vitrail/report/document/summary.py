"""The top of the report: what happened, in sentences made from data, each with its evidence."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.report.compare import Comparison
from vitrail.report.document.account import ATTACK, AUDIT, LEAKAGE, Account
from vitrail.report.document.auditing import findings, verdict_of
from vitrail.report.document.comparing import compared_sentence
from vitrail.report.document.leakage import attack_rows, reference
from vitrail.report.document.markup import Html, el, join, say
from vitrail.report.document.privacy import formal, lines_of, sent_sentence
from vitrail.report.document.scale import amount, count, percent
from vitrail.report.trial_table import exact_interval


def summary(account: Account, tables: Sequence[Comparison]) -> Html:
    """Tiles and sentences of one run."""
    said: list[tuple[Html | None, str]] = [
        (_trained(account), "training"),
        (_good(account), "training"),
        (_spread(account), "training"),
        (_audited(account), "audit"),
        (sent_sentence(account), "privacy"),
        (_attacked(account), "privacy"),
        (compared_sentence(tables), "compare"),
    ]
    items = [
        el("li", sentence, " ", _link(anchor)) for sentence, anchor in said if sentence is not None
    ]
    return join([_tiles(account), el("ul", *items, class_="said")])


def _link(anchor: str) -> Html:
    words = {"training": "Training", "audit": "Audit", "privacy": "Privacy", "compare": "Compare"}
    return el("a", f"→ {words[anchor]}", href=f"#{anchor}")


def _tiles(account: Account) -> Html:
    train, test = account.images
    value, where = best_figure(account)
    totals = [account.total(site, "bytes_up") for site in account.run.sites]
    sent = [total for total in totals if total is not None]
    found = account.found.get(AUDIT)
    lines = lines_of(account)
    proven = bool(lines) and all(formal(line) for _, line in lines)
    tiles = [
        (f"{len(account.run.sites)}", "site" if len(account.run.sites) == 1 else "sites"),
        (f"{train + test:,}", f"images of {count(len(account.run.classes), 'class', 'classes')}"),
        (
            percent(value),
            f"accuracy on {where}" if value is not None else "accuracy: not known yet",
        ),
        (amount(max(sent) if sent else None), "sent by a site in all rounds, at most"),
        (
            "not made" if found is None else _word(found),
            "audit for shortcuts that one site taught",
        ),
        ("formal" if proven else "empirical" if lines else "nothing", "guarantee on what left"),
    ]
    return el("ul", *(el("li", el("b", b), el("span", s)) for b, s in tiles), class_="tiles")


def _word(found: object) -> str:
    assert isinstance(found, dict)
    verdict, _ = verdict_of(found)
    return {"biased": "bias found", "suspect": "suspicion", "clear": "no bias seen"}[verdict]


def best_figure(account: Account) -> tuple[float | None, str]:
    """The newest accuracy, and on whose images: the server's where it has some."""
    server = account.run.curve("accuracy", "server")
    if server:
        return server[-1][1], "the server's test images"
    sites = account.run.curve("accuracy", "sites")
    return (sites[-1][1], "the sites' own test images") if sites else (None, "")


def _trained(account: Account) -> Html:
    run, config = account.run, account.run.config
    train, _ = account.images
    done = "" if run.finished else f" (of {config.run.rounds}: the run is not finished)"
    return say(
        "{} trained {} on {} of {} at {}, for {}{}.",
        el("b", config.method.name),
        run.card["backbone"],
        el("b", count(train, "image")),
        count(len(run.classes), "class", "classes"),
        el("b", count(len(run.sites), "site")),
        count(run.round, "round"),
        done,
    )


def _good(account: Account) -> Html:
    value, where = best_figure(account)
    if value is None:
        return say("No model has been evaluated yet, so nothing can be said about how good it is.")
    images = _tested(account)
    interval = ""
    if images:
        low, high = exact_interval(round(value * images), images)
        interval = (
            f" (95 % interval {percent(low, 0)} to {percent(high, 0)} over {images:,} images)"
        )
    chance = 1 / max(1, len(account.run.classes))
    return say(
        "It is right in {} of {}{}; guessing would be right in about {}.",
        el("b", percent(value)),
        where,
        interval,
        percent(chance, 0),
    )


def _tested(account: Account) -> int:
    """How many images the newest accuracy rests on."""
    server = [r for r in account.server if r.get("accuracy") is not None]
    if server:
        return int(server[-1].get("test_examples") or 0)
    return int(sum(account.last(site, "test_examples") or 0 for site in account.run.sites))


def _spread(account: Account) -> Html | None:
    known = {s: v for s in account.run.sites if (v := account.last(s, "accuracy")) is not None}
    if len(known) < 2:
        return None
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    refused = sum(t.kind == "refused" for t in account.trouble)
    trouble = f" {count(refused, 'update')} were refused." if refused > 1 else ""
    trouble = " 1 update was refused." if refused == 1 else trouble
    if known[low] == known[high]:
        return say("It is {} at every site.{}", percent(known[low]), trouble)
    return say(
        "Between sites it goes from {} at {} to {} at {}.{}",
        percent(known[low]),
        low,
        percent(known[high]),
        high,
        trouble,
    )


def _audited(account: Account) -> Html:
    found = account.found.get(AUDIT)
    if found is None:
        return say("Nobody has asked yet whether a site taught the model a shortcut.")
    verdict, words = verdict_of(found)
    if verdict == "clear":
        return say("The audit: {}. That is no proof of absence.", words)
    worst = max(findings(found), key=lambda f: (f["verdict"] == "biased", f["score"]))
    p = worst["p_value"]
    sure = "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"
    return say(
        "The audit: {} ({}), in {}. What it suggests: {}.",
        el("b", words),
        sure,
        worst["where"],
        worst["action"],
    )


def _attacked(account: Account) -> Html:
    files = [account.found[file] for file in (ATTACK, LEAKAGE) if file in account.found]
    rows = [row for found in files for row in attack_rows(found)]
    known = [row for row in rows if isinstance(row.get("psnr"), int | float)]
    best = [row for row in known if not reference(row)]
    if not best:
        return say("No attack was tried on what was released, so what it gives away is not known.")
    top = max(best, key=lambda row: float(row["psnr"]))
    plain = max((float(row["psnr"]) for row in known if reference(row)), default=None)
    beside = "" if plain is None else f"; an image that needs no attack reaches {plain:.1f} dB"
    behind = "" if top.get("defense") in (None, "none") else f" behind {top['defense']}"
    return say(
        "Of {}, the best recovered images at {}{} ({}){}.",
        count(len(best), "attack"),
        el("b", f"{float(top['psnr']):.1f} dB"),
        behind,
        top.get("attack", "attack"),
        beside,
    )
