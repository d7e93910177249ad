"""The section on training: how good it got, who held what, what it cost, what was refused."""

from __future__ import annotations

from functools import partial

from vitrail.report.document.account import Account
from vitrail.report.document.block import Block, Choice, Figure, Folded, Missing
from vitrail.report.document.chart_lines import Series, lines
from vitrail.report.document.chart_matrix import Cell, matrix
from vitrail.report.document.chart_rows import Dot, dots
from vitrail.report.document.markup import Html, el, say
from vitrail.report.document.scale import amount, count, figure, percent
from vitrail.report.document.scene import Scene
from vitrail.report.document.table import Column, Table
from vitrail.report.trial_table import exact_interval

FIGURES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auroc": "AUROC",
    "loss": "loss",
}
_FAINT = 8  # sites beyond this many are context, not lines with names


def training(account: Account) -> tuple[Block, ...]:
    """Curves, sites, the partition, cost, refusals."""
    return (
        *_curves(account),
        *_sites(account),
        *_partition(account),
        *_cost(account),
        *_trouble(account),
    )


def _curves(account: Account) -> tuple[Block, ...]:
    views: list[tuple[str, tuple[Block, ...]]] = []
    for name, words in FIGURES.items():
        series = curves_of(account, name)
        if series:
            views.append((words, (_curve_figure(account, name, words, series),)))
    if not views:
        return (Missing(say("No round is finished yet, so there is no curve to draw.")),)
    return (
        Html("<h3>Round by round</h3>"),
        Choice(f"{account.name}-curve", "Figure", tuple(views)),
    )


def curves_of(account: Account, name: str) -> list[Series]:
    """The global model on the server's images, the mean over sites with their range, each site."""
    found = []
    if server := account.run.curve(name, "server"):
        found.append(Series("global, server's images", tuple(server)))
    sites = [
        Series(site, points, faint=len(account.run.sites) > _FAINT)
        for site in account.run.sites
        if (points := _points(account, site, name))
    ]
    mean = account.run.curve(name, "sites")
    if mean and len(sites) > 1:
        by_round: dict[int, list[float]] = {}
        for one in sites:
            for round_, value in one.points:
                by_round.setdefault(round_, []).append(value)
        band = tuple((r, min(v), max(v)) for r, v in sorted(by_round.items()))
        found.append(Series("mean over sites", tuple(mean), band=band))
    return found + sites


def _points(account: Account, site: str, name: str) -> tuple[tuple[int, float], ...]:
    rows = account.of_site(site)
    return tuple((int(r["round"]), float(r[name])) for r in rows if r.get(name) is not None)


def _curve_figure(account: Account, name: str, words: str, series: list[Series]) -> Figure:
    rows = tuple((s.name, r, v) for s in series for r, v in s.points)
    columns = (
        Column("who"),
        Column("round", number=True),
        Column(words, partial(figure, places=4), number=True),
    )
    told = say(
        "{} by round, on test images. The band is the range over sites. A site's line is the "
        "model that it uses: its own where parts stay home.",
        words.capitalize() if words != "AUROC" else words,
    )
    return Figure(
        f"{account.name}-{name}",
        told,
        lambda width: lines(series, f"{words} by round", words, width, "accuracy" in name),
        Table(f"{account.name}-{name}", f"{words} by round", columns, rows),
        pick=tuple(s.name for s in series),
    )


def _sites(account: Account) -> tuple[Block, ...]:
    table = site_table(account)
    blocks: list[Block] = [Html("<h3>Site by site</h3>")]
    values = [dot for site in account.run.sites for dot in site_dots(account, site)]
    if values:
        told = say(
            "Accuracy of each site's last model on its own test images, with exact 95 % intervals "
            "over images: small sites are uncertain, not bad."
        )

        def draw(width: float) -> Scene:
            return dots(
                values[:120], "Accuracy by site", "accuracy", width, partial(percent, places=0)
            )

        blocks.append(Figure(f"{account.name}-by-site", told, draw))
    return (*blocks, table)


def site_dots(account: Account, site: str) -> list[Dot]:
    """A site's accuracy, and beside it that of the global model where they differ."""
    images = account.last(site, "test_examples")
    own, shared = account.last(site, "accuracy"), account.last(site, "global_accuracy")
    found = []
    if own is not None:
        kind = "" if shared is None else "personal model"
        low, high = _interval(own, images)
        found.append(Dot(site, own, low, high, "c1", "circle", kind))
    if shared is not None:
        low, high = _interval(shared, images)
        found.append(Dot(site, shared, low, high, "c2", "diamond", "global model"))
    return found


