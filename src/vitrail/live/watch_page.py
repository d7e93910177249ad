"""The page Watch: the runs of a folder, live while they train, and one run's rounds."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Mapping
from typing import Any

from vitrail.child_python import build_command, build_environment
from vitrail.engine.federation import SERVER
from vitrail.engine.storage.run_end import describe_continuation
from vitrail.engine.storage.server_words import read_command
from vitrail.engine.storage.stop_request import has_stop_request, request_stop
from vitrail.errors import RunError, VitrailError
from vitrail.live.catalog import Catalog, LiveRun
from vitrail.live.layout import render_live_page
from vitrail.live.plan_page import describe_draft
from vitrail.registry import FOLDER_WORDS
from vitrail.report.blocks import Figure
from vitrail.report.charts.chart_lines import Series, draw_lines
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_bytes, format_percent, format_value
from vitrail.report.html import Html, el, join
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import RunRecord
from vitrail.runs.opened_run import compute_curve

_SITES = 12  # lines beyond this many would only be noise


def render_run_list(catalog: Catalog) -> Html:
    """Every run in one table: state, round, accuracy, time left."""
    rows = []
    for name, live in catalog.list_runs().items():
        try:
            facts = _list_facts(live)
        except (VitrailError, OSError, ValueError, KeyError) as err:
            rows.append(
                el("tr", el("th", name, scope="row"), el("td", f"cannot be read: {err}", colspan=5))
            )
            continue
        link = el("a", name, href=live.address)
        cells = [el("td", facts[key]) for key in ("method", "state", "round", "accuracy", "left")]
        rows.append(el("tr", el("th", link, scope="row"), *cells))
    heads = [el("th", head, scope="col") for head in
             ("run", "method", "state", "round", "accuracy", "time left")]  # fmt: skip
    table = el("table", el("thead", el("tr", *heads)), el("tbody", *rows), class_="numbers")
    return el("div", table, class_="wide", role="region", tabindex="0", aria_label="Runs")


def render_watch_page(catalog: Catalog) -> str:
    """The list of runs."""
    live = el("section", el("div", render_run_list(catalog), data_live="/runs"), aria_label="Runs")
    plans = [
        el("li", el("a", name, href=draft.address), f" \N{MIDDLE DOT} {describe_draft(draft)}")
        for name, draft in catalog.drafts.items()
    ]
    planned = el("section", el("h2", "Before a run"), el("ul", *plans)) if plans else None
    lead = el("p", "The runs of this folder; the list follows what happens.", class_="lead")
    return render_live_page("Watch", "", None, [planned, live], lead)


def _list_facts(live: LiveRun) -> dict[str, str]:
    config = live.run.config
    record = live.read()
    done = max((int(row["round"]) for row in record.rows), default=0)
    curve = compute_curve(record.rows, "accuracy")
    return {
        "method": config.method.name,
        "state": describe_state(live),
        "round": f"{min(done, config.run.rounds)} of {config.run.rounds}",
        "accuracy": format_percent(curve[-1][1]) if curve else "\N{EN DASH}",
        "left": _estimate_time_left(record, live),
    }


def describe_state(live: LiveRun) -> str:
    """Finished, running, stopping or stopped."""
    if live.is_over:
        return "finished"
    if live.is_running:
        return "stopping after this round" if has_stop_request(live.path) else "running"
    return "stopped"


def _estimate_time_left(record: RunRecord, live: LiveRun) -> str:
    times = [float(row["seconds"]) for row in record.server_rows if row.get("seconds")]
    if live.is_over or not live.is_running or not times:
        return "\N{EN DASH}"
    done = max(int(row["round"]) for row in record.server_rows)
    seconds = statistics.median(times[-5:]) * max(0, live.run.config.run.rounds - done)
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def render_run_page(live: LiveRun) -> str:
    """One run: what happens, and the buttons that stop it and go on."""
    body: list[Html | None] = [
        el("div", render_run_state(live), data_live=f"{live.address}/state", id="state"),
    ]
    run = live.run
    lead = el(
        "p", f"{run.config.method.name} on {run.card['backbone']}, {len(run.sites)} sites",
        class_="lead",
    )  # fmt: skip
    return render_live_page(live.name, "", live.address, body, lead)


def render_run_state(live: LiveRun) -> Html:
    """The part of the page that follows the run."""
    record, facts = live.read(), _list_facts(live)
    totals = _sum_rounds(record)
    tiles = [
        (facts["state"], "state"),
        (facts["round"], "round"),
        (facts["accuracy"], "accuracy"),
        (facts["left"], "time left"),
        (format_bytes(totals["bytes"]), "sent by the sites"),
        (f"{totals['refused']} and {totals['dropped']}", "refused and absent"),
        (_describe_epsilon(record), "privacy spent"),
    ]
    items = [el("li", el("b", value), el("span", words)) for value, words in tiles]
    figures = [figure.to_html() for figure in make_watch_figures(record)]
    names = [f"{live.name}-accuracy", f"{live.name}-loss"][: len(figures)]
    links = [
        el("a", f"{name.rpartition('-')[2]} as {kind.upper()}", download="",
           href=f"{live.address}/figure/{name.rpartition('-')[2]}.{kind}")
        for name in names
        for kind in ("svg", "png", "csv")
    ]  # fmt: skip
    downloads = el("p", "Download ", join(links, " \N{MIDDLE DOT} "), class_="soft downloads")
    return join(
        [
            el(
                "section", el("ul", *items, class_="tiles"), _render_buttons(live), aria_label="Now"
            ),
            el("section", *figures, downloads if links else None, aria_label="Curves"),
        ]
    )


def _sum_rounds(record: RunRecord) -> dict[str, int]:
    rows = record.server_rows
    return {
        "bytes": int(sum(row.get("bytes_up") or 0 for row in rows)),
        "refused": int(sum(row.get("refused") or 0 for row in rows)),
        "dropped": int(sum(row.get("dropped") or 0 for row in rows)),
    }


def _describe_epsilon(record: RunRecord) -> str:
    spent = [
        float(line["epsilon"])
        for lines in record.ledgers.values()
        for line in lines
        if isinstance(line.get("epsilon"), int | float)
    ]
    return f"epsilon {format_value(max(spent), 2)}" if spent else "no formal guarantee"


def _render_buttons(live: LiveRun) -> Html | None:
    run = live.run
    if live.is_over:
        return None
    if run.end == "site":
        words = "The coordinator stops this run and goes on with it; this site answers."
        return el("p", words, class_="soft")
    if run.end == "coordinator" and not live.is_running and not read_command(run.path):
        return el("p", describe_continuation(run.end), class_="soft")
    if live.is_running:
        if has_stop_request(live.path):
            return el("p", "It stops when this round is over; nothing is lost.", class_="soft")
        action, words = "stop", "Stop after this round"
    else:
        action, words = "resume", "Go on"
    return el(
        "p", el("button", words, type="button", class_="main-button",
                data_post=f"{live.address}/{action}", id=action)
    )  # fmt: skip


def make_watch_figures(record: RunRecord) -> list[Figure]:
    """Accuracy and loss by round and site, the whole drawn strong."""
    figures = []
    for metric, title in (("accuracy", "Accuracy by round"), ("loss", "Loss by round")):
        series = _collect_series(record, metric)
        if any(len(s.points) for s in series):
            figures.append(_make_figure(record.name, metric, title, series))
    return figures


def _collect_series(record: RunRecord, metric: str) -> list[Series]:
    overall = compute_curve(record.rows, metric)
    has_server = any(row.get(metric) is not None for row in record.server_rows)
    series = []
    if overall and (has_server or len(record.sites) > 1):
        name = "server's test images" if has_server else "mean over sites"
        series.append(Series(name, tuple((int(r), float(v)) for r, v in overall)))
    sites = record.sites if len(record.sites) <= _SITES else ()
    for site in sites:
        points = _list_points(record.list_site_rows(site), metric)
        if points:
            series.append(Series(site, points, faint=bool(series)))
    return series


def _list_points(rows: list[Mapping[str, Any]], metric: str) -> tuple[tuple[int, float], ...]:
    return tuple(
        (int(row["round"]), float(row[metric])) for row in rows if row.get(metric) is not None
    )


def _make_figure(name: str, metric: str, title: str, series: list[Series]) -> Figure:
    def draw(width: float) -> Drawing:
        return draw_lines(series, title, metric, width, shares=metric == "accuracy")

    columns = (Column("of"), Column("round", number=True), Column(metric, number=True))
    rows = tuple((s.name, r, v) for s in series for r, v in s.points if s.name != SERVER)
    table = Table(f"{name}-{metric}", title, columns, rows)
    return Figure(f"{name}-{metric}", el("span", f"{title}: the whole, and each site in gray."),
                  draw, table)  # fmt: skip


def stop_run(live: LiveRun) -> None:
    """Ask a run to stop at the end of its round."""
    if live.is_over or not live.is_running or live.run.end == "site":
        raise RunError("this run is not running here", where=live.name)
    request_stop(live.path)


def resume_run(live: LiveRun) -> None:
    """Go on with a stopped run, in a process of its own that outlives this one."""
    run = live.run
    if run.finished or live.is_running:
        raise RunError("this run is finished or running already", where=live.name)
    words = ["resume", str(live.path), "--quiet"]
    if run.end != "simulation":
        words = read_command(live.path) if run.end == "coordinator" else []
    if not words:
        raise RunError("this run cannot go on from here", where=live.name,
                       hint=describe_continuation(run.end))  # fmt: skip
    log = live.path / "resume.log"
    with log.open("ab") as out:
        subprocess.Popen(  # the same as typing it
            build_command("vitrail", *words),
            env=build_environment(**FOLDER_WORDS),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def dump_rows(live: LiveRun) -> str:
    """The metrics as JSON."""
    return json.dumps(live.read().rows, default=float)
