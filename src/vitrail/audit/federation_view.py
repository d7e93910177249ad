"""The federation's view: which sites suspect what, who is the likely origin, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vitrail.audit.consensus import SubspaceDeviation
from vitrail.audit.detection.null_distribution import NullDistribution
from vitrail.audit.finding import SIGNIFICANCE_LEVEL, Finding, Verdict, decide_verdict
from vitrail.audit.site_audit import SiteAudit
from vitrail.metrics.method_tests import holm

_SURE = 2.0  # standard errors by which a class must be worse for another site to notice


@dataclass(frozen=True)
class Audit:
    """All sites' audits side by side. `origin` is the worst biased site, if there is one."""

    sites: tuple[SiteAudit, ...]
    null: NullDistribution | None = None  # what the p-values were read from
    config: str | None = None  # which configuration was audited, for those who act on it
    standings: tuple[SubspaceDeviation, ...] = ()  # of subspaces, where the server averages some

    @property
    def worst(self) -> Finding | None:
        """The finding with the largest score among those that survive all corrections."""
        biased = [f for site in self.sites for f in site.findings if self.verdict(f) == "biased"]
        return max(biased, key=lambda f: f.score, default=None)

    @property
    def origin(self) -> str | None:
        """The site the bias most likely comes from."""
        return None if self.worst is None else self.worst.site

    def p_value(self, finding: Finding) -> float:
        """Corrected for every class of every site, so that a federation errs in 1 of 20 at most."""
        everything = [f for site in self.sites for f in site.findings]
        return dict(zip(map(id, everything), holm([f.raw_p for f in everything])))[id(finding)]

    def verdict(self, finding: Finding) -> Verdict:
        """The verdict after correction over the whole federation."""
        return decide_verdict(self.p_value(finding), finding.raw_p)

    def find_affected_sites(self, finding: Finding) -> list[str]:
        """The site itself, and sites at which the shared model is worse at that class."""
        affected = [finding.site]
        for site in self.sites:
            gap = site.alarm.by_class.get(finding.label, 0.0)
            if site.site != finding.site and gap < -_SURE * site.alarm.error(finding.label):
                affected.append(site.site)
        return affected

    def find_deviation(self, finding: Finding) -> SubspaceDeviation | None:
        """How far the site's subspace of the class is from the agreed one: evidence, no verdict."""
        deviations = (one for one in self.standings if (one.site, one.label) == _make_key(finding))
        return next(deviations, None)

    def action(self, finding: Finding) -> str:
        """What the numbers suggest, and at which site, in a few words; people decide."""
        if self.verdict(finding) == "clear":
            return "stay"
        site = finding.site
        if finding.reading == "minority":
            return f"personalize at {site}: the feature is its own and helps there"
        spread = len(self.find_affected_sites(finding)) > 1
        clean = f"leave {site} out until they are clean" if spread else f"clean them at {site}"
        if finding.reading == "open":
            return (
                f"look at these images at {site}: if a mark shows that is no part of "
                f"{finding.label}, {clean}; if the feature is real, personalize there"
            )
        if spread:
            return f"leave {site} out until its images are clean"
        return f"clean these images at {site}"

    def to_json(self) -> dict[str, Any]:
        """The form that other programs read."""
        listed = []
        for site in self.sites:
            classes = []
            seen: list[str] = []
            for finding in site.findings:
                entry = finding.to_json()
                entry["p_value"], entry["verdict"] = self.p_value(finding), self.verdict(finding)
                entry["action"] = self.action(finding)
                one = self.find_deviation(finding)
                if one is not None:
                    entry["subspace"] = {"distance": one.distance, "excess": one.excess}
                classes.append(entry)
                if entry["verdict"] != "clear":
                    seen += [s for s in self.find_affected_sites(finding) if s not in seen]
            listed.append(
                {
                    "site": site.site,
                    "seen_by": seen,
                    "classes": classes,
                    "alarm": vars(site.alarm),
                    "skipped": list(site.skipped),
                }
            )
        about = None if self.null is None else self.null.about
        return {
            "origin": self.origin,
            "level": SIGNIFICANCE_LEVEL,
            "null": about,
            "config": self.config,
            "sites": listed,
        }


def _make_key(finding: Finding) -> tuple[str, str]:
    return finding.site, finding.label


def combine_audits(
    audits: Sequence[SiteAudit],
    null: NullDistribution | None = None,
    config: str | None = None,
    standings: Sequence[SubspaceDeviation] = (),
) -> Audit:
    """Sites' audits as one view."""
    return Audit(tuple(audits), null, config, tuple(standings))
