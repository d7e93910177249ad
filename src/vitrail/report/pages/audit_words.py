"""What an audit found, in plain words."""

from __future__ import annotations

from vitrail.audit.detection.contrast import SIGNIFICANCE_LEVEL, Verdict
from vitrail.audit.federation_view import Audit
from vitrail.audit.finding import Finding
from vitrail.report.html import Html, el, format_html
from vitrail.report.pages.page_elements import format_number


def format_p_value(p: float) -> str:
    """A p-value as people write it."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.1 else f"{p:.2f}"


def format_percent(share: float) -> str:
    """A share in whole percent, with a true minus sign."""
    return f"{format_number(100 * share, 0)} %"


def find_leading(audit: Audit) -> Finding | None:
    """The finding to speak of first: the worst biased one, else the worst suspicion."""
    doubted = [f for s in audit.sites for f in s.findings if audit.verdict(f) != "clear"]
    return audit.worst or max(doubted, key=lambda f: f.score, default=None)


def count_tested(audit: Audit) -> int:
    """How many classes of how many sites were tested."""
    return sum(len(site.findings) for site in audit.sites)


def write_headline(audit: Audit) -> tuple[Verdict, str]:
    """The verdict on the whole, and the sentence that says it."""
    finding = find_leading(audit)
    if finding is None:
        if not count_tested(audit):  # which must not look like a clean bill
            return "differs", "Nothing could be tested"
        return "clear", f"No bias seen{_count_skipped(audit)}"
    verdict = audit.verdict(finding)
    if verdict == "biased":
        return verdict, f"Bias found: {finding.label} at {finding.site}"
    return verdict, f"Nothing biased, but a difference: {finding.label} at {finding.site}"


def _count_skipped(audit: Audit) -> str:
    skipped = sum(len(site.skipped) for site in audit.sites)
    return f"; {skipped} more classes of sites had too few images" if skipped else ""


def list_facts(audit: Audit, finding: Finding) -> list[tuple[str, Html]]:
    """What, where, how sure, what follows: names and markup."""
    local, shared = finding.covered["local"], finding.covered["shared"]
    others = [site for site in audit.find_affected_sites(finding) if site != finding.site]
    also_noticed = (
        f" Also noticed at {', '.join(others)}, where the shared model is worse at this class "
        "than their own."
        if others
        else ""
    )
    word = "Likely origin" if audit.verdict(finding) == "biased" else "Suspected"
    return [
        (word, format_html("{}.{}", el("b", finding.site), also_noticed)),
        ("Class", el("b", finding.label)),
        ("Place", format_html("{}", finding.spot)),
        (
            "What stands out",
            format_html(
                "the images of {} lie {} standard deviations from the same class at the other "
                "sites; by all other classes and sites up to {} would be no surprise. It shows "
                "in: {}.",
                finding.label,
                el("b", format_number(finding.effect, 1)),
                format_number(finding.limit, 1),
                finding.family,
            ),
        ),
        ("How sure", format_html("{}", describe_certainty(audit, finding))),
        (
            f"When it is {finding.undone}",
            format_html(
                "the site's own model is right in {} of its {} images instead of {}; the shared "
                "model in {} instead of {}.",
                el("b", format_percent(local.without)),
                finding.label,
                format_percent(local.accuracy),
                el("b", format_percent(shared.without)),
                format_percent(shared.accuracy),
            ),
        ),
        (
            "Put into other images",
            format_html(
                "share of them taken for {}: own model {}, shared model {}. The own model relies "
                "on the place by {} standard deviations, beyond random places and beyond the "
                "shared model.{}",
                finding.label,
                el("b", _format_points(finding.flipped["local"])),
                el("b", _format_points(finding.flipped["shared"])),
                format_number(finding.relies, 1),
                _describe_lent_models(finding),
            ),
        ),
        *_list_column_facts(finding),
        *_list_subspace_facts(audit, finding),
        (
            "What to do",
            format_html("{}. People decide, not this page.", el("b", audit.action(finding))),
        ),
    ]


def _list_column_facts(finding: Finding) -> list[tuple[str, Html]]:
    """What is left of the difference within groups of known columns."""
    if not finding.within:
        return []
    parts = []
    for name, one in finding.within.items():
        if one.shared == 0:
            parts.append(f"{name}: no other site has such images, so it cannot be told apart")
            continue
        word = "explained by" if one.explains else "not explained by"
        parts.append(
            f"{word} {name}: within its groups {format_number(one.effect, 1)} of "
            f"{format_number(one.whole, 1)} standard deviations are left, p "
            f"{format_p_value(one.p_value)}"
        )
    end = ". Whether what a column explains is bias, images cannot tell."
    return [("Known columns", format_html("{}", "; ".join(parts) + end))]


def _list_subspace_facts(audit: Audit, finding: Finding) -> list[tuple[str, Html]]:
    """How far the site's subspace of the class is from the one the sites agreed on."""
    deviation = audit.find_deviation(finding)
    if deviation is None:
        return []
    sentence = format_html(
        "the site's own is {} from the agreed one, {} robust standard deviations beyond the median "
        "of all sites.",
        format_number(deviation.distance, 2),
        format_number(deviation.excess, 1),
    )
    return [("Subspace of the class", sentence)]


