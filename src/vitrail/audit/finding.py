"""What an audit says about one class of one site, in numbers and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from vitrail.audit.counterfactual.effects import CoveringEffect
from vitrail.audit.counterfactual.prototype_evidence import UnitEvidence
from vitrail.audit.counterfactual.regions import Region
from vitrail.explain.evidence import Box

Verdict = Literal["clear", "suspect", "biased"]
Reading = Literal["shortcut", "minority", "open", "none"]
SIGNIFICANCE_LEVEL = 0.05
VERDICT_WORDS: dict[Verdict, str] = {
    "clear": "no bias seen",
    "suspect": "suspect",
    "biased": "biased",
}


@dataclass(frozen=True)
class Finding:
    """One class of one site: score, p-value, verdict, place, and the counterfactuals behind it.

    `score` says how much better this place alone tells the class here than at the other sites
    (`here` and `elsewhere`, areas under the curve), in standard errors; `relies` how much more
    the region moves the site's own model than random regions do and than it moves the shared
    model, in standard deviations.
    `p_value` is corrected for the number of classes the site has. `place` is the region with a
    box for each of `rows` (positions among the view's images) in pixels of the run's images;
    `box` the median over them in pixels of the originals, None for image-wide shortcuts; `where`
    says it in words. `units` are the shared model's prototypes of the class, one by one.
    """

    site: str
    label: str
    score: float
    relies: float
    here: float
    elsewhere: float
    p_value: float
    raw_p: float
    verdict: Verdict
    place: Region
    box: Box | None
    where: str
    swapped: dict[str, float]
    flipped: dict[str, float]
    covered: dict[str, CoveringEffect]
    rows: tuple[int, ...]
    units: tuple[UnitEvidence, ...] = ()

    @property
    def region(self) -> str:
        """How tables call the region."""
        return self.place.kind

    @property
    def prototypes(self) -> tuple[int, ...]:
        """The prototypes of the shared model that look at the place, where there is a doubt."""
        return tuple(u.unit for u in self.units if u.named and self.verdict != "clear")

    @property
    def reading(self) -> Reading:
        """What the numbers support: a shortcut that fails without the mark (more than half of the
        right answers are lost), a feature only this site has that is not all its model knows (at
        most a quarter is lost), or neither: then somebody has to look."""
        if self.verdict == "clear":
            return "none"
        local = self.covered["local"]
        if local.without < local.accuracy / 2:
            return "shortcut"
        return "minority" if local.without >= 0.75 * local.accuracy else "open"

    @property
    def spot(self) -> str:
        """The place in words, with its pixels."""
        if self.box is None:
            return self.where
        x0, y0, x1, y1 = self.box
        return f"{self.where} (pixels {x0} to {x1} across, {y0} to {y1} down)"

    @property
    def sentence(self) -> str:
        """For a clinician."""
        if self.verdict == "clear":
            return f"No bias seen in {self.label} at {self.site}."
        local, shared = self.covered["local"], self.covered["shared"]
        return (
            f"At {self.site}, {self.spot} alone makes the site's own model say {self.label}: put "
            f"into images of other classes, the share of them taken for it "
            f"{_describe_change(self.flipped['local'])} (shared model: "
            f"{_describe_change(self.flipped['shared'])}); "
            f"{self.undone}, that model is right in {100 * local.without:.0f} % of the images of "
            f"{self.label} instead of {100 * local.accuracy:.0f} % (shared model: "
            f"{100 * shared.without:.0f} % instead of {100 * shared.accuracy:.0f} %)."
        )

    @property
    def undone(self) -> str:
        """What was done to see the class without the region."""
        return "undone" if self.place.kind == "color" else "covered"

    def to_json(self) -> dict[str, Any]:
        """The form of the audit's JSON, with the numbers behind the verdict beside it."""
        return {
            "class": self.label,
            "score": round(self.score, 4),
            "p_value": self.p_value,
            "verdict": self.verdict,
            "box": None if self.box is None else list(self.box),
            "prototypes": list(self.prototypes),
            "raw_p": self.raw_p,
            "here": self.here,
            "elsewhere": self.elsewhere,
            "relies": self.relies,
            "region": self.region,
            "where": self.where,
            "images": len(self.rows),
            "reading": self.reading,
            "swapped": self.swapped,
            "flipped": self.flipped,
            "covered": {name: vars(value) for name, value in self.covered.items()},
            "units": [unit.to_json() for unit in self.units],
            "sentence": self.sentence,
        }


def _describe_change(share: float) -> str:
    """A change of a share, in words."""
    points = round(100 * share)
    if points == 0:
        return "stays as it is"
    return f"{'rises' if points > 0 else 'falls'} by {abs(points)} points"


def decide_verdict(p_value: float, raw_p: float) -> Verdict:
    """Biased if it survives the correction, suspect if only before it."""
    if p_value < SIGNIFICANCE_LEVEL:
        return "biased"
    return "suspect" if raw_p < SIGNIFICANCE_LEVEL else "clear"
