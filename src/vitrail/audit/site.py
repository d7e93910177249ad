"""The audit of one site, by itself, on its own images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

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
    desk: Desk, key: Key, null: Null | None = None, tell: Callable[[str], None] | None = None
) -> SiteAudit:
    """Probe every class of a site, score it, and say how sure that is."""
    null = null or shipped()
    probes, skipped = [], []
    for label, name in enumerate(desk.classes):
        if tell is not None:
            tell(f"{desk.site}: {name}")
        found = probe(desk, label, key.at(label))
        if found is None:
            skipped.append(name)
        else:
            probes.append(found)
    scored = scores(probes)
    raw = [null.p_value(s.score) for s in scored]
    findings = [
        _finding(desk, item, p, corrected)
        for item, p, corrected in zip(scored, raw, holm(raw), strict=True)
    ]
    findings.sort(key=lambda f: -f.score)
    return SiteAudit(desk.site, tuple(findings), alarm(desk), tuple(skipped))


def _finding(desk: Desk, item: Scored, p: float, corrected: float) -> Finding:
    region, rows = item.effect.region, tuple(item.probe.donors.tolist())
    return Finding(
        site=desk.site,
        label=desk.classes[item.probe.label],
        score=item.score,
        p_value=corrected,
        raw_p=p,
        verdict=verdict_of(corrected, p),
        place=region,
        box=original(desk, rows, region.boxes),
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
