"""The page of an audit: what was found in plain words, then the numbers and pictures behind it."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from vitrail.audit.desk import Desk
from vitrail.audit.federation import Audit
from vitrail.audit.finding import Finding
from vitrail.audit.look import Look, look
from vitrail.audit.site import SiteAudit
from vitrail.engine.loaded import Run
from vitrail.report.audit_figures import gap, key, mark, shape
from vitrail.report.audit_look import evidence_of
from vitrail.report.audit_style import AUDIT_STYLE
from vitrail.report.audit_words import facts, headline, leading, p_text, percent, tested
from vitrail.report.evidence_html import number, page

_EACH = 3  # findings a site that are shown in pictures
_ROWS = 30  # classes a table lists before it sums up those that are clear
_READING = {"shortcut": "shortcut", "minority": "minority", "open": "open", "none": "-"}


class Album:
    """Looks at a site's findings while its desk is there: those in doubt, and the top class."""

    def __init__(self) -> None:
        self.looks: list[Look] = []

    def __call__(self, desk: Desk, audit: SiteAudit) -> None:
        """For `audit_run(keep=...)`."""
        first = audit.findings[:1]
        doubted = [f for f in audit.findings[1:] if f.verdict != "clear"]
        self.looks += [look(desk, finding) for finding in [*first, *doubted][:_EACH]]


def audit_page(run: Run, audit: Audit, looks: Sequence[Look] = (), shown: bool = False) -> str:
    """One HTML document. Pixels of sites' images are in it only if they may be `shown`."""
    card = run.card
    whole = "personal model" if run.keeps_home else "global model"
    lead = (
        f'<p class="soft">{escape(card["method"])} on {escape(card["backbone"])} · round '
        f"{run.round} · {_count(len(audit.sites), 'site')} audited of {len(run.sites)}, each on "
        f"its own images · shared model: the {whole}</p>"
    )
    body = [_summary(audit)]
    if len(audit.sites) > 1:
        body.append(_federation(audit, run.classes))
    body.append(_alarms(audit))
    body += [_site(audit, site, looks, shown) for site in audit.sites]
    body.append(_meaning(audit))
    title = "Audit" if len(audit.sites) != 1 else f"Audit of {audit.sites[0].site}"
    return page(title, lead, body, AUDIT_STYLE)


def _summary(audit: Audit) -> str:
    verdict, words = headline(audit)
    finding = leading(audit)
    head = f'<p class="headline {verdict}">{shape(verdict)}<span>{escape(words)}</span></p>'
    if finding is None:
        told = (
            f"{_count(tested(audit), 'test')}, one for each class of each site: at no place of the "
            "image, nor in it as a whole, does a class stand out at one site as it does at no "
            "other. That is no proof that there is no bias: weak marks and small sites are missed."
            if tested(audit)
            else "Every class at every site has too few images, or is the only one there."
        )
        return f"<section>{head}<p>{told}</p></section>"
    rows = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts(audit, finding))
    more = [
        f
        for s in audit.sites
        for f in s.findings
        if f is not finding and audit.verdict(f) != "clear"
    ]
    also = ""
    if more:
        listed = ", ".join(f"{f.label} at {f.site} ({audit.verdict(f)})" for f in more[:8])
        dots = " and more" if len(more) > 8 else ""
        also = f'<p class="note">Also: {escape(listed)}{dots}.</p>'
    return f'<section>{head}<dl class="facts">{rows}</dl>{also}</section>'


