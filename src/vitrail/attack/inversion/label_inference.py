"""Labels out of an update, without any search: the last layer's gradient counts them.

For cross-entropy the gradient of the bias of class c is mean(p_c) - n_c / n, with p the model's
probabilities and n_c the images of that class (iDLG, arXiv:2001.02610, is the case n = 1; the
count over a batch follows Wainakh et al. 2022, arXiv:2105.09369). Without a bias, the sums of
the weight's rows over non-negative features have the same signs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from vitrail.attack.inversion.adaptive import draw_smooth_images
from vitrail.attack.scene import Scene
from vitrail.rng import derive_server_key

_BIASES = ("head.bias", "fc.bias", "classifier.bias")
_WEIGHTS = ("head.weight", "fc.weight", "classifier.weight")
_OWN = 16  # images of the attacker's own, to see what the model says about nothing in particular


def infer_labels(scene: Scene) -> Tensor | None:
    """Labels [k, n] in ascending order, or None where the last layer was not released."""
    turn = scene.turns[0]
    signal = _compute_label_signal(scene)
    if signal is None:
        return None
    expected = (
        _compute_expected_probabilities(scene) if scene.count > 1 else torch.zeros(scene.classes)
    )
    labels = []
    for row in signal / max(1, turn.recipe.steps):
        if scene.count == 1:
            labels.append(row.argmin().view(1))
        else:
            counts = scene.count * (expected - row)
            labels.append(_round_counts(counts, scene.count))
    return torch.stack(labels)


def _compute_label_signal(scene: Scene) -> Tensor | None:
    """For each site and class, a number that is lower the more images of the class there are."""
    directions = scene.turns[0].directions
    for name in _BIASES:
        if name in directions and directions[name].shape[1] == scene.classes:
            return directions[name]
    for name in _WEIGHTS:
        if name in directions and directions[name].shape[1] == scene.classes:
            sums = directions[name].flatten(2).sum(2)
            # Scaled so that one image of one class is about 1: the probabilities sum to one.
            return sums / sums.abs().amax(1, keepdim=True).clamp_min(1e-30)
    return None


@torch.no_grad()
def _compute_expected_probabilities(scene: Scene) -> Tensor:
    """The mean probabilities that the sent model gives to smooth random images."""
    pixels = draw_smooth_images((_OWN, *scene.shape), derive_server_key(0).at("labels").torch())
    before = scene.network.training
    scene.network.eval()
    x = scene.seen(pixels)
    logits: Tensor = functional_call(scene.network, dict(scene.turns[0].sent), (x,))
    scene.network.train(before)
    return logits.softmax(1).mean(0)


def _round_counts(counts: Tensor, total: int) -> Tensor:
    """Counts rounded to whole numbers that add up, as a list of labels in ascending order."""
    counts = counts.clamp_min(0)
    counts = counts * total / counts.sum().clamp_min(1e-12)
    whole = counts.floor()
    for at in (counts - whole).argsort(descending=True)[: total - int(whole.sum())]:
        whole[at] += 1
    return torch.repeat_interleave(torch.arange(len(counts)), whole.long())


def compute_label_recovery(inferred: Tensor | None, truth: Tensor) -> float | None:
    """The share of labels that were found, as sets with repetitions; None where none were."""
    if inferred is None:
        return None
    hits = 0
    for guesses, true in zip(inferred.tolist(), truth.tolist(), strict=True):
        left = list(true)
        for label in guesses:
            if label in left:
                left.remove(label)
                hits += 1
    return hits / max(1, truth.numel())
