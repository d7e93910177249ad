"""Attacks that get images back from updates: scene by scene, with labels known or inferred."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vitrail.attack.attack import Attack
from vitrail.attack.findings import Findings, Row
from vitrail.attack.identification import Draw, judge_identification
from vitrail.attack.image_scores import Score, score_images
from vitrail.attack.inversion.label_inference import compute_label_recovery
from vitrail.attack.job import Job
from vitrail.attack.scene import Scene
from vitrail.attack.scoring import (
    add_labels,
    average_label_recovery,
    fingerprint_scene,
    score_references,
    select_true_images,
)
from vitrail.attack.threat_model import Labels, ThreatModel
from vitrail.attack.view import View


@dataclass(frozen=True)
class Recovery:
    """What a search found: images [k, n, C, H, W] from 0 to 1, and the loss of each site's.

    `labels` are those the attacker believed in.
    """

    images: Tensor
    labels: Tensor | None
    loss: Tensor
    threat: ThreatModel
    iterations: int = 0
    seconds: float = 0.0


def ask_about_scene(attack: Attack, scene: Scene, job: Job) -> Job:
    """The job of a search on one scene: the same updates, options and knowledge, the same state."""
    question = {
        "attack": attack.name,
        "options": attack.options.model_dump(mode="json"),
        "threat": scene.threat.to_json(),
        "sites": scene.sites,
        "count": scene.count,
        "iterations": job.budget.iterations,
        "update": fingerprint_scene(scene),
    }
    return job.ask(attack.name, question)


class InversionAttack(Attack):
    """An attack that defines `recover`, and is run on every scene of a view."""

    def recover(self, scene: Scene, job: Job) -> Recovery:
        """Try to get the images of every site of a scene back."""
        raise NotImplementedError(f"{type(self).__name__} must define recover")

    def run(self, view: View, job: Job) -> Findings:
        """References, and a row with labels known, inferred, or both where they differ."""
        scenes, usual = view.scenes(self.adaptive), view.scenes()
        references = score_references(usual, job.truth)
        rows = []
        if job.labels in ("known", "both"):
            rows.append(self._score_scenes(scenes, job, "known"))
        share = rows[0].label_recovery if rows else None
        wrong = share is not None and share < 1.0
        if job.labels == "inferred" or (job.labels == "both" and wrong):
            rows.append(self._score_scenes(scenes, job, "inferred"))
        return Findings(
            rows=(*references, *rows),
            truth=select_true_images(usual, job.truth, rows[-1]),
            label_recovery=average_label_recovery(usual, job.truth),
        )

    def _score_scenes(self, scenes: Sequence[Scene], job: Job, how: Labels) -> Row:
        scores: list[Score] = []
        shown: list[Tensor] = []
        shares, losses, seconds, iterations = [], [], 0.0, 0
        threat, draws, found = None, list[Draw](), 0
        planned = int(getattr(self.options, "iterations", 0))
        is_cut = False
        for bare in scenes:
            scene, share = add_labels(bare, job.truth, how)
            scene = replace(scene, threat=replace(scene.threat, adaptive=self.adaptive))
            asked = ask_about_scene(self, scene, job)
            recovery = self.recover(scene, asked)
            is_cut |= recovery.iterations < planned and _is_spent(asked, recovery)
            if recovery.labels is not scene.labels:
                share = compute_label_recovery(recovery.labels, job.truth.labels(scene))
            shares.append(share)
            for images, site in zip(recovery.images, scene.sites, strict=True):
                truth = job.truth.of_site(site)
                scores += score_images(images, truth.images, truth.others)
                shown.append(images)
                site_draws, count = truth.list_draws(images)
                draws, found = draws + site_draws, found + count
            losses += recovery.loss.tolist()
            seconds += recovery.seconds
            iterations = max(iterations, recovery.iterations)
            threat = recovery.threat
        known = [share for share in shares if share is not None]
        return Row(
            name=self.name,
            scores=tuple(scores),
            threat=threat,
            label_recovery=statistics.fmean(known) if known else None,
            iterations=iterations,
            seconds=seconds,
            loss=statistics.fmean(losses),
            images=torch.cat(shown),
            note="" if how == "known" else "labels inferred",
            identification=judge_identification(draws, found),
            planned=planned if is_cut else 0,
        )


def _is_spent(job: Job, recovery: Recovery) -> bool:
    """Whether a budget ended a search, and not the search itself."""
    most = job.budget.iterations
    return job.late or (most is not None and recovery.iterations >= most)
