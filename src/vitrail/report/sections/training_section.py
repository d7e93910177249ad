"""The section on training: how good it got, who held what, what it cost, what was refused."""

from __future__ import annotations

from functools import partial

from vitrail.metrics.binomial import exact_interval
from vitrail.report.blocks import Block, Figure, FoldedTable, MissingNote, ViewChoice
from vitrail.report.charts.chart_lines import Series, draw_lines
from vitrail.report.charts.chart_matrix import Cell, draw_matrix
from vitrail.report.charts.chart_rows import Dot, draw_dots
from vitrail.report.charts.drawing import Drawing
from vitrail.report.charts.scale import format_bytes, format_count, format_percent, format_value
from vitrail.report.html import el, format_html
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import RunRecord

METRIC_NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "loss": "loss",
}
_FAINT = 8  # sites beyond this many are context, not lines with names


def make_training_blocks(record: RunRecord) -> tuple[Block, ...]:
    """Curves, sites, the partition, cost, refusals."""
    return (
        *_make_private_note(record),
        *_make_curve_blocks(record),
        *_make_site_blocks(record),
        *_make_partition_blocks(record),
        *_make_cost_blocks(record),
        *_make_missed_blocks(record),
    )


PRIVATE_FIGURES = (
    "Figures of single sites on this page (accuracy, loss, training images by class) never left "
    "their sites: no release carries them. They can be read here because this is a simulation "
    "whose sites lie on one machine. No proof covers them, so whoever passes this page on "
    "publishes them."
)


def _make_private_note(record: RunRecord) -> tuple[Block, ...]:
    """Where figures stayed at the sites: that the page shows what nobody received."""
    return (el("p", PRIVATE_FIGURES, class_="note"),) if record.has_private_metrics else ()


def _make_curve_blocks(record: RunRecord) -> tuple[Block, ...]:
    views: list[tuple[str, tuple[Block, ...]]] = []
    for name, words in METRIC_NAMES.items():
        series = collect_series(record, name)
        if series:
            views.append((words, (_make_curve_figure(record, name, words, series),)))
    if not views:
        return (
            MissingNote(format_html("No round is finished yet, so there is no curve to draw.")),
        )
    return (
        el("h3", "Round by round"),
        ViewChoice(f"{record.name}-curve", "Figure", tuple(views)),
    )


def collect_series(record: RunRecord, name: str) -> list[Series]:
    """The global model on the server's images, the mean over sites with their range, each site."""
    series = []
    if server := record.run.curve(name, "server"):
        series.append(Series("global, server's images", tuple(server)))
    sites = [
        Series(site, points, faint=len(record.run.sites) > _FAINT)
        for site in record.run.sites
        if (points := _collect_points(record, site, name))
    ]
    mean = record.run.curve(name, "sites")
    if mean and len(sites) > 1:
        by_round: dict[float, list[float]] = {}
        for curve in sites:
            for round_, value in curve.points:
                by_round.setdefault(round_, []).append(value)
        band = tuple((r, min(v), max(v)) for r, v in sorted(by_round.items()))
        series.append(Series("mean over sites", tuple(mean), band=band))
    return series + sites


def _collect_points(record: RunRecord, site: str, name: str) -> tuple[tuple[int, float], ...]:
    rows = record.list_site_rows(site)
    return tuple((int(r["round"]), float(r[name])) for r in rows if r.get(name) is not None)


def _make_curve_figure(record: RunRecord, name: str, words: str, series: list[Series]) -> Figure:
    rows = tuple((s.name, r, v) for s in series for r, v in s.points)
    columns = (
        Column("who"),
        Column("round", number=True),
        Column(words, partial(format_value, places=4), number=True),
    )
    caption = format_html(
        "{} by round, on test images. The band is the range over sites. A site's line is the "
        "model that it uses: its own where parts stay home.",
        words.capitalize() if words != "AUROC" else words,
    )
    return Figure(
        f"{record.name}-{name}",
        caption,
        lambda width: draw_lines(series, f"{words} by round", words, width, "accuracy" in name),
        Table(f"{record.name}-{name}", f"{words} by round", columns, rows),
        pick=tuple(s.name for s in series),
    )


def _make_site_blocks(record: RunRecord) -> tuple[Block, ...]:
    table = make_site_table(record)
    blocks: list[Block] = [el("h3", "Site by site")]
    values = [dot for site in record.run.sites for dot in make_site_dots(record, site)]
    if values:
        caption = format_html(
            "Accuracy of each site's last model on its own test images, with exact 95 % intervals "
            "over images: small sites are uncertain, not bad.{}",
            " No site told this to anybody." if record.has_private_metrics else "",
        )

        def draw(width: float) -> Drawing:
            return draw_dots(
                values[:120],
                "Accuracy by site",
                "accuracy",
                width,
                partial(format_percent, places=0),
            )

        blocks.append(Figure(f"{record.name}-by-site", caption, draw))
    return (*blocks, table)


def make_site_dots(record: RunRecord, site: str) -> list[Dot]:
    """A site's accuracy, and beside it that of the global model where they differ."""
    images = record.get_last(site, "test_examples")
    personal, shared = record.get_last(site, "accuracy"), record.get_last(site, "global_accuracy")
    dots = []
    if personal is not None:
        kind = "" if shared is None else "personal model"
        low, high = _compute_interval(personal, images)
        dots.append(Dot(site, personal, low, high, "c1", "circle", kind))
    if shared is not None:
        low, high = _compute_interval(shared, images)
        dots.append(Dot(site, shared, low, high, "c2", "diamond", "global model"))
    return dots


