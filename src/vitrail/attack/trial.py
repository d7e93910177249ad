"""Attacks on a run: scenes from what was recorded, truth from the data source, rows of figures."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitrail.attack.attack import Attack, Recovery
from vitrail.attack.budget import Budget, Job, Tell, quiet
from vitrail.attack.labels import infer, recovered
from vitrail.attack.scene import Scene
from vitrail.attack.scores import Score, score
from vitrail.attack.threat import Labels, ThreatModel
from vitrail.attack.truth import Truth
from vitrail.rng import Key


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

    def mean(self, figure: str) -> float:
        """The mean of a figure over the images."""
        return statistics.fmean(float(getattr(s, figure)) for s in self.scores)

    def spread(self, figure: str) -> float:
        """Its standard deviation over the images; 0 for a single one."""
        values = [float(getattr(s, figure)) for s in self.scores]
        return statistics.stdev(values) if len(values) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """All of it but the pixels."""
        found: dict[str, Any] = {
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
        if self.threat is not None:
            found["threat"] = self.threat.to_json()
        return found


@dataclass(frozen=True)
class Case:
    """A scene and the truth of each of its sites."""

    scene: Scene
    truths: tuple[Truth, ...]

    def labels(self) -> Tensor:
        """The true labels of as many images of each site as are guessed at, [k, n]."""
        return torch.stack([t.labels[: self.scene.count] for t in self.truths])


@dataclass
class Trial:
    """Attacks on cases, with references, a budget, a voice, and a folder for their states."""

    key: Key
    budget: Budget = field(default_factory=Budget)
    tell: Callable[[str], Tell] = field(default=lambda _: quiet)
    state: Path | None = None

    def references(self, cases: Sequence[Case]) -> list[Row]:
        """The rows every table has: another image of the same data, and the mean image."""
        rows = []
        for name in ("random image", "mean image"):
            scores: list[Score] = []
            shown: list[Tensor] = []
            for case in cases:
                for truth in case.truths:
                    guess = (truth.random if name == "random image" else truth.mean)[
                        : case.scene.count
                    ]
                    scores += score(guess, truth.images, truth.others)
                    shown.append(guess)
            rows.append(Row(name, tuple(scores), images=torch.cat(shown)))
        return rows

    def rows(self, attack: Attack, cases: Sequence[Case], labels: str = "both") -> list[Row]:
        """An attack on all cases with labels known, inferred, or both where they differ."""
        found = []
        if labels in ("known", "both"):
            found.append(self._row(attack, cases, "known"))
        share = found[0].label_recovery if found else None
        wrong = share is not None and share < 1.0
        if labels == "inferred" or (labels == "both" and wrong):
            found.append(self._row(attack, cases, "inferred"))
        return found

    def _row(self, attack: Attack, cases: Sequence[Case], labels: Labels) -> Row:
        scores: list[Score] = []
        shown: list[Tensor] = []
        shares, losses, seconds, iterations = [], [], 0.0, 0
        threat = None
        for case in cases:
            scene, share = _told(case, labels)
            scene = replace(scene, threat=replace(scene.threat, adaptive=attack.adaptive))
            made = attack.recover(scene, self.job(attack, scene))
            shares.append(share if made.labels is scene.labels else _share(made, case))
            for images, truth in zip(made.images, case.truths, strict=True):
                own = score(images, truth.images, truth.others)
                scores += own
                shown.append(images)
            losses += made.loss.tolist()
            seconds, iterations = seconds + made.seconds, max(iterations, made.iterations)
            threat = made.threat
        told = [s for s in shares if s is not None]
        return Row(
            name=attack.name,
            scores=tuple(scores),
            threat=threat,
            label_recovery=statistics.fmean(told) if told else None,
            iterations=iterations,
            seconds=seconds,
            loss=statistics.fmean(losses),
            images=torch.cat(shown),
            note="" if labels == "known" else "labels inferred",
        )

    def job(self, attack: Attack, scene: Scene) -> Job:
        """The job of an attack on a scene; the same question finds the same state again."""
        question = {
            "attack": attack.name,
            "options": attack.options.model_dump(mode="json"),
            "threat": scene.threat.to_json(),
            "sites": scene.sites,
            "count": scene.count,
            "iterations": self.budget.iterations,
            "update": fingerprint(scene),
        }
        same = json.dumps(question, sort_keys=True)
        digest = hashlib.blake2b(same.encode(), digest_size=6).hexdigest()
        file = None if self.state is None else self.state / f"{attack.name}-{digest}.safetensors"
        return Job(self.budget, self.key.at(attack.name), self.tell(attack.name), file, same)

    def plain_job(self, attack: Attack) -> Job:
        """The job of an attack that keeps no state."""
        return Job(self.budget, self.key.at(attack.name), self.tell(attack.name))


def fingerprint(scene: Scene) -> str:
    """A digest of the updates on the table and of the labels that go with them."""
    found = hashlib.blake2b(digest_size=8)
    for turn in scene.turns:
        for name in sorted(turn.directions):
            found.update(name.encode() + turn.directions[name].contiguous().numpy().tobytes())
    if scene.labels is not None:
        found.update(scene.labels.numpy().tobytes())
    return found.hexdigest()


def _told(case: Case, labels: Labels) -> tuple[Scene, float | None]:
    """The scene with its labels, and the share of labels that the update gives away."""
    guess, truth = infer(case.scene), case.labels()
    share = recovered(guess, truth)
    if labels == "inferred" and guess is not None:
        return case.scene.with_labels(guess, "inferred"), share
    return case.scene.with_labels(truth, "known"), share


def _share(made: Recovery, case: Case) -> float | None:
    return recovered(made.labels, case.labels())
