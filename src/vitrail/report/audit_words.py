"""What an audit found, in plain words."""

from __future__ import annotations

from html import escape

from vitrail.audit.federation import Audit
from vitrail.audit.finding import LEVEL, Finding, Verdict
from vitrail.report.evidence_html import number


def p_text(p: float) -> str:
    """A p-value as people write it."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.1 else f"{p:.2f}"


def percent(share: float) -> str:
    """A share in whole percent, with a true minus sign."""
    return f"{number(100 * share, 0)} %"


def leading(audit: Audit) -> Finding | None:
    """The finding to speak of first: the worst biased one, else the worst suspicion."""
    doubted = [f for s in audit.sites for f in s.findings if audit.verdict(f) != "clear"]
    return audit.worst or max(doubted, key=lambda f: f.score, default=None)


def tested(audit: Audit) -> int:
    """How many classes of how many sites were tested."""
    return sum(len(site.findings) for site in audit.sites)


def headline(audit: Audit) -> tuple[Verdict, str]:
    """The verdict on the whole, and the sentence that says it."""
    finding = leading(audit)
    if finding is None:
        words = "No bias seen" if tested(audit) else "Nothing could be tested"
        return "clear", words
    verdict = audit.verdict(finding)
    if verdict == "biased":
        return verdict, f"Bias found: {finding.label} at {finding.site}"
    return verdict, f"Nothing certain, but a suspicion: {finding.label} at {finding.site}"


def facts(audit: Audit, finding: Finding) -> list[tuple[str, str]]:
    """What, where, how sure, what follows: names and markup."""
    local, shared = finding.covered["local"], finding.covered["shared"]
    others = [site for site in audit.seen_by(finding) if site != finding.site]
    seen = (
        f" Also noticed at {escape(', '.join(others))}, where the shared model is worse at this "
        "class than their own."
        if others
        else ""
    )
    word = "Likely origin" if audit.verdict(finding) == "biased" else "Suspected"
    return [
        (word, f"<b>{escape(finding.site)}</b>.{seen}"),
        ("Class", f"<b>{escape(finding.label)}</b>"),
        ("Place", escape(finding.spot)),
        (
            "What stands out",
            f"by this place alone {escape(finding.label)} is told from other classes with an area "
            f"under the curve of <b>{number(finding.here, 2)}</b> here and "
            f"{number(finding.elsewhere, 2)} at the other sites (0.5 is chance).",
        ),
        ("How sure", escape(sure(audit, finding))),
        (
            f"When it is {finding.undone}",
            f"the site's own model is right in <b>{percent(local.without)}</b> of its "
            f"{escape(finding.label)} images instead of {percent(local.accuracy)}; the shared "
            f"model in <b>{percent(shared.without)}</b> instead of {percent(shared.accuracy)}.",
        ),
        (
            "Put into other images",
            f"share of them taken for {escape(finding.label)}: own model "
            f"{_points(finding.flipped['local'])}, shared model "
            f"{_points(finding.flipped['shared'])}. The own model relies on the place by "
            f"{number(finding.relies, 1)} standard deviations, beyond random places and beyond the "
            f"shared model.{_lent(finding)}",
        ),
        *_subspace(audit, finding),
        ("What to do", f"<b>{escape(audit.action(finding))}</b>. People decide, not this page."),
    ]


def _subspace(audit: Audit, finding: Finding) -> list[tuple[str, str]]:
    """How far the site's subspace of the class is from the one the sites agreed on."""
    one = audit.standing(finding)
    if one is None:
        return []
    told = (
        f"the site's own is {number(one.distance, 2)} from the agreed one, "
        f"{number(one.excess, 1)} robust standard deviations beyond the median of all sites."
    )
    return [("Subspace of the class", told)]


def _lent(finding: Finding) -> str:
    """What the place does to the models that other sites lent."""
    others = {n: v for n, v in finding.flipped.items() if n not in ("local", "shared")}
    if not others:
        return ""
    each = ", ".join(f"{escape(name)} {_points(value)}" for name, value in others.items())
    return f" Models that other sites lent: {each}."


def sure(audit: Audit, finding: Finding) -> str:
    """The p-value with what it was corrected for."""
    count = tested(audit)
    p = audit.p_value(finding)
    sign = "" if p < 1e-4 else "= "
    return (
        f"p {sign}{p_text(p)}, corrected for {count} test{'s' if count != 1 else ''} (below "
        f"{LEVEL:g} counts as biased); score {number(finding.score, 1)}."
    )


NEITHER = "The numbers speak for neither reading: somebody has to look at the images."


def readings(finding: Finding) -> list[tuple[str, str, bool]]:
    """Both readings of a finding: name, what the numbers say to it, whether they support it."""
    local, shared = finding.covered["local"], finding.covered["shared"]
    kept = f"{percent(local.without)} instead of {percent(local.accuracy)} of the images"
    return [
        (
            "A shortcut",
            f"The class is told by a mark that has nothing to do with it. With the place "
            f"{finding.undone}, the site's own model is right in {kept}; losing more than half "
            "of its right answers speaks for this reading.",
            finding.reading == "shortcut",
        ),
        (
            "A minority",
            f"The feature is real, seen at this site only, and helps there: the site's own model "
            f"is right in {percent(local.accuracy)} of these images, the shared one in "
            f"{percent(shared.accuracy)}. Keeping at least three quarters of its right answers "
            "without the feature, because it knows more of the class, speaks for this reading.",
            finding.reading == "minority",
        ),
    ]


def _points(share: float) -> str:
    text = number(100 * share, 0)
    return f"<b>{'+' if text[0].isdigit() and text != '0' else ''}{text} points</b>"
