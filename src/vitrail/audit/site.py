"""The audit of one site on its own images, against what the other sites told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vitrail.audit.contrast import Contrast
from vitrail.audit.desk import Desk, logits
from vitrail.audit.effects import covered, probe
from vitrail.audit.finding import Finding, verdict_of
from vitrail.audit.null import Null, holm, shipped
from vitrail.audit.place import original, words
from vitrail.audit.score import Scored, scores
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
    probes, known = [], {}
    for contrast in standing:
        if tell is not None:
            tell(f"{desk.site}: {desk.classes[contrast.label]}")
        found = probe(desk, contrast.label, key.at(contrast.label), contrast)
        if found is not None:
            probes.append(found)
            known[contrast.label] = contrast
    raw = [null.p_value(contrast.score) for contrast in known.values()]
    findings = [
        _finding(desk, item, known[item.probe.label], p, corrected)
        for item, p, corrected in zip(scores(probes), raw, holm(raw), strict=True)
    ]
    findings.sort(key=lambda f: -f.score)
    skipped = tuple(name for label, name in enumerate(desk.classes) if label not in known)
    return SiteAudit(desk.site, tuple(findings), alarm(desk), skipped)


def _finding(desk: Desk, item: Scored, contrast: Contrast, p: float, corrected: float) -> Finding:
    region, rows = item.effect.region, tuple(item.probe.donors.tolist())
    return Finding(
        site=desk.site,
        label=desk.classes[item.probe.label],
        score=contrast.score,
        relies=item.score,
        here=contrast.here,
        elsewhere=contrast.elsewhere,
        p_value=corrected,
        raw_p=p,
        verdict=verdict_of(corrected, p),
        place=region,
        box=None if region.kind == "anywhere" else original(desk, rows, region.boxes),
        where=words(region, (desk.images.shape[1], desk.images.shape[2])),
        swapped=item.effect.swapped,
        flipped=item.effect.flipped,
        covered=covered(desk, item.probe, region),
        rows=rows,
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
