"""The page of an audit: what was found in plain words, then the numbers and pictures behind it."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.audit.counterfactual.finding_pictures import FindingExample, illustrate_finding
from vitrail.audit.federation_view import Audit
from vitrail.audit.finding import Finding
from vitrail.audit.site_audit import SiteAudit
from vitrail.audit.site_view import SiteView
from vitrail.report.charts.scale import format_count
from vitrail.report.charts.verdict_signs import draw_legend, draw_verdict
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.pages.audit_evidence import render_finding
from vitrail.report.pages.audit_words import (
    NO_PROOF,
    AuditJson,
    format_p_value,
    format_percent,
    list_doubted,
    render_facts,
    write_headline,
)
from vitrail.report.pages.page_elements import format_number, render_rows
from vitrail.report.pages.remedy_table import render_trial
from vitrail.report.pages.update_alarms_table import render_update_alarms
from vitrail.runs.opened_run import Run

_MOST_EXAMPLES = 3  # findings a site that are shown in pictures
_ROWS = 30  # classes a table lists before it sums up those that are clear
_READING = {"none": "-"}  # other readings are their own word


class ExampleCollector:
    """Looks at a site's findings while its desk is there: those in doubt, and the top class."""

    def __init__(self) -> None:
        self.examples: list[FindingExample] = []

    def __call__(self, view: SiteView, audit: SiteAudit) -> None:
        """For `audit_run(keep=...)`."""
        first = audit.findings[:1]
        doubted = [f for f in audit.findings[1:] if f.verdict != "clear"]
        self.examples += [
            illustrate_finding(view, finding) for finding in [*first, *doubted][:_MOST_EXAMPLES]
        ]


def render_audit_page(
    run: Run, audit: Audit, examples: Sequence[FindingExample] = (), shown: bool = False
) -> str:
    """One HTML document. Pixels of sites' images are in it only if they may be `shown`."""
    card = run.card
    whole = "personal model" if run.keeps_home else "global model"
    audited = format_count(len(audit.sites), "site")
    about = (
        f"{card['method']} on {card['backbone']} · round {run.round} · {audited} audited of "
        f"{len(run.sites)}, each on its own images · shared model: the {whole}"
    )
    kept = audit.to_json()
    body: list[Html | None] = [_render_summary(kept), render_trial(kept.get("trial"))]
    if audit.doubts:
        body.append(_render_doubts(audit))
    if len(audit.sites) > 1:
        body.append(_render_federation(audit, run.classes))
    body.append(_render_alarms(audit))
    if audit.updates is not None:
        body.append(render_update_alarms(audit.updates))
    body += [_render_site(audit, site, examples, shown) for site in audit.sites]
    body.append(_render_meaning(audit))
    title = "Audit" if len(audit.sites) != 1 else f"Audit of {audit.sites[0].site}"
    return render_page(title, el("p", about, class_="soft"), body)


def _render_summary(audit: AuditJson) -> Html:
    verdict, headline = write_headline(audit)
    head = el("p", draw_verdict(verdict, headline), class_="headline")
    if verdict == "untested":
        sentence = "Every class at every site has too few images, or is the only one there."
        return el("section", head, el("p", sentence))
    if verdict == "clear":
        return el("section", head, el("p", NO_PROOF))
    first, *others = list_doubted(audit)
    also = None
    if others:
        listed = ", ".join(f"{f['class']} at {f['site']} ({f['verdict']})" for f in others[:8])
        also = el("p", f"Also: {listed}{' and more' if len(others) > 8 else ''}.", class_="note")
    return el("section", head, render_facts(audit, first), also)


def _render_doubts(audit: Audit) -> Html:
    """Sites whose tables contradict themselves: verdicts on them are worth nothing."""
    lines = [el("li", el("b", name), f": {why}.") for name, why in audit.doubts.items()]
    about = (
        "Both halves of a site are of the same images, dealt out by a seed that everybody knows. "
        "Here one half does not foretell the other: the site made a mistake, or it lies. Believe "
        "no verdict on these sites, and ask them."
    )
    head = el("h2", "What was told does not fit together")
    return el("section", head, el("p", about), el("ul", *lines))


