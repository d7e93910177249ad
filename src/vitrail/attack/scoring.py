"""Recovered images beside the true ones: references, labels, and which image is which."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from vitrail.attack.findings import Row
from vitrail.attack.ground_truth import GroundTruth
from vitrail.attack.identification import Draw, judge_identification
from vitrail.attack.image_scores import Score, score_images
from vitrail.attack.inversion.label_inference import compute_label_recovery, infer_labels
from vitrail.attack.scene import Scene
from vitrail.attack.threat_model import Labels


def score_references(scenes: Sequence[Scene], truth: GroundTruth) -> list[Row]:
    """The rows every table has: another image of the same data, and the mean image."""
    rows = []
    for name in ("random image", "mean image"):
        scores: list[Score] = []
        shown: list[Tensor] = []
        draws: list[Draw] = []
        found = 0
        for scene in scenes:
            for site in scene.sites:
                images = truth.of_site(site)
                guesses = images.random if name == "random image" else images.mean
                scores += score_images(guesses[: scene.count], images.images, images.others)
                shown.append(guesses[: scene.count])
                site_draws, count = images.list_draws(guesses[: scene.count])
                draws, found = draws + site_draws, found + count
        luck = judge_identification(draws, found)
        rows.append(Row(name, tuple(scores), images=torch.cat(shown), identification=luck))
    return rows


def select_true_images(scenes: Sequence[Scene], truth: GroundTruth, row: Row) -> Tensor:
    """The true images in the order of a row's scores."""
    images, at = [], 0
    for scene in scenes:
        for site in scene.sites:
            scores = row.scores[at : at + scene.count]
            images.append(truth.of_site(site).images[torch.tensor([s.truth for s in scores])])
            at += len(scores)
    return torch.cat(images)


def add_labels(scene: Scene, truth: GroundTruth, how: Labels) -> tuple[Scene, float | None]:
    """The scene with its labels, and the share of labels that the update gives away."""
    guess, labels = infer_labels(scene), truth.labels(scene)
    share = compute_label_recovery(guess, labels)
    if how == "inferred" and guess is not None:
        return scene.with_labels(guess, "inferred"), share
    return scene.with_labels(labels, "known"), share


def average_label_recovery(scenes: Sequence[Scene], truth: GroundTruth) -> float | None:
    """The share of labels that updates give away, the mean over scenes; None where none do."""
    shares = [compute_label_recovery(infer_labels(scene), truth.labels(scene)) for scene in scenes]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def fingerprint_scene(scene: Scene) -> str:
    """A digest of the updates on the table and of the labels that go with them."""
    digest = hashlib.blake2b(digest_size=8)
    for turn in scene.turns:
        for name in sorted(turn.directions):
            digest.update(name.encode() + turn.directions[name].contiguous().numpy().tobytes())
    if scene.labels is not None:
        digest.update(scene.labels.numpy().tobytes())
    return digest.hexdigest()