def _describe_lent_models(finding: Finding) -> str:
    """What the place does to the models that other sites lent."""
    others = {n: v for n, v in finding.flipped.items() if n not in ("local", "shared")}
    if not others:
        return ""
    changes = ", ".join(f"{name} {_format_points(value)}" for name, value in others.items())
    return f" Models that other sites lent: {changes}."


def describe_certainty(audit: Audit, finding: Finding) -> str:
    """The p-value with what it was corrected for."""
    count = count_tested(audit)
    p = audit.p_value(finding)
    sign = "" if p < 1e-4 else "= "
    return (
        f"p {sign}{format_p_value(p)}, corrected for {count} test{'s' if count != 1 else ''} "
        f"(below {SIGNIFICANCE_LEVEL:g} and beyond all other pairs counts as biased); score "
        f"{format_number(finding.score, 1)}."
    )


NEITHER = "The numbers decide for no reading: somebody has to look at the images."
READINGS = {
    "shortcut": (
        "A shortcut",
        "The class is told by a mark that has nothing to do with it. Losing more than half of the "
        "right answers without the place, or winning half of other images by it, speaks for this.",
    ),
    "acquisition": (
        "Another way of taking images",
        "The images of the class differ as a whole: tone, color, noise, sharpness, compression. A "
        "model can learn that instead of the class.",
    ),
    "unused": (
        "A mark that the model does not need today",
        "Images of this class agree at one place as only things do that were added. Covering it "
        "costs hardly an answer and putting it into others wins hardly one; a model trained "
        "further may still learn it. Look, and clean the images.",
    ),
    "common": (
        "A matter of the site, not of the class",
        "All classes of this site differ from the other sites in the same way, so that it does not "
        "tell the class.",
    ),
    "lacks": (
        "This site lacks what the others have",
        "The site's other classes look like this one; at the other sites this class has something "
        "that no other class has. Look there.",
    ),
    "minority": (
        "A minority",
        "Nothing stands out at any one place; what the images contain differs at this site as a "
        "whole, and the class is recognized without it. Whether that is real, those decide who "
        "know the images.",
    ),
}


def describe_readings(finding: Finding) -> list[tuple[str, str, bool]]:
    """The reading that the numbers support, or a shortcut and a minority where they decide for
    none: name, what speaks for it, whether they do."""
    decided = finding.reading in READINGS
    names = [finding.reading] if decided else ["shortcut", "minority"]
    return [(*READINGS[name], decided) for name in names]


def _format_points(share: float) -> str:
    text = format_number(100 * share, 0)
    return f"{'+' if text[0].isdigit() and text != '0' else ''}{text} points"
