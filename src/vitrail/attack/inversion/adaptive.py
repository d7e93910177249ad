"""An attacker who looks at the update first: which channels are noise rather than gradient?

It knows the model that was sent, so it can make clean updates of its own from smooth random
images and see what channels of each layer look like then. A channel of the seen update that is
far longer, or far rougher within its kernels, than any of those is left out of the match.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from vitrail.attack.inversion.victim import Victim
from vitrail.attack.scene import Scene, Turn
from vitrail.rng import Key

_CLEAN = 8  # updates the attacker makes itself
_LONGER = 3.0  # times the longest clean channel of that layer
_ROUGHER = 1.15  # times the roughest clean channel of that layer


def draw_smooth_images(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Random images [..., H, W] whose spectrum falls like that of photographs, 1/f, in [0, 1]."""
    height, width = shape[-2:]
    fy = torch.fft.fftfreq(height)[:, None]
    fx = torch.fft.rfftfreq(width)[None]
    fall = 1.0 / (fy.square() + fx.square()).sqrt().clamp_min(1.0 / max(height, width))
    noise = torch.randn(shape, generator=generator)
    waves = torch.fft.irfft2(torch.fft.rfft2(noise) * fall, s=(height, width))
    low, high = waves.amin((-2, -1), keepdim=True), waves.amax((-2, -1), keepdim=True)
    images: Tensor = (waves - low) / (high - low).clamp_min(1e-12)
    return images


def compute_channel_norms(change: Tensor) -> Tensor:
    """The norm of every output channel's change, [k, C]."""
    return change.flatten(2).norm(dim=2) if change.dim() > 2 else change.abs()


def compute_roughness(change: Tensor) -> Tensor | None:
    """The share of a kernel's energy that is not its mean, [k, C]; None for 1x1 and vectors."""
    if change.dim() != 5 or change.shape[-1] * change.shape[-2] < 4:
        return None
    energy = change.square().sum((2, 3, 4))
    means = change.mean((3, 4)).square().sum(2) * change.shape[-1] * change.shape[-2]
    return 1 - means / energy.clamp_min(1e-30)


def simulate_clean_changes(scene: Scene, turn: Turn, key: Key) -> Mapping[str, Tensor]:
    """Directions of updates that the attacker makes from images of its own, [8, ...]."""
    draw = key.torch()
    pixels = draw_smooth_images((_CLEAN, scene.count, *scene.shape), draw)
    labels = torch.randint(scene.classes, (_CLEAN, scene.count), generator=draw)
    if scene.labels is not None:
        labels = scene.labels[torch.arange(_CLEAN) % len(scene.labels)]
    changes = Victim(scene.network).changes(turn.sent, turn.recipe, scene.seen(pixels), labels)
    return {name: t.detach() for name, t in changes.items()}


def compute_channel_weights(scene: Scene, key: Key) -> list[Mapping[str, Tensor]]:
    """For each turn and tensor, 1 for channels that look like gradients and 0 for the others.

    Where nothing would be left of an update, all of it is kept: some signal is better than none.
    """
    weights_by_turn: list[Mapping[str, Tensor]] = []
    for number, turn in enumerate(scene.turns):
        clean = simulate_clean_changes(scene, turn, key.at(number))
        weights = {name: _find_trusted(seen, clean[name]) for name, seen in turn.directions.items()}
        left = torch.stack([w.flatten(1).sum(1) for w in weights.values()]).sum(0)
        for name, trusted in weights.items():
            weights[name] = torch.where((left == 0)[:, None], 1.0, trusted)
        weights_by_turn.append(weights)
    return weights_by_turn


def _find_trusted(seen: Tensor, clean: Tensor) -> Tensor:
    """1 where a channel [k, C, ...] is no longer and no rougher than clean ones are."""
    fine = compute_channel_norms(seen) <= _LONGER * compute_channel_norms(clean).amax()
    rough = compute_roughness(seen)
    usual = compute_roughness(clean)
    if rough is not None and usual is not None:
        real = compute_channel_norms(clean) > 1e-12 * compute_channel_norms(clean).amax()
        top = usual[real].max() if bool(real.any()) else torch.ones(())
        fine &= rough <= _ROUGHER * top
    return fine.to(seen.dtype)