def _interval(share: float, images: float | None) -> tuple[float, float] | tuple[None, None]:
    return exact_interval(round(share * images), round(images)) if images else (None, None)


def site_table(account: Account) -> Table:
    """Everything about sites that is a number."""
    names: list[str] = [*account.run.sites]
    train = _held(account, "train")
    rows = []
    for site in names:
        held = train.get(site, [])
        rows.append(
            (
                site,
                sum(held) if held else None,
                sum(c > 0 for c in held) if held else None,
                account.last(site, "test_examples"),
                account.last(site, "accuracy"),
                account.last(site, "balanced_accuracy"),
                account.last(site, "auroc"),
                len([r for r in account.of_site(site) if r.get("steps") is not None]),
                account.total(site, "bytes_up"),
                account.total(site, "seconds"),
            )
        )
    columns = (
        Column("site"),
        Column("training images", _whole, number=True),
        Column("classes", _whole, "Classes it has training images of", number=True),
        Column("test images", _whole, number=True),
        Column("accuracy", percent, number=True),
        Column("balanced accuracy", percent, number=True),
        Column("AUROC", figure, number=True),
        Column("rounds", _whole, "Rounds it trained in", number=True),
        Column("sent", amount, number=True),
        Column("seconds", partial(figure, places=1), "Training time", number=True),
    )
    return Table(f"{account.name}-sites", "Every site, after the last round", columns, tuple(rows))


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _held(account: Account, side: str) -> dict[str, list[int]]:
    counts = account.counts
    return {} if counts is None else dict(zip(counts["sites"], counts[side], strict=True))


def _partition(account: Account) -> tuple[Block, ...]:
    counts = account.counts
    if counts is None:
        return ()
    sites, classes, held = counts["sites"], counts["classes"], counts["train"]
    most = max((c for row in held for c in row), default=0) or 1
    cells = [
        [Cell(0.9 * c / most if c else None, str(c) if c else "0") for c in row] for row in held
    ]

    def draw(width: float) -> Scene:
        return matrix(sites, classes, cells, "Training images by site and class", width)

    columns = (Column("site"), Column("class"), Column("training images", _whole, number=True))
    rows = tuple(
        (site, name, images)
        for site, row in zip(sites, held, strict=True)
        for name, images in zip(classes, row, strict=True)
    )
    table = Table(f"{account.name}-partition", "Training images by site and class", columns, rows)
    told = say("Training images that each site holds of each class.")
    return (
        Html("<h3>Who holds what</h3>"),
        Figure(f"{account.name}-partition", told, draw, table),
    )


def _cost(account: Account) -> tuple[Block, ...]:
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
        for r in account.server
        if r.get("bytes_up") is not None
    )
    if not rows:
        return ()
    columns = (
        Column("round", _whole, number=True),
        Column("updates that counted", _whole, number=True),
        Column("dropped out", _whole, number=True),
        Column("refused", _whole, number=True),
        Column("seconds", partial(figure, places=2), number=True),
        Column("bytes up", amount, "All sites together", number=True),
        Column("bytes down", amount, "All sites together", number=True),
    )
    seconds = sum(row[4] or 0.0 for row in rows)
    up, down = sum(row[5] or 0 for row in rows), sum(row[6] or 0 for row in rows)
    lead = el(
        "p",
        say(
            "{} took {} s on this machine; all sites together sent {} and received {}.",
            count(len(rows), "round"),
            figure(seconds, 1),
            amount(up),
            amount(down),
        ),
    )
    table = Table(f"{account.name}-rounds", "Every round", columns, rows)
    return (
        Html("<h3>What it cost</h3>"),
        lead,
        Folded("Every round", table),
    )


def _trouble(account: Account) -> tuple[Block, ...]:
    head = Html("<h3>Refused and dropped</h3>")
    if not account.trouble:
        told = "No update was refused and no site dropped out."
        return (head, el("p", told)) if account.run.round else ()
    columns = (Column("site"), Column("round", number=True), Column("what"), Column("why"))
    rows = tuple((t.site, t.round, t.kind, t.reason) for t in account.trouble)
    table = Table(f"{account.name}-trouble", "Updates that did not count", columns, rows)
    return head, table