def _compute_interval(
    share: float, images: float | None
) -> tuple[float, float] | tuple[None, None]:
    return exact_interval(round(share * images), round(images)) if images else (None, None)


def make_site_table(record: RunRecord) -> Table:
    """Everything about sites that is a number."""
    names: list[str] = [*record.run.sites]
    train = _count_held(record, "train")
    rows = []
    for site in names:
        counts = train.get(site, [])
        rows.append(
            (
                site,
                sum(counts) if counts else record.get_last(site, "examples"),
                sum(c > 0 for c in counts) if counts else None,
                record.get_last(site, "test_examples"),
                record.get_last(site, "accuracy"),
                record.get_last(site, "balanced_accuracy"),
                record.get_last(site, "auroc"),
                record.count_rounds(site),
                record.get_total(site, "bytes_up"),
                record.get_total(site, "seconds"),
            )
        )
    columns = (
        Column("site"),
        Column("training images", _format_whole, number=True),
        Column("classes", _format_whole, "Classes it has training images of", number=True),
        Column("test images", _format_whole, number=True),
        Column("accuracy", format_percent, number=True),
        Column("balanced accuracy", format_percent, number=True),
        Column("AUROC", format_value, number=True),
        Column("rounds", _format_whole, "Rounds it trained in", number=True),
        Column("sent", format_bytes, number=True),
        Column("seconds", partial(format_value, places=1), "Training time", number=True),
    )
    return Table(f"{record.name}-sites", "Every site, after the last round", columns, tuple(rows))


def _format_whole(value: float) -> str:
    return f"{value:,.0f}"


def _count_held(record: RunRecord, side: str) -> dict[str, list[int]]:
    counts = record.counts
    return {} if counts is None else dict(zip(counts["sites"], counts[side], strict=True))


def _make_partition_blocks(record: RunRecord) -> tuple[Block, ...]:
    counts = record.counts
    if counts is None:
        return ()
    sites, classes, held = counts["sites"], counts["classes"], counts["train"]
    most = max((c for row in held for c in row), default=0) or 1
    cells = [
        [Cell(0.9 * c / most if c else None, str(c) if c else "0") for c in row] for row in held
    ]

    def draw(width: float) -> Drawing:
        return draw_matrix(sites, classes, cells, "Training images by site and class", width)

    columns = (
        Column("site"),
        Column("class"),
        Column("training images", _format_whole, number=True),
    )
    rows = tuple(
        (site, name, images)
        for site, row in zip(sites, held, strict=True)
        for name, images in zip(classes, row, strict=True)
    )
    table = Table(f"{record.name}-partition", "Training images by site and class", columns, rows)
    kept = " No site told this to anybody." if record.has_private_metrics else ""
    caption = format_html("Training images that each site holds of each class.{}", kept)
    return (
        el("h3", "Who holds what"),
        Figure(f"{record.name}-partition", caption, draw, table),
    )


def _make_cost_blocks(record: RunRecord) -> tuple[Block, ...]:
    rows = tuple(
        (
            int(r["round"]),
            r.get("accepted"),
            r.get("dropped"),
            r.get("refused"),
            r.get("seconds"),
            r.get("bytes_up"),
            r.get("bytes_down"),
        )
        for r in record.server_rows
        if r.get("bytes_up") is not None
    )
    if not rows:
        return ()
    columns = (
        Column("round", _format_whole, number=True),
        Column("updates that counted", _format_whole, number=True),
        Column("dropped out", _format_whole, number=True),
        Column("refused", _format_whole, number=True),
        Column("seconds", partial(format_value, places=2), number=True),
        Column("bytes up", format_bytes, "All sites together", number=True),
        Column("bytes down", format_bytes, "All sites together", number=True),
    )
    seconds = sum(row[4] or 0.0 for row in rows)
    up, down = sum(row[5] or 0 for row in rows), sum(row[6] or 0 for row in rows)
    lead = el(
        "p",
        format_html(
            "{} took {} s on this machine; {} sent {} and received {}.",
            format_count(len(rows), "round"),
            format_value(seconds, 1),
            "this site" if record.run.end == "site" else "all sites together",
            format_bytes(up),
            format_bytes(down),
        ),
    )
    table = Table(f"{record.name}-rounds", "Every round", columns, rows)
    return (
        el("h3", "What it cost"),
        lead,
        FoldedTable("Every round", table),
    )


def _make_missed_blocks(record: RunRecord) -> tuple[Block, ...]:
    head = el("h3", "Refused and dropped")
    if record.run.end == "site":  # what became of its updates, only the coordinator knows
        return ()
    if not record.missed_updates:
        sentence = "No update was refused and no site dropped out."
        return (head, el("p", sentence)) if record.run.round else ()
    columns = (Column("site"), Column("round", number=True), Column("what"), Column("why"))
    rows = tuple((t.site, t.round, t.kind, t.reason) for t in record.missed_updates)
    table = Table(f"{record.name}-trouble", "Updates that did not count", columns, rows)
    return head, table
