"""The audit of one site on its own images, against what the other sites told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from vitrail.audit.counterfactual.effects import Probe, probe
from vitrail.audit.counterfactual.prototype_evidence import collect_unit_evidence
from vitrail.audit.counterfactual.reliance import compute_reliance
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.strata import WithinGroups
from vitrail.audit.finding import Finding
from vitrail.audit.place_words import compute_original_box, describe_place
from vitrail.audit.site_view import SiteView, compute_logits
from vitrail.rng import Key


@dataclass(frozen=True)
class Alarm:
    """What even an unbiased site sees: how the shared model differs from its own, by class.

    `gap` is the accuracy of the shared model minus that of the local one on own images; `spread`
    its standard error over images; `images` how many there are of each class.
    """

    gap: float
    spread: float
    by_class: dict[str, float]
    images: dict[str, int]

    def error(self, label: str) -> float:
        """The standard error of one class's gap, from the spread over all images; one image of
        a class tells nothing."""
        count = self.images.get(label, 0)
        return (
            self.spread * float(np.sqrt(sum(self.images.values()) / count)) if count > 1 else np.inf
        )


@dataclass(frozen=True)
class SiteAudit:
    """All findings of a site, worst first, and its alarm; `skipped` classes had too few images."""

    site: str
    findings: tuple[Finding, ...]
    alarm: Alarm
    skipped: tuple[str, ...]


def audit_site(
    view: SiteView,
    contrasts: Sequence[Contrast],
    units: Sequence[Unit],
    key: Key,
    tell: Callable[[str], None] | None = None,
    within: Mapping[int, Mapping[str, WithinGroups]] | None = None,
    looks: Mapping[int, tuple[float, ...]] | None = None,
) -> SiteAudit:
    """See what the region of each of a site's contrasts does to its models.

    `within` says, by class and known column, what is left of the difference in the column's
    groups; `looks` how each class looks at the other sites.
    """
    tried: list[tuple[Contrast, Unit, Probe]] = []
    for contrast in contrasts:
        if tell is not None:
            tell(f"{view.site}: {view.classes[contrast.label]}")
        unit = contrast.find_unit(units)
        result = probe(view, contrast.label, unit, key.at(contrast.label))
        if result is not None:
            tried.append((contrast, unit, result))
    relies = compute_reliance([result for *_, result in tried])
    findings = [
        replace(
            _make_finding(view, contrast, unit, result, far),
            within=(within or {}).get(contrast.label, {}),
            look=(looks or {}).get(contrast.label, ()),
        )
        for (contrast, unit, result), far in zip(tried, relies, strict=True)
    ]
    findings.sort(key=lambda f: -f.score)
    known = {contrast.label for contrast, *_ in tried}
    skipped = tuple(name for label, name in enumerate(view.classes) if label not in known)
    return SiteAudit(view.site, tuple(findings), compute_alarm(view), skipped)


def _make_finding(
    view: SiteView,
    contrast: Contrast,
    unit: Unit,
    result: Probe,
    relies: float,
) -> Finding:
    region, rows = result.effect.region, tuple(result.donors.tolist())
    return Finding(
        site=view.site,
        label=view.classes[result.label],
        score=contrast.score,
        relies=relies,
        effect=contrast.effect,
        limit=contrast.limit,
        p_value=contrast.p_value,
        raw_p=contrast.raw_p,
        verdict=contrast.verdict,
        place=region,
        box=None if region.kind == "anywhere" else compute_original_box(view, rows, region.boxes),
        where=describe_place(region, (view.images.shape[1], view.images.shape[2])),
        swapped=result.effect.swapped,
        flipped=result.effect.flipped,
        covered=result.covered,
        rows=rows,
        units=collect_unit_evidence(view, result),
        family=unit.family,
        common=contrast.direction.common,
        lacks=contrast.direction.lacks,
    )


def compute_alarm(view: SiteView) -> Alarm:
    """Shared minus local accuracy on the site's images."""
    z = view.run_frozen_stages(view.pixels)
    labels = torch.from_numpy(view.labels)
    right = {n: (compute_logits(m, z).argmax(1) == labels).double() for n, m in view.models.items()}
    gap = (right["shared"] - right["local"]).numpy()
    by_class = {
        name: float(gap[view.labels == label].mean())
        for label, name in enumerate(view.classes)
        if (view.labels == label).any()
    }
    images = {name: int((view.labels == view.classes.index(name)).sum()) for name in by_class}
    spread = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else 0.0
    return Alarm(float(gap.mean()), spread, by_class, images)
