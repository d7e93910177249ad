"""What an audit found, in plain words, from its JSON: for its page, the report and the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vitrail.audit.detection.contrast import SIGNIFICANCE_LEVEL
from vitrail.audit.federation_view import find_noticing_sites
from vitrail.audit.site_audit import Alarm
from vitrail.report.charts.scale import format_value
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.pages.page_elements import format_number

AuditJson = Mapping[str, Any]


def format_p_value(p: float) -> str:
    """A p-value as people write it."""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.1 else f"{p:.2f}"


def format_percent(share: float) -> str:
    """A share in whole percent, with a true minus sign."""
    return f"{format_number(100 * share, 0)} %"


def list_findings(audit: AuditJson) -> list[dict[str, Any]]:
    """All findings of an audit, each with its site."""
    return [
        {**finding, "site": site["site"]} for site in audit["sites"] for finding in site["classes"]
    ]


def list_doubted(audit: AuditJson) -> list[dict[str, Any]]:
    """Findings that are not clear, the one to speak of first leading: the worst biased one at a
    site that has what others lack, else the highest score."""
    return sorted(
        (finding for finding in list_findings(audit) if finding["verdict"] != "clear"),
        key=lambda f: (f["verdict"] != "biased" or bool(f.get("lacks")), -float(f["score"])),
    )


def write_headline(audit: AuditJson) -> tuple[str, str]:
    """The verdict on the whole, and the words that say it, with how much was not tested."""
    tests = len(list_findings(audit))
    if not tests:  # which must not look like a clean bill
        return "untested", "Nothing could be tested: too few images of each class"
    doubted = list_doubted(audit)
    skipped = sum(len(site.get("skipped", ())) for site in audit["sites"])
    few = f"; {skipped} more had too few images to be tested" if skipped else ""
    if not doubted:
        plural = "s" if tests != 1 else ""
        return "clear", f"No bias seen ({tests} test{plural}, one for each class of each site{few})"
    worst = doubted[0]
    start = "Bias found" if worst["verdict"] == "biased" else "Nothing biased, but a difference"
    return worst["verdict"], f"{start}: {worst['class']} at {worst['site']}{few}"


def describe_place(finding: AuditJson) -> str:
    """The place in words, with its pixels."""
    if finding.get("box") is None:
        return str(finding["where"])
    x0, y0, x1, y1 = (int(edge) for edge in finding["box"])
    return f"{finding['where']} (pixels {x0} to {x1} across, {y0} to {y1} down)"


def render_facts(audit: AuditJson, finding: AuditJson) -> Html:
    """What, where, how sure, what follows, as a list."""
    pairs = list_facts(audit, finding)
    parts = [part for name, text in pairs for part in (el("dt", name), el("dd", text))]
    return el("dl", *parts, class_="facts")


def list_facts(audit: AuditJson, finding: AuditJson) -> list[tuple[str, Html]]:
    """What, where, how sure, what follows: names and markup."""
    is_origin = finding["verdict"] == "biased" and not finding.get("lacks")
    undone = "undone" if finding.get("region") == "color" else "covered"
    noticed = _describe_noticing(audit, finding)
    return [
        ("Likely origin" if is_origin else "Suspected",
         format_html("{}.{}", el("b", finding["site"]), noticed)),
        ("Class", el("b", finding["class"])),
        ("Place", format_html("{}", describe_place(finding))),
        ("What stands out", _describe_contrast(finding)),
        ("How sure", format_html("{}", _describe_certainty(finding))),
        (f"When it is {undone}", _describe_covered(finding)),
        ("Put into other images", _describe_swapped(finding)),
        *_list_unit_facts(finding),
        *_list_column_facts(finding),
        *_list_subspace_facts(finding),
        ("What to do",
         format_html("{}. People decide, not this page.", el("b", finding["action"]))),
    ]  # fmt: skip


def _describe_noticing(audit: AuditJson, finding: AuditJson) -> str:
    alarms = {site["site"]: Alarm(**site["alarm"]) for site in audit["sites"]}
    others = find_noticing_sites(alarms, finding["site"], finding["class"])
    if not others:
        return ""
    worse = "where the shared model is worse at this class than their own"
    return f" Also noticed at {', '.join(others)}, {worse}."


def _describe_contrast(finding: AuditJson) -> Html:
    """How far the class lies from the other sites'; audits of before compared areas."""
    if "effect" not in finding:
        return format_html(
            "area under the curve of {} here and {} at the other sites (0.5 is chance)",
            format_value(finding["here"], 2),
            format_value(finding["elsewhere"], 2),
        )
    return format_html(
        "the images of {} lie {} standard deviations from the same class at the other sites; by "
        "all other classes and sites up to {} would be no surprise. It shows in: {}.",
        finding["class"],
        el("b", format_value(finding["effect"], 1)),
        format_value(finding.get("limit"), 1),
        finding.get("family", ""),
    )


