"""Which remedies a finding calls for: they follow its reading, the cheapest first."""

from __future__ import annotations

from vitrail.audit.finding import Finding
from vitrail.config.debias_section import Remedy


def list_remedies(finding: Finding) -> tuple[Remedy, ...]:
    """None for what is not biased, for what the others have and this site lacks, for what a known
    column explains, and for readings under which a remedy would take away what is real or what
    the model does not use."""
    if finding.verdict != "biased" or finding.lacks or finding.explained:
        return ()
    if finding.reading == "acquisition":
        return _keep_possible(finding, ("harmonize", "weigh", "leave-out"))
    if finding.reading == "shortcut":
        first: Remedy = "harmonize" if finding.place.kind == "color" else "mask"
        return _keep_possible(finding, (first, "mix", "weigh", "leave-out"))
    if finding.reading == "open":
        return _keep_possible(finding, ("mix", "weigh"))
    return ()


def _keep_possible(finding: Finding, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """Without those that lack what they need: numbers of prototypes, prototypes, a look."""
    points = {unit.unit for unit in finding.units if unit.is_point}
    lacking = {
        "mask": not points & set(finding.prototypes),
        "mix": not points,
        "harmonize": not finding.look,
    }
    return tuple(name for name in remedies if not lacking.get(name, False))