def _federation(audit: Audit, classes: Sequence[str]) -> str:
    """Sites by classes: scores, verdicts, the origin marked."""
    worst = audit.worst
    rows = []
    for site in audit.sites:
        found = {f.label: f for f in site.findings}
        cells = "".join(_cell(audit, found.get(name), worst) for name in classes)
        rows.append(f'<tr><th scope="row">{escape(site.site)}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in classes)
    return (
        "<section><h2>All sites</h2><p>The score of each class at each site: how much "
        "better some place of the image, alone, tells the class there than at the other sites, in "
        f'standard errors.</p><div class="wide"><table class="matrix"><thead><tr><th></th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{key()}</section>"
    )


def _cell(audit: Audit, finding: Finding | None, worst: Finding | None) -> str:
    if finding is None:
        return '<td class="none">not tested</td>'
    told = mark(audit.verdict(finding), number(finding.score, 1))
    hidden = f'<span class="hide">{audit.verdict(finding)}</span>'
    if finding is worst:
        return f'<td class="origin">{told}{hidden}<small>origin</small></td>'
    return f"<td>{told}{hidden}</td>"


def _alarms(audit: Audit) -> str:
    """What an unbiased site sees: the shared model beside its own."""
    reach = max((abs(s.alarm.gap) + 2 * s.alarm.spread for s in audit.sites), default=0.0) or 0.01
    rows = []
    for site in audit.sites:
        one = site.alarm
        lowest = min(one.by_class, key=one.by_class.__getitem__, default=None)
        worst = (
            "" if lowest is None else f"{escape(lowest)} {number(100 * one.by_class[lowest], 0)}"
        )
        rows.append(
            f'<tr><td class="name">{escape(site.site)}</td><td>{number(100 * one.gap, 1)} ± '
            f"{number(200 * one.spread, 1)}</td><td>{gap(one.gap, one.spread, reach, site.site)}"
            f"</td><td>{worst}</td></tr>"
        )
    return (
        "<section><h2>The alarm an unbiased site hears</h2><p>Accuracy of the shared model minus "
        "that of the site's own, in points on its own images, with twice its standard error. Far "
        "below zero means that the shared model learned elsewhere what does not hold here.</p>"
        '<div class="wide"><table class="audit"><thead><tr><th>site</th><th>difference</th>'
        f"<th>from {number(-100 * reach, 0)} to {number(100 * reach, 0)} points</th>"
        f"<th>worst class</th></tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _site(audit: Audit, site: SiteAudit, looks: Sequence[Look], shown: bool) -> str:
    worst = site.findings[0] if site.findings else None
    verdict = "" if worst is None else mark(audit.verdict(worst))
    sentence = "Nothing could be tested here." if worst is None else worst.sentence
    if worst is not None and worst.verdict == "clear":
        sentence = "No bias seen at this site."
    told = f"<p>{escape(sentence)}</p>"
    if site.skipped:
        names = ", ".join(site.skipped)
        told += (
            f'<p class="note">Not tested, because there are too few images of them, or of '
            f"others: {escape(names)}.</p>"
        )
    parts = []
    for at, one in enumerate(looks):
        if one.finding.site == site.site:
            doubted = one.finding.verdict != "clear"
            parts.append(evidence_of(one, at, shown, doubted))
    table = _table(audit, site) if site.findings else ""
    return (
        f"<section><h2>{escape(site.site)}</h2><p>{verdict}</p>{told}{table}{''.join(parts)}"
        "</section>"
    )


def _table(audit: Audit, site: SiteAudit) -> str:
    listed = [f for at, f in enumerate(site.findings) if at < _ROWS or audit.verdict(f) != "clear"]
    rest = len(site.findings) - len(listed)
    rows = "".join(_row(audit, finding) for finding in listed)
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


def _row(audit: Audit, finding: Finding) -> str:
    moved, left = [], []
    for name, word in (("local", "own"), ("shared", "shared")):
        value = number(finding.swapped[name], 2)
        sign = "+" if value[0].isdigit() else ""
        moved.append(f'<span class="pair"><span>{word}</span> {sign}{value}</span>')
        one = finding.covered[name]
        left.append(
            f'<span class="pair"><span>{word}</span> {percent(one.accuracy)} → '
            f"{percent(one.without)}</span>"
        )
    return (
        f'<tr><td class="name">{escape(finding.label)}</td><td>{mark(audit.verdict(finding))}</td>'
        f"<td>{number(finding.score, 1)}</td><td>{escape(p_text(audit.p_value(finding)))}</td>"
        f'<td class="place">{escape(finding.spot)}</td><td>{_areas(finding)}</td>'
        f"<td>{''.join(moved)}</td>"
        f"<td>{''.join(left)}</td><td>{_READING[finding.reading]}</td></tr>"
    )


def _areas(finding: Finding) -> str:
    pairs = (("here", finding.here), ("others", finding.elsewhere))
    return "".join(
        f'<span class="pair"><span>{word}</span> {number(value, 2)}</span>' for word, value in pairs
    )


def _meaning(audit: Audit) -> str:
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


def _count(number_: int, one: str, many: str | None = None) -> str:
    return f"{number_} {one if number_ == 1 else many or one + 's'}"