def _render_federation(audit: Audit, classes: Sequence[str]) -> Html:
    """Sites by classes: scores, verdicts, the origin marked."""
    rows = []
    for site in audit.sites:
        by_class = {f.label: f for f in site.findings}
        cells = [_render_cell(audit, by_class.get(name), audit.worst) for name in classes]
        rows.append(el("tr", el("th", site.site, scope="row"), *cells))
    about = (
        "The score of each class at each site: how far it lies from the same class at the other "
        "sites, in units of what all other classes and sites predict; beyond 1 is outside."
    )
    table = render_rows(("site", *classes), rows, "Scores by site and class", "matrix")
    return el("section", el("h2", "All sites"), el("p", about), table, draw_legend())


def _render_cell(audit: Audit, finding: Finding | None, worst: Finding | None) -> Html:
    if finding is None:
        return el("td", "not tested", class_="none")
    shape = draw_verdict(audit.verdict(finding), format_number(finding.score, 1))
    hidden = el("span", audit.verdict(finding), class_="hide")
    if finding is worst:
        return el("td", shape, hidden, el("small", "origin"), class_="origin")
    return el("td", shape, hidden)


def _render_alarms(audit: Audit) -> Html:
    """What an unbiased site sees: the shared model beside its own."""
    reach = max((abs(s.alarm.gap) + 2 * s.alarm.spread for s in audit.sites), default=0.0) or 0.01
    rows = []
    for site in audit.sites:
        alarm = site.alarm
        lowest = min(alarm.by_class, key=alarm.by_class.__getitem__, default=None)
        worst = (
            "" if lowest is None else f"{lowest} {format_number(100 * alarm.by_class[lowest], 0)}"
        )
        gap, error = format_number(100 * alarm.gap, 1), format_number(200 * alarm.spread, 1)
        cells = (
            f"{gap} ± {error}",
            _draw_gap(alarm.gap, alarm.spread, reach, site.site),
            worst,
        )
        rows.append(el("tr", el("th", site.site, scope="row"), *(el("td", cell) for cell in cells)))
    about = (
        "Accuracy of the shared model minus that of the site's own, in points on its own images, "
        "with twice its standard error. Far below zero means that the shared model learned "
        "elsewhere what does not hold here."
    )
    span = f"from {format_number(-100 * reach, 0)} to {format_number(100 * reach, 0)} points"
    title = "The alarm an unbiased site hears"
    table = render_rows(("site", "difference", span, "worst class"), rows, title, "numbers")
    return el("section", el("h2", title), el("p", about), table)


def _draw_gap(value: float, spread: float, reach: float, who: str) -> Html:
    """A difference of accuracies with twice its standard error, on a scale of plus-minus reach."""
    wide, middle = 260.0, 130.0
    scale = (middle - 10) / reach if reach > 0 else 0.0
    at = middle + scale * value
    low, high = at - 2 * scale * spread, at + 2 * scale * spread
    points, error = format_number(100 * value, 1), format_number(200 * spread, 1)
    label = f"{who}: {points} plus or minus {error} points"
    return el(
        "svg",
        el("title", label),
        el("line", class_="zero", x1=middle, x2=middle, y1=1, y2=25),
        el("line", x1=f"{max(0.0, low):.1f}", x2=f"{min(wide, high):.1f}", y1=13, y2=13),
        el("circle", cx=f"{at:.1f}", cy=13, r=5),
        class_="gap",
        role="img",
        aria_label=label,
        viewBox=f"0 0 {wide:g} 26",
    )


