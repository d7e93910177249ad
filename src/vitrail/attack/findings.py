"""What attacks bring home: images with scores, patches, members, matches; as lines and as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from vitrail.attack.identification import Identification
from vitrail.attack.image_scores import Score
from vitrail.attack.threat_model import ThreatModel


@dataclass(frozen=True)
class Row:
    """One line of a table: an attack (or a reference) and how near its images come."""

    name: str
    scores: tuple[Score, ...]
    threat: ThreatModel | None = None
    label_recovery: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    loss: float | None = None
    images: Tensor | None = None  # [N, C, H, W], in the order of `scores`
    note: str = ""
    identification: Identification | None = None
    planned: int = 0  # iterations of the whole search, where a budget ended it before

    @property
    def is_reference(self) -> bool:
        """Whether it needs no attack: there is nobody who would have to know anything."""
        return self.threat is None

    def mean(self, metric: str) -> float:
        """The mean of a metric over the images."""
        return statistics.fmean(float(getattr(s, metric)) for s in self.scores)

    def spread(self, metric: str) -> float:
        """Its standard deviation over the images; 0 for a single one."""
        values = [float(getattr(s, metric)) for s in self.scores]
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """All of it but the pixels."""
        line: dict[str, Any] = {
            "attack": self.name,
            "images": len(self.scores),
            **{name: self.mean(name) for name in ("psnr", "ssim", "mse", "identified")},
            "psnr_sd": self.spread("psnr"),
            "label_recovery": self.label_recovery,
            "iterations": self.iterations,
            "seconds": round(self.seconds, 3),
            "loss": self.loss,
            "note": self.note,
            "scores": [s.to_json() for s in self.scores],
        }
        if self.identification is not None:
            line["identification"] = self.identification.to_json()
        if self.planned:
            line["planned"] = self.planned
        if self.threat is not None:
            line["threat"] = self.threat.to_json()
        return line


@dataclass(frozen=True)
class PatchRow:
    """How near found patches come to the site's own patches, as means over the units.

    `psnr` and `ssim` compare the place where the found image excites the unit with the place of
    the site's images that does so most. `reached` is the found activation over the true one, for
    units that some patch of the site excites; None where none does.
    """

    name: str
    units: int
    psnr: float
    ssim: float
    reached: float | None
    iterations: int = 0

    def sentence(self) -> str:
        """All of it in words."""
        text = f"{self.name}: PSNR {self.psnr:.1f} dB, SSIM {self.ssim:.2f} over {self.units} units"
        if self.reached is None:
            return text
        return f"{text}, {self.reached:.2f} of the true patch's activation"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


def estimate_area_error(area: float, members: int, others: int) -> float:
    """The standard error of an area under the curve (Hanley and McNeil 1982); for an area of 0 or 1
    that of the nearest one that so few images can tell apart."""
    if not members or not others:
        return math.inf
    step = 0.5 / (members * others)
    a = min(max(area, step), 1 - step)
    both, twice = a / (2 - a), 2 * a * a / (1 + a)
    variance = a * (1 - a) + (members - 1) * (both - a * a) + (others - 1) * (twice - a * a)
    return math.sqrt(max(0.0, variance) / (members * others))


@dataclass(frozen=True)
class MembershipResult:
    """How well members are told from others: area under the curve, and what is certain.

    `tpr` is the share of members found while at most `fpr` of the others are accused.
    """

    name: str
    target: str
    members: int
    others: int
    auc: float
    tpr: float
    fpr: float = 0.01

    @property
    def is_tpr_known(self) -> bool:
        """Whether there are enough others for a false alarm to be that rare."""
        return self.others * self.fpr >= 1

    @property
    def interval(self) -> tuple[float, float]:
        """Where the area would lie over other candidates, in 95 of 100 draws."""
        error = 1.96 * estimate_area_error(self.auc, self.members, self.others)
        return max(0.0, self.auc - error), min(1.0, self.auc + error)

    def sentence(self) -> str:
        """All of it in words; what so few images cannot tell is said."""
        low, high = self.interval
        area = f"AUC {self.auc:.3f} (95 % interval {low:.2f} to {high:.2f}"
        area += "; chance, 0.5, is in it)" if low <= 0.5 <= high else ")"
        alarms = f"{100 * self.fpr:.0f} % false alarms"
        found = f"{100 * self.tpr:.1f} % of members found at {alarms}"
        if not self.is_tpr_known:
            least = math.ceil(1 / self.fpr)
            found = f"how many members are found at {alarms} cannot be told below {least} others"
        return (
            f"{self.target}, {self.name}: {area}, {found} ({self.members} members, {self.others} "
            "others)"
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


@dataclass(frozen=True)
class Matching:
    """How often the nearest of `candidates` to a shared image is the one it was made of."""

    norm: str
    images: int
    candidates: int
    found: float

    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"direct matching, {self.norm}: {100 * self.found:.1f} % of {self.images} shared "
            f"images find their original among {self.candidates} (chance "
            f"{100 / self.candidates:.2g} %)"
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return dict(vars(self))


class PrivacyAudit(Protocol):
    """A bound on epsilon that guesses proved."""

    def sentence(self) -> str:
        """All of it in words."""

    def to_json(self) -> dict[str, Any]:
        """All numbers."""


@dataclass(frozen=True)
class Findings:
    """What came of an attack, or of several: any of these parts, and nothing of the others."""

    rows: tuple[Row, ...] = ()
    truth: Tensor = field(default_factory=lambda: torch.empty(0))
    """The image [N, C, H, W] that each score of a row was measured against."""
    label_recovery: float | None = None
    patches: Mapping[str, Sequence[PatchRow]] = field(default_factory=dict)
    """By site."""
    members: tuple[MembershipResult, ...] = ()
    matchings: tuple[Matching, ...] = ()
    audits: tuple[PrivacyAudit, ...] = ()

    def merge(self, other: Findings) -> Findings:
        """These, then those of another attack; references that both have stand there once."""
        known = {row.name for row in self.rows if row.is_reference}
        fresh = (row for row in other.rows if not (row.is_reference and row.name in known))
        share = other.label_recovery
        return Findings(
            rows=(*self.rows, *fresh),
            truth=other.truth if len(other.truth) else self.truth,
            label_recovery=self.label_recovery if share is None else share,
            patches={**self.patches, **other.patches},
            members=(*self.members, *other.members),
            matchings=(*self.matchings, *other.matchings),
            audits=(*self.audits, *other.audits),
        )

    def lines(self) -> list[str]:
        """What a person should know besides the table."""
        lines = [f"{row.name}: {row.threat.sentence()}" for row in self.rows if row.threat]
        lines += [
            f"{row.name}: the budget ended it at {row.iterations:,} of {row.planned:,} steps: it "
            "says nothing about what a whole search would get"
            for row in self.rows
            if row.planned
        ]
        if self.label_recovery is not None:
            share = 100 * self.label_recovery
            lines.append(f"labels read off the update without any search: {share:.0f} % right")
        for site, rows in self.patches.items():
            lines += [f"{site}, {row.sentence()}" for row in rows]
        lines += [result.sentence() for result in self.members]
        lines += [matching.sentence() for matching in self.matchings]
        lines += [audit.sentence() for audit in self.audits]
        return lines

    def to_json(self) -> dict[str, Any]:
        """All numbers, without pixels."""
        return {
            "label_recovery": self.label_recovery,
            "rows": [row.to_json() for row in self.rows],
            "patches": {
                site: [row.to_json() for row in rows] for site, rows in self.patches.items()
            },
            "members": [result.to_json() for result in self.members],
            "matchings": [matching.to_json() for matching in self.matchings],
            **({"audits": [audit.to_json() for audit in self.audits]} if self.audits else {}),
        }
