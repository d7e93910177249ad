"""The audit of one site on its own images, against what the other sites told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitrail.audit.contrast import Contrast
from vitrail.audit.desk import Desk, logits
from vitrail.audit.effects import Probe, probe
from vitrail.audit.finding import Finding, verdict_of
from vitrail.audit.null import Null, holm, shipped
from vitrail.audit.place import original, words
from vitrail.audit.reliance import reliance
from vitrail.audit.units import units_of
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
        own = self.images.get(label, 0)
        return self.spread * float(np.sqrt(sum(self.images.values()) / own)) if own > 1 else np.inf


@dataclass(frozen=True)
class SiteAudit:
    """All findings of a site, worst first, and its alarm; `skipped` classes had too few images."""

    site: str
    findings: tuple[Finding, ...]
    alarm: Alarm
    skipped: tuple[str, ...]


def audit_site(
    desk: Desk,
    standing: Sequence[Contrast],
    key: Key,
    null: Null | None = None,
    tell: Callable[[str], None] | None = None,
) -> SiteAudit:
    """Say how sure each contrast is, and what its region does to the site's models."""
    null = null or shipped()
    tried: list[tuple[Contrast, Probe]] = []
    for contrast in standing:
        if tell is not None:
            tell(f"{desk.site}: {desk.classes[contrast.label]}")
        found = probe(desk, contrast, key.at(contrast.label))
        if found is not None:
            tried.append((contrast, found))
    raw = [null.p_value(contrast.score) for contrast, _ in tried]
    relies = reliance([found for _, found in tried])
    findings = [
        _finding(desk, contrast, found, far, (p, corrected))
        for (contrast, found), far, p, corrected in zip(tried, relies, raw, holm(raw), strict=True)
    ]
    findings.sort(key=lambda f: -f.score)
    known = {contrast.label for contrast, _ in tried}
    skipped = tuple(name for label, name in enumerate(desk.classes) if label not in known)
    return SiteAudit(desk.site, tuple(findings), alarm(desk), skipped)


def _finding(
    desk: Desk, contrast: Contrast, found: Probe, relies: float, p_values: tuple[float, float]
) -> Finding:
    region, rows = found.effect.region, tuple(found.donors.tolist())
    p, corrected = p_values
    return Finding(
        site=desk.site,
        label=desk.classes[found.label],
        score=contrast.score,
        relies=relies,
        here=contrast.here,
        elsewhere=contrast.elsewhere,
        p_value=corrected,
        raw_p=p,
        verdict=verdict_of(corrected, p),
        place=region,
        box=None if region.kind == "anywhere" else original(desk, rows, region.boxes),
        where=words(region, (desk.images.shape[1], desk.images.shape[2])),
        swapped=found.effect.swapped,
        flipped=found.effect.flipped,
        covered=found.covered,
        rows=rows,
        units=units_of(desk, found),
    )


def alarm(desk: Desk) -> Alarm:
    """Shared minus local accuracy on the site's images."""
    z = desk.begin(desk.pixels)
    labels = torch.from_numpy(desk.labels)
    right = {n: (logits(m, z).argmax(1) == labels).double() for n, m in desk.models.items()}
    gap = (right["shared"] - right["local"]).numpy()
    by_class = {
        name: float(gap[desk.labels == label].mean())
        for label, name in enumerate(desk.classes)
        if (desk.labels == label).any()
    }
    images = {name: int((desk.labels == desk.classes.index(name)).sum()) for name in by_class}
    spread = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else 0.0
    return Alarm(float(gap.mean()), spread, by_class, images)
