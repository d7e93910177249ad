"""What an audit says about one class of one site, in numbers and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from vitrail.audit.counterfactual.effects import CoveringEffect
from vitrail.audit.counterfactual.prototype_evidence import UnitEvidence
from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.detection.contrast import Verdict
from vitrail.audit.detection.strata import WithinGroups
from vitrail.explain.evidence import Box

Reading = Literal[
    "shortcut", "minority", "acquisition", "unused", "common", "lacks", "open", "none"
]
VERDICT_WORDS: dict[Verdict, str] = {
    "clear": "no bias seen",
    "differs": "differs",
    "biased": "biased",
}
_CONTENT = ("map", "map as a whole", "parts anywhere")  # families that see what is shown
_NEEDED = 0.5  # of the right answers lost without the place, or of other images won by it
_SPARE = 0.1  # at most so much lost and won: the model does not need it
_MOVED = 1.0  # nats of log-odds: what moves an answer by more is used, whatever the answer
_KEPT = 0.25  # at most so much lost and won for a minority
_COMMON = 0.5  # of the shift that the site's other classes have too: no matter of one class


@dataclass(frozen=True)
class Finding:
    """One class of one site: score, p-value, verdict, place, and the counterfactuals behind it.

    `effect` says how far the class's images lie from the same class at the other sites, in
    standard deviations of one image there; `limit` how far the classes of honest sites would lie,
    by all other pairs; `score` how far out it is, 1 at the limit. `family` is the kind of feature
    it shows in, `common` the share of the shift that the site's other classes have as well, and
    `lacks` says that the other sites have something that this one has not. `relies` is how much
    more the region moves the site's own model than random regions do and than it moves the shared
    model, in standard deviations. `raw_p` is exact; `p_value` is it corrected for every class of
    every site; `within` says what is left of the difference within the groups of known columns.
    `place` is the region with a box for each of `rows` (positions among the view's images) in
    pixels of the run's images; `box` the median over them in pixels of the originals, None for
    image-wide ones; `where` says it in words. `units` are the shared model's prototypes of the
    class; `look` is how the class looks at the other sites, for whoever harmonizes.
    """

    site: str
    label: str
    score: float
    relies: float
    effect: float
    limit: float
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
    family: str = ""
    common: float = 0.0
    lacks: bool = False
    within: Mapping[str, WithinGroups] = field(default_factory=dict)
    look: tuple[float, ...] = ()

    @property
    def region(self) -> str:
        """How tables call the region."""
        return self.place.kind

    @property
    def explained(self) -> tuple[str, ...]:
        """The known columns that explain the difference."""
        return tuple(name for name, one in self.within.items() if one.explains)

    @property
    def prototypes(self) -> tuple[int, ...]:
        """The prototypes of the shared model that look at the place, where there is a doubt."""
        return tuple(u.unit for u in self.units if u.named and self.verdict != "clear")

    @property
    def reading(self) -> Reading:
        """What the numbers support.

        `lacks`: the other sites have what this one has not. `common`: all classes of the site have
        it, so it does not tell the class. `shortcut`: without the place the own model loses more
        than half of its right answers, or the place alone wins it half of the other images.
        `acquisition`: the image as a whole differs. `unused`: a mark is there, and neither model
        needs it today: hardly an answer changes with it, and no log-odds by more than 1.
        `minority`: nothing stands out at any place; what the images contain differs as a whole,
        and the model recognizes the class without it. `open`: somebody has to look.
        """
        if self.verdict == "clear":
            return "none"
        if self.lacks:
            return "lacks"
        if self.common > _COMMON:
            return "common"
        lost, gone = (_compute_loss(self.covered[name]) for name in ("local", "shared"))
        won = max(self.flipped["local"], self.flipped["shared"])
        if lost > _NEEDED or won >= _NEEDED:
            return "shortcut"
        if self.place.kind == "color":
            if self.family not in _CONTENT:
                return "acquisition"
            return "minority" if max(lost, gone, won) <= _KEPT else "open"
        moved = [self.swapped[n] for n in ("local", "shared")]
        moved += [self.covered[n].drop for n in ("local", "shared")]
        spare = max(lost, gone, won) <= _SPARE and max(moved) <= _MOVED
        return "unused" if self.place.sharp and spare else "open"

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
            f"At {self.site}, {self.label} differs from the same class elsewhere in {self.spot}, "
            f"by {self.effect:.1f} standard deviations. Put into images of other classes, the "
            f"share that the site's own model takes for {self.label} "
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
            "effect": self.effect,
            "limit": self.limit if np.isfinite(self.limit) else None,
            "family": self.family,
            "common": self.common,
            "lacks": self.lacks,
            "explained_by": list(self.explained),
            "within": {name: one.to_json() for name, one in self.within.items()},
            "look": list(self.look) if self.verdict != "clear" else [],
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


def _compute_loss(covered: CoveringEffect) -> float:
    """The share of right answers that covering takes."""
    return 1 - covered.without / covered.accuracy if covered.accuracy > 0 else 0.0


def _describe_change(share: float) -> str:
    """A change of a share, in words."""
    points = round(100 * share)
    if points == 0:
        return "stays as it is"
    return f"{'rises' if points > 0 else 'falls'} by {abs(points)} points"
