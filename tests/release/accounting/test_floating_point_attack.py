"""The floating-point attack: it wins against `x + sigma * z` in float32, and loses here."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitrail.grid_noise import find_step
from vitrail.release.accounting.distinguishing_game import Mechanism, play
from vitrail.release.accounting.floating_point_attack import score_grid, score_reachable
from vitrail.release.image_protection import Protection, protect
from vitrail.rng import Key, derive_server_key

EPSILON, DELTA, TRIALS = 0.5, 1e-5, 60
HOW = Protection("local-dp", epsilon=EPSILON, delta=DELTA, clip=2.0, epsilon_label=1.0)
KEY = derive_server_key(3).at("floating point")


def make_image(there: bool) -> torch.Tensor:
    """An image of the clip's length, or a blank one."""
    image = torch.rand(1, 12, 12, 1, generator=torch.Generator().manual_seed(5))
    return image * (HOW.clip / float(image.norm())) * float(there)


def release_in_floating_point(there: bool, key: Key) -> np.ndarray:
    """What was released before noise lay on a grid."""
    image = make_image(there)
    noise = HOW.deviation * key.stream().normal(image.shape)
    return (image + noise).numpy()


def release_on_the_grid(there: bool, key: Key) -> np.ndarray:
    return protect(make_image(there), torch.tensor([0]), 2, HOW, key).pixels.numpy()


def judge(release, score) -> Mechanism:
    return lambda there, key: -score(release(there, key))


def test_the_attack_refutes_noise_in_floating_point() -> None:
    def score(released: np.ndarray) -> float:
        return score_reachable(released, HOW.deviation, 0.0)

    verdict = play(judge(release_in_floating_point, score), TRIALS, DELTA, KEY)
    assert verdict.epsilon > 2 * EPSILON
    blank = [score(release_in_floating_point(False, KEY.at("blank", t))) for t in range(20)]
    image = [score(release_in_floating_point(True, KEY.at("image", t))) for t in range(20)]
    assert min(blank) == 1.0 and max(image) < 1.0  # every time, without an error


@pytest.mark.parametrize("kind", ["reachable", "grid", "finer grid"])
def test_the_attack_loses_against_noise_on_the_grid(kind: str) -> None:
    step = find_step(HOW.deviation)
    scores = {
        "reachable": lambda released: score_reachable(released, HOW.deviation, 0.0),
        "grid": lambda released: score_grid(released, step),
        "finer grid": lambda released: score_grid(released, 2 * step),
    }
    verdict = play(judge(release_on_the_grid, scores[kind]), TRIALS, DELTA, KEY)
    assert verdict.epsilon <= EPSILON


def test_every_pixel_lies_on_the_grid_whatever_it_was() -> None:
    for there in (False, True):
        released = release_on_the_grid(there, KEY.at("on", there))
        assert score_grid(released, find_step(HOW.deviation)) == 1.0
