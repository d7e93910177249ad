"""The audit of one site on its own images, against what the other sites told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitrail.audit.counterfactual.effects import Probe, probe
from vitrail.audit.counterfactual.prototype_evidence import collect_unit_evidence
from vitrail.audit.counterfactual.reliance import compute_reliance
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.null_distribution import NullDistribution, load_shipped_null
from vitrail.audit.finding import Finding, decide_verdict
from vitrail.audit.place_words import compute_original_box, describe_place
from vitrail.audit.site_view import SiteView, compute_logits
from vitrail.metrics.method_tests import holm
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
    standing: Sequence[Contrast],
    key: Key,
    null: NullDistribution | None = None,
    tell: Callable[[str], None] | None = None,
) -> SiteAudit:
    """Say how sure each contrast is, and what its region does to the site's models."""
    null = null or load_shipped_null()
    tried: list[tuple[Contrast, Probe]] = []
    for contrast in standing:
        if tell is not None:
            tell(f"{view.site}: {view.classes[contrast.label]}")
        result = probe(view, contrast, key.at(contrast.label))
        if result is not None:
            tried.append((contrast, result))
    raw = [null.p_value(contrast.score) for contrast, _ in tried]
    relies = compute_reliance([result for _, result in tried])
    findings = [
        _make_finding(view, contrast, result, far, (p, corrected))
        for (contrast, result), far, p, corrected in zip(tried, relies, raw, holm(raw), strict=True)
    ]
    findings.sort(key=lambda f: -f.score)
    known = {contrast.label for contrast, _ in tried}
    skipped = tuple(name for label, name in enumerate(view.classes) if label not in known)
    return SiteAudit(view.site, tuple(findings), compute_alarm(view), skipped)


def _make_finding(
    view: SiteView, contrast: Contrast, result: Probe, relies: float, p_values: tuple[float, float]
) -> Finding:
    region, rows = result.effect.region, tuple(result.donors.tolist())
    p, corrected = p_values
    return Finding(
        site=view.site,
        label=view.classes[result.label],
        score=contrast.score,
        relies=relies,
        here=contrast.here,
        elsewhere=contrast.elsewhere,
        p_value=corrected,
        raw_p=p,
        verdict=decide_verdict(corrected, p),
        place=region,
        box=None if region.kind == "anywhere" else compute_original_box(view, rows, region.boxes),
        where=describe_place(region, (view.images.shape[1], view.images.shape[2])),
        swapped=result.effect.swapped,
        flipped=result.effect.flipped,
        covered=result.covered,
        rows=rows,
        units=collect_unit_evidence(view, result),
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
