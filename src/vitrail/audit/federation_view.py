"""The federation's view: which sites suspect what, who is the likely origin, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vitrail.audit.consensus import SubspaceDeviation
from vitrail.audit.detection.contrast import SIGNIFICANCE_LEVEL, Verdict
from vitrail.audit.finding import Finding
from vitrail.audit.remedy_choice import list_remedies
from vitrail.audit.site_audit import Alarm, SiteAudit
from vitrail.audit.update_alarms import UpdateAlarms

if TYPE_CHECKING:
    from vitrail.audit.remedy_trial import RemedyTrial

NULL = (
    "permutations of this federation's own images over its sites (half B), along directions "
    "chosen on other images (half A)"
)
_SURE = 2.0  # standard errors by which a class must be worse for another site to notice


@dataclass(frozen=True)
class Audit:
    """All sites' audits side by side. `origin` is the worst biased site, if there is one."""

    sites: tuple[SiteAudit, ...]
    null: str = NULL  # what the p-values say
    config: str | None = None  # which configuration was audited, for those who act on it
    standings: tuple[SubspaceDeviation, ...] = ()  # of subspaces, where the server averages some
    trial: RemedyTrial | None = None  # remedies that were tried
    doubts: Mapping[str, str] = field(default_factory=dict)  # sites whose halves contradict
    updates: UpdateAlarms | None = None  # how odd each site's updates were to the server

    @property
    def worst(self) -> Finding | None:
        """The biased finding with the largest score, at a site that has what others lack."""
        everything = (f for site in self.sites for f in site.findings)
        biased = [f for f in everything if f.verdict == "biased" and not f.lacks]
        return max(biased, key=lambda f: f.score, default=None)

    @property
    def origin(self) -> str | None:
        """The site the bias most likely comes from."""
        return None if self.worst is None else self.worst.site

    @property
    def tested(self) -> int:
        """How many classes of how many sites were tested, together."""
        return sum(len(site.findings) for site in self.sites)

    @property
    def skipped(self) -> int:
        """How many classes of sites were not: too few images, here or elsewhere."""
        return sum(len(site.skipped) for site in self.sites)

    def p_value(self, finding: Finding) -> float:
        """Corrected for every class of every site, so that a federation errs in 1 of 20 at most."""
        return finding.p_value

    def verdict(self, finding: Finding) -> Verdict:
        """The same at the site and for the federation."""
        return finding.verdict

    def find_affected_sites(self, finding: Finding) -> list[str]:
        """The site itself, and sites at which the shared model is worse at that class."""
        alarms = {site.site: site.alarm for site in self.sites}
        return [finding.site, *find_noticing_sites(alarms, *_make_key(finding))]

    def find_deviation(self, finding: Finding) -> SubspaceDeviation | None:
        """How far the site's subspace of the class is from the agreed one: evidence, no verdict."""
        deviations = (one for one in self.standings if (one.site, one.label) == _make_key(finding))
        return next(deviations, None)

    def action(self, finding: Finding) -> str:
        """What the numbers suggest, and at which site, in a few words; people decide."""
        site, label = finding.site, finding.label
        if finding.verdict == "clear":
            return "stay"
        if finding.explained:
            columns = ", ".join(finding.explained)
            return (
                f"look at how {label} was collected at {site}: the difference is explained by "
                f"{columns}; whether that is bias, images cannot tell"
            )
        spread = len(self.find_affected_sites(finding)) > 1
        clean = f"leave {site} out until they are clean" if spread else f"clean them at {site}"
        by_reading = {
            "lacks": f"look at the other sites: {site} lacks what their images of {label} have",
            "common": f"harmonize the images of {site}: all its classes differ, not {label} alone",
            "acquisition": f"harmonize how images of {label} are taken or stored at {site}, "
            "then train again",
            "unused": f"look at these images at {site} and clean them: a mark is there that the "
            "models do not need today",
            "minority": f"look at these images at {site}: they differ as a whole and at no one "
            "place; if what they contain is real, personalize there",
            "open": f"look at these images at {site}: if a mark shows that is no part of "
            f"{label}, {clean}; only if the feature is real, personalize there",
        }
        if finding.reading in by_reading:
            return by_reading[finding.reading]
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
                entry["plan"] = list(list_remedies(finding))
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
        return {
            "origin": self.origin,
            "tested": self.tested,
            "skipped": self.skipped,
            "level": SIGNIFICANCE_LEVEL,
            "null": self.null,
            "config": self.config,
            "sites": listed,
            "doubts": dict(self.doubts),
            **({} if self.updates is None else {"updates": self.updates.to_json()}),
            **({} if self.trial is None else {"trial": self.trial.to_json()}),
        }


def find_noticing_sites(alarms: Mapping[str, Alarm], origin: str, label: str) -> list[str]:
    """The other sites at which the shared model is surely worse at a class than their own."""
    return [
        site
        for site, alarm in alarms.items()
        if site != origin and alarm.by_class.get(label, 0.0) < -_SURE * alarm.error(label)
    ]


def _make_key(finding: Finding) -> tuple[str, str]:
    return finding.site, finding.label


def combine_audits(
    audits: Sequence[SiteAudit],
    config: str | None = None,
    standings: Sequence[SubspaceDeviation] = (),
) -> Audit:
    """Sites' audits as one view."""
    return Audit(tuple(audits), config=config, standings=tuple(standings))
