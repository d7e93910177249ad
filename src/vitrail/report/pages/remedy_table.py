"""Remedies that were tried, before and after side by side, from the audit's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import format_number, render_rows

_HEADS = (
    "remedy",
    "suspected images",
    "the class elsewhere",
    "other classes",
    "change: validation, test images",
    "log-odds that the place moves the shared model by",
    "right with and without the place",
    "",
)
_ABOUT = (
    "Each try goes on from the audited model for {rounds} rounds, with the remedy or without one, "
    "on the same images. The first three columns are shares recognized among test images that no "
    "choice was made on: those under suspicion, the same class at sites that are not suspected, "
    "and all other classes. The change is that of the mean over all classes, without suspected "
    "images, on the other half of the held-out images, with its standard error; what lowers it is "
    "called a cost. A federation that is trained again from the start may do better than a try."
)


def render_trial(trial: Mapping[str, Any] | None) -> Html | None:
    """The table and what it comes to; nothing where nothing was asked for."""
    if trial is None:
        return None
    head = el("h2", "Remedies, tried")
    if not trial["tried"]:
        return el("section", head, el("p", trial["sentence"]))
    rows = [el("tr", *_make_cells(one)) for one in trial["tried"]]
    skipped = [
        el("p", f"{name} was not tried: {why}", class_="note")
        for name, why in trial["skipped"].items()
    ]
    against = ", ".join(f"{one['class']} at {one['site']}" for one in trial["against"])
    return el(
        "section",
        head,
        el("p", el("b", trial["sentence"]), " People decide, not this page."),
        el("p", f"Against: {against}."),
        render_rows(_HEADS, rows, "Remedies before and after", "numbers dense"),
        join(skipped),
        el("p", _ABOUT.format(rounds=trial["rounds"]), class_="soft"),
    )


def _make_cells(one: Mapping[str, Any]) -> list[Html]:
    test, reliance = one["test"], one["reliance"]
    change = "-"
    if one["effect"] is not None:
        change = (
            f"{_format_points(one['change'])} ± {format_number(100 * one['error'], 1)}, "
            f"{_format_points(one['test_change'])}"
        )
    moved = covered = "-"
    if reliance is not None:
        moved = format_number(reliance["swapped"], 2)
        shares = (reliance["covered"]["accuracy"], reliance["covered"]["without"])
        covered = " → ".join(_format_share(share) for share in shares)
    texts = (
        _format_share(test["biased"]),
        _format_share(test["unbiased"]),
        _format_share(test["others"]),
        change,
        moved,
        covered,
        one["effect"] or "",
    )
    return [el("th", one["remedy"], scope="row"), *(el("td", text) for text in texts)]


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{format_number(100 * share, 0)} %"


def _format_points(share: float) -> str:
    text = format_number(100 * share, 1)
    return f"{'+' if text[0].isdigit() else ''}{text} points"
