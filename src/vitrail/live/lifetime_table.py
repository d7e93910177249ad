"""What all runs have spent on a site's images, as its lifetime ledger has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitrail.config import Loaded
from vitrail.engine.federation import Federation
from vitrail.engine.run import plan_run
from vitrail.errors import VitrailError
from vitrail.report.html import Html, el

if TYPE_CHECKING:
    from vitrail.flower.site.site_config import SiteConfig


def render_lifetime(site: SiteConfig) -> Html:
    """Every run at the site with its epsilon, and the most that was spent on one image."""
    from vitrail.flower.site.lifetime_forecast import describe_unmatched, format_epsilon
    from vitrail.flower.site.lifetime_ledger import LifetimeLedger

    ledger, delta = LifetimeLedger(site), site.policy.lifetime_delta
    try:
        ledger.check()
        runs, shares = ledger.list_runs(), ledger.list_shares()
    except VitrailError as err:
        return el("p", str(err), class_="note")
    if not runs:
        return el("p", "No run has begun at this site: nothing is spent.", class_="soft")
    rows = [
        el(
            "tr",
            el("th", run.run, scope="row"),
            el("td", run.data),
            el("td", "any" if run.keys is None else f"{len(run.keys):,}"),
            el("td", format_epsilon(run.spending.compute_epsilon(delta))),
            el("td", "yes" if run.over else "no: counted in full"),
        )
        for run in runs
    ]
    names = ("run", "data", "images or patients", "epsilon", "over")
    heads = [el("th", name, scope="col") for name in names]
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="numbers")
    most = max((share.spending.compute_epsilon(delta) for share in shares), default=0.0)
    limit = site.policy.lifetime_epsilon
    allowed = "the policy sets no limit" if limit is None else f"the policy allows {limit:g}"
    total = f"The most that was spent on one image is epsilon {format_epsilon(most)}; {allowed}."
    wide = el("div", table, class_="wide", role="region", tabindex="0", aria_label="Runs so far")
    notes = describe_unmatched(list(dict.fromkeys(run.run for run in runs if run.unmatched)))
    return el("div", wide, el("p", total), *(el("p", note, class_="note") for note in notes))


def list_forecast(site: SiteConfig, loaded: Loaded, federation: Federation) -> list[str]:
    """What a planned run would add, and whether the policy forbids it."""
    from vitrail.flower.site.lifetime_forecast import forecast_lifetime

    try:
        forecast = forecast_lifetime(site, plan_run(loaded, federation)[0], federation)
    except VitrailError as err:
        return [str(err)]
    breach = forecast.find_breach(site.policy)
    return [*forecast.list_lines(site.policy), *([] if breach is None else [breach.describe()])]
