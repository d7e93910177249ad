"""The page of an audit: what was found in plain words, then the numbers and pictures behind it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vitrail.audit.counterfactual.finding_pictures import FindingExample, illustrate_finding
from vitrail.audit.federation_view import Audit
from vitrail.audit.finding import Finding
from vitrail.audit.site_audit import SiteAudit
from vitrail.audit.site_view import SiteView
from vitrail.report.pages.audit_evidence import render_finding
from vitrail.report.pages.audit_figures import (
    draw_gap,
    draw_legend,
    draw_verdict,
    draw_verdict_shape,
)
from vitrail.report.pages.audit_style import AUDIT_STYLE
from vitrail.report.pages.audit_words import (
    count_tested,
    find_leading,
    format_p_value,
    format_percent,
    list_facts,
    write_headline,
)
from vitrail.report.pages.page_elements import format_number, render_page
from vitrail.runs.opened_run import Run

_MOST_EXAMPLES = 3  # findings a site that are shown in pictures
_ROWS = 30  # classes a table lists before it sums up those that are clear
_READING = {"shortcut": "shortcut", "minority": "minority", "open": "open", "none": "-"}


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
    audited = _format_count(len(audit.sites), "site")
    lead = (
        f'<p class="soft">{escape(card["method"])} on {escape(card["backbone"])} · round '
        f"{run.round} · {audited} audited of {len(run.sites)}, each on its own images · "
        f"shared model: the {whole}</p>"
    )
    body = [_render_summary(audit)]
    if len(audit.sites) > 1:
        body.append(_render_federation(audit, run.classes))
    body.append(_render_alarms(audit))
    body += [_render_site(audit, site, examples, shown) for site in audit.sites]
    body.append(_render_meaning(audit))
    title = "Audit" if len(audit.sites) != 1 else f"Audit of {audit.sites[0].site}"
    return render_page(title, lead, body, AUDIT_STYLE)


def _render_summary(audit: Audit) -> str:
    verdict, headline = write_headline(audit)
    finding = find_leading(audit)
    head = (
        f'<p class="headline {verdict}">{draw_verdict_shape(verdict)}'
        f"<span>{escape(headline)}</span></p>"
    )
    if finding is None:
        tests = count_tested(audit)
        sentence = (
            f"{_format_count(tests, 'test')}, one for each class of each site: at no place of the "
            "image, nor in it as a whole, does a class stand out at one site as it does at no "
            "other. That is no proof that there is no bias: weak marks and small sites are missed."
            if tests
            else "Every class at every site has too few images, or is the only one there."
        )
        return f"<section>{head}<p>{sentence}</p></section>"
    rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in list_facts(audit, finding))
    others = [
        f
        for s in audit.sites
        for f in s.findings
        if f is not finding and audit.verdict(f) != "clear"
    ]
    also = ""
    if others:
        listed = ", ".join(f"{f.label} at {f.site} ({audit.verdict(f)})" for f in others[:8])
        dots = " and more" if len(others) > 8 else ""
        also = f'<p class="note">Also: {escape(listed)}{dots}.</p>'
    return f'<section>{head}<dl class="facts">{rows}</dl>{also}</section>'


def _render_federation(audit: Audit, classes: Sequence[str]) -> str:
    """Sites by classes: scores, verdicts, the origin marked."""
    worst = audit.worst
    rows = []
    for site in audit.sites:
        by_class = {f.label: f for f in site.findings}
        cells = "".join(_render_cell(audit, by_class.get(name), worst) for name in classes)
        rows.append(f'<tr><th scope="row">{escape(site.site)}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in classes)
    return (
        "<section><h2>All sites</h2><p>The score of each class at each site: how much "
        "better some place of the image, alone, tells the class there than at the other sites, in "
        f'standard errors.</p><div class="wide"><table class="matrix"><thead><tr><th></th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{draw_legend()}</section>"
    )


def _render_cell(audit: Audit, finding: Finding | None, worst: Finding | None) -> str:
    if finding is None:
        return '<td class="none">not tested</td>'
    shape = draw_verdict(audit.verdict(finding), format_number(finding.score, 1))
    hidden = f'<span class="hide">{audit.verdict(finding)}</span>'
    if finding is worst:
        return f'<td class="origin">{shape}{hidden}<small>origin</small></td>'
    return f"<td>{shape}{hidden}</td>"


def _render_alarms(audit: Audit) -> str:
    """What an unbiased site sees: the shared model beside its own."""
    reach = max((abs(s.alarm.gap) + 2 * s.alarm.spread for s in audit.sites), default=0.0) or 0.01
    rows = []
    for site in audit.sites:
        alarm = site.alarm
        lowest = min(alarm.by_class, key=alarm.by_class.__getitem__, default=None)
        worst = (
            ""
            if lowest is None
            else f"{escape(lowest)} {format_number(100 * alarm.by_class[lowest], 0)}"
        )
        gap, error = format_number(100 * alarm.gap, 1), format_number(200 * alarm.spread, 1)
        rows.append(
            f'<tr><td class="name">{escape(site.site)}</td><td>{gap} ± {error}</td>'
            f"<td>{draw_gap(alarm.gap, alarm.spread, reach, site.site)}</td><td>{worst}</td></tr>"
        )
    return (
        "<section><h2>The alarm an unbiased site hears</h2><p>Accuracy of the shared model minus "
        "that of the site's own, in points on its own images, with twice its standard error. Far "
        "below zero means that the shared model learned elsewhere what does not hold here.</p>"
        '<div class="wide"><table class="audit"><thead><tr><th>site</th><th>difference</th>'
        f"<th>from {format_number(-100 * reach, 0)} to {format_number(100 * reach, 0)} points</th>"
        f"<th>worst class</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _render_site(
    audit: Audit, site: SiteAudit, examples: Sequence[FindingExample], shown: bool
) -> str:
    worst = site.findings[0] if site.findings else None
    verdict = "" if worst is None else draw_verdict(audit.verdict(worst))
    sentence = "Nothing could be tested here." if worst is None else worst.sentence
    if worst is not None and worst.verdict == "clear":
        sentence = "No bias seen at this site."
    text = f"<p>{escape(sentence)}</p>"
    if site.skipped:
        names = ", ".join(site.skipped)
        text += (
            f'<p class="note">Not tested, because there are too few images of them, or of '
            f"others: {escape(names)}.</p>"
        )
    parts = []
    for at, example in enumerate(examples):
        if example.finding.site == site.site:
            doubted = example.finding.verdict != "clear"
            parts.append(render_finding(example, at, shown, doubted))
    table = _render_table(audit, site) if site.findings else ""
    return (
        f"<section><h2>{escape(site.site)}</h2><p>{verdict}</p>{text}{table}{''.join(parts)}"
        "</section>"
    )


def _render_table(audit: Audit, site: SiteAudit) -> str:
    listed = [f for at, f in enumerate(site.findings) if at < _ROWS or audit.verdict(f) != "clear"]
    rest = len(site.findings) - len(listed)
    rows = "".join(_render_row(audit, finding) for finding in listed)
    if rest:
        rows += f'<tr class="other"><td colspan="9">{rest} more, all clear</td></tr>'
    return (
        '<div class="wide"><table class="audit"><thead><tr><th>class</th><th>verdict</th>'
        "<th>score</th><th>p, corrected</th><th>place</th>"
        "<th>told by the<br>place alone:<br>AUC</th>"
        "<th>put into other images:<br>log-odds of the class</th>"
        "<th>right before<br>and after covering</th><th>reading</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _render_row(audit: Audit, finding: Finding) -> str:
    moved, kept = [], []
    for name, word in (("local", "own"), ("shared", "shared")):
        value = format_number(finding.swapped[name], 2)
        sign = "+" if value[0].isdigit() else ""
        moved.append(f'<span class="pair"><span>{word}</span> {sign}{value}</span>')
        covered = finding.covered[name]
        kept.append(
            f'<span class="pair"><span>{word}</span> {format_percent(covered.accuracy)} → '
            f"{format_percent(covered.without)}</span>"
        )
    p = escape(format_p_value(audit.p_value(finding)))
    return (
        f'<tr><td class="name">{escape(finding.label)}</td>'
        f"<td>{draw_verdict(audit.verdict(finding))}</td>"
        f"<td>{format_number(finding.score, 1)}</td><td>{p}</td>"
        f'<td class="place">{escape(finding.spot)}</td><td>{_render_areas(finding)}</td>'
        f"<td>{''.join(moved)}</td>"
        f"<td>{''.join(kept)}</td><td>{_READING[finding.reading]}</td></tr>"
    )


def _render_areas(finding: Finding) -> str:
    pairs = (("here", finding.here), ("others", finding.elsewhere))
    return "".join(
        f'<span class="pair"><span>{word}</span> {format_number(value, 2)}</span>'
        for word, value in pairs
    )


def _render_meaning(audit: Audit) -> str:
    null = audit.null
    source = ""
    if null is not None:
        about = f": {null.about.rstrip('.')}" if null.about else ""
        source = f" Here they are {len(null.scores)} scores{about}."
    return (
        "<section><h2>What the numbers mean</h2>"
        "<p>A p-value is the share of classes in <b>unbiased</b> federations that score as high or "
        f"higher.{escape(source)} It is corrected (Holm) for every class of every site on this "
        "page, so that of 20 unbiased federations at most one is expected to show a "
        "<b>biased</b> verdict; <b>suspect</b> holds before the correction only, and about one "
        "unbiased class in 20 is.</p>"
        "<p>It is not the chance that a site is honest, not a measure of harm, and no proof of "
        "absence: a weak mark or a site with few images is missed. It counts for images and models "
        "like those it was made from. It cannot tell a mark from a real feature that only one "
        "site has: that is what the two readings are for, and who knows the images decides.</p>"
        '<p class="soft">The score compares sites, not models: a part that tells a class at all '
        "sites stands out nowhere, a mark that only one site has stands out there. "
        "<b>AUC</b>: the area under the curve with which one place tells the class from another; "
        "0.5 is chance, 1 never errs. "
        "<b>Put into other images</b>: the mean change of the log-odds of the class when the "
        "place is copied into images of other classes. <b>Covering</b> fills a place from its "
        "surroundings; for color it undoes the shift.</p></section>"
    )


def _format_count(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
