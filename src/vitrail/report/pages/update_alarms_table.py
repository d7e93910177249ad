"""How odd each site's updates were to the server, on the page of an audit."""

from __future__ import annotations

from vitrail.audit.update_alarms import UpdateAlarms
from vitrail.engine.alarms import ALLOWANCE, THRESHOLD
from vitrail.report.html import Html, el
from vitrail.report.pages.page_elements import format_number, render_rows

_MOST_ROUNDS = 20  # that a table has columns for; of more the last ones are shown


def render_update_alarms(updates: UpdateAlarms) -> Html:
    """Sites by rounds: what adds up of how odd their updates were; or why nobody saw them."""
    head = el("h2", "Updates, as the server saw them")
    said = el("p", " ".join(updates.describe()))
    if updates.unseen:
        return el("section", head, said)
    every = sorted({round_ for sums in updates.sums.values() for round_ in sums})
    rounds = every[-_MOST_ROUNDS:]
    rows = []
    for site, sums in updates.sums.items():
        cells = [el("td", format_number(sums[r], 1) if r in sums else "-") for r in rounds]
        first = updates.first.get(site)
        cells.append(el("td", "-" if first is None else f"from round {first}"))
        rows.append(el("tr", el("th", site, scope="row"), *cells))
    names = ("site", *(f"round {round_}" for round_ in rounds), "under alarm")
    table = render_rows(names, rows, "How odd each site's updates were, added up", "matrix")
    about = (
        "From the lengths, distances and directions of updates beside those of the other sites: "
        f"what exceeds {ALLOWANCE:g} standard deviations a round adds up, and from {THRESHOLD:g} "
        "on a site is under alarm."
    )
    return el("section", head, said, el("p", about, class_="note"), table)