def _render_site(
    audit: Audit, site: SiteAudit, examples: Sequence[FindingExample], shown: bool
) -> Html:
    worst = site.findings[0] if site.findings else None
    sentence = "Nothing could be tested here." if worst is None else worst.sentence
    if worst is not None and worst.verdict == "clear":
        sentence = "No bias seen at this site."
    skipped = None
    if site.skipped:
        why = "Not tested, because there are too few images of them, or of others"
        skipped = el("p", f"{why}: {', '.join(site.skipped)}.", class_="note")
    parts = [
        render_finding(example, at, shown, example.finding.verdict != "clear")
        for at, example in enumerate(examples)
        if example.finding.site == site.site
    ]
    return el(
        "section",
        el("h2", site.site),
        None if worst is None else el("p", draw_verdict(audit.verdict(worst))),
        el("p", sentence),
        skipped,
        _render_table(audit, site) if site.findings else None,
        *parts,
    )


_HEADS = (
    "class",
    "verdict",
    "score",
    "p, corrected",
    "place",
    "effect and limit, in SDs",
    "put into other images: log-odds of the class",
    "right before and after covering",
    "reading",
)


def _render_table(audit: Audit, site: SiteAudit) -> Html:
    listed = [f for at, f in enumerate(site.findings) if at < _ROWS or audit.verdict(f) != "clear"]
    rest = len(site.findings) - len(listed)
    rows = [_render_row(audit, finding) for finding in listed]
    if rest:
        sentence = f"{rest} more, all clear"
        rows.append(el("tr", el("td", sentence, colspan=len(_HEADS)), class_="other"))
    return render_rows(_HEADS, rows, f"Classes of {site.site}", "numbers dense")


def _render_row(audit: Audit, finding: Finding) -> Html:
    moved, kept = [], []
    for name, word in (("local", "own"), ("shared", "shared")):
        value = format_number(finding.swapped[name], 2)
        moved.append(_render_pair(word, f"{'+' if value[0].isdigit() else ''}{value}"))
        covered = finding.covered[name]
        change = f"{format_percent(covered.accuracy)} → {format_percent(covered.without)}"
        kept.append(_render_pair(word, change))
    areas = [
        _render_pair(word, format_number(value, 2))
        for word, value in (("effect", finding.effect), ("limit", finding.limit))
    ]
    return el(
        "tr",
        el("th", finding.label, scope="row"),
        el("td", draw_verdict(audit.verdict(finding))),
        el("td", format_number(finding.score, 1)),
        el("td", format_p_value(audit.p_value(finding))),
        el("td", finding.spot, class_="place"),
        el("td", *areas),
        el("td", *moved),
        el("td", *kept),
        el("td", _READING.get(finding.reading, finding.reading)),
    )


def _render_pair(word: str, value: str) -> Html:
    return el("span", el("span", word), f" {value}", class_="pair")


def _render_meaning(audit: Audit) -> Html:
    bold = {word: el("b", word) for word in ("biased", "differs", "Effect", "limit")}
    paragraphs = [
        format_html(
            "Each site's images are split in two halves. On the first the features are found in "
            "which a class stands apart at one site; on the second that is tested. A p-value is "
            "the share of permutations in which the class stands apart as far: {}. It is exact "
            "for the claim that the class looks alike at all sites, for this number of sites and "
            "images and this backbone, and corrected (Holm) for every class of every site.",
            audit.null,
        ),
        format_html(
            "Honest sites differ as well. {} is what also lies beyond the interval that all other "
            "classes and sites predict; a small p-value alone reads {}.",
            bold["biased"], bold["differs"],
        ),
        format_html(
            "It is not the chance that a site is honest, not a measure of harm, and no proof of "
            "absence: a weak mark or a site with few images is missed. It cannot tell a mark "
            "from a real feature that only one site has: that is what the readings are for, and "
            "who knows the images decides."
        ),
        format_html(
            "The score compares sites, not models: a part that tells a class at all sites stands "
            "out nowhere, a mark that only one site has stands out there. {}: how far the class "
            "lies from the others', in standard deviations of one image; {}: how far others would. "
            "{}: the mean change of the log-odds of the class when the place is copied into images "
            "of other classes. {} fills a place from its surroundings; for color it undoes the "
            "shift.",
            bold["Effect"], bold["limit"], el("b", "Put into other images"), el("b", "Covering"),
        ),
    ]  # fmt: skip
    text = join(el("p", paragraph) for paragraph in paragraphs)
    return el("section", el("h2", "What the numbers mean"), text)