def _describe_certainty(finding: AuditJson) -> str:
    """The p-value with what it was corrected for."""
    p = float(finding["p_value"])
    sign = "" if p < 1e-4 else "= "
    return (
        f"p {sign}{format_p_value(p)}, corrected for all tests (below {SIGNIFICANCE_LEVEL:g} and "
        f"beyond all other pairs counts as biased); score {format_number(finding['score'], 1)}."
    )


def _describe_covered(finding: AuditJson) -> Html:
    local, shared = finding["covered"]["local"], finding["covered"]["shared"]
    return format_html(
        "the site's own model is right in {} of its {} images instead of {}; the shared model in "
        "{} instead of {}.",
        el("b", format_percent(local["without"])),
        finding["class"],
        format_percent(local["accuracy"]),
        el("b", format_percent(shared["without"])),
        format_percent(shared["accuracy"]),
    )


def _describe_swapped(finding: AuditJson) -> Html:
    """What the place does to images of other classes, by model; lent ones are named."""
    moved = finding["flipped"]
    others = [f"{n} {_format_points(v)}" for n, v in moved.items() if n not in ("local", "shared")]
    lent = f" Models that other sites lent: {', '.join(others)}." if others else ""
    relies = finding.get("relies")
    text = (
        ""
        if relies is None
        else f" The own model relies on the place by {format_number(relies, 1)} standard "
        "deviations, beyond random places and beyond the shared model."
    )
    return format_html(
        "share of them taken for {}: own model {}, shared model {}.{}{}",
        finding["class"],
        el("b", _format_points(moved["local"])),
        el("b", _format_points(moved["shared"])),
        text,
        lent,
    )


def _list_unit_facts(finding: AuditJson) -> list[tuple[str, Html]]:
    units = [str(unit) for unit in finding.get("prototypes") or ()]
    words = f"part{'s' if len(units) > 1 else ''} {', '.join(units)} of the shared model"
    return [("Looked at by", format_html("{}", words))] if units else []


def _list_column_facts(finding: AuditJson) -> list[tuple[str, Html]]:
    """What is left of the difference within groups of known columns."""
    parts = []
    for name, one in (finding.get("within") or {}).items():
        if one["shared"] == 0:
            parts.append(f"{name}: no other site has such images, so it cannot be told apart")
            continue
        word = "explained by" if name in finding.get("explained_by", ()) else "not explained by"
        parts.append(
            f"{word} {name}: within its groups {format_value(one['effect'], 1)} of "
            f"{format_value(one['whole'], 1)} standard deviations are left, p "
            f"{format_p_value(one['p_value'])}"
        )
    end = ". Whether what a column explains is bias, images cannot tell."
    return [("Known columns", format_html("{}", "; ".join(parts) + end))] if parts else []


def _list_subspace_facts(finding: AuditJson) -> list[tuple[str, Html]]:
    """How far the site's subspace of the class is from the one the sites agreed on."""
    deviation = finding.get("subspace")
    if deviation is None:
        return []
    sentence = format_html(
        "the site's own is {} from the agreed one, {} robust standard deviations beyond the median "
        "of all sites.",
        format_number(deviation["distance"], 2),
        format_number(deviation["excess"], 1),
    )
    return [("Subspace of the class", sentence)]


NO_PROOF = (
    "At no place of the image, nor in it as a whole, does a class stand out at one site as it does "
    "at no other. That is no proof that there is no bias: weak marks and small sites are missed."
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


def render_readings(reading: str) -> Html:
    """The reading that the numbers support, or a shortcut and a minority where they decide for
    none."""
    cards = []
    for name in [reading] if reading in READINGS else ["shortcut", "minority"]:
        title, text = READINGS[name]
        head = f"{title}: what the numbers support" if name == reading else title
        cards.append(el("div", el("h4", head), text, class_="yes" if name == reading else None))
    neither = el("p", NEITHER) if reading == "open" else None
    return join([neither, el("div", *cards, class_="readings")])


def _format_points(share: float) -> str:
    text = format_number(100 * share, 0)
    return f"{'+' if text[0].isdigit() and text != '0' else ''}{text} points"
