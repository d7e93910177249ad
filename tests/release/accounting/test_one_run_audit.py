"""The audit in one run: its bound by hand, how often it errs, and noise that is a quarter of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from vitrail.grid_noise import add_noise
from vitrail.local.canaries import Canaries, draw_places, toss_coins
from vitrail.release.accounting.accountant import Event, calibrate_noise
from vitrail.release.accounting.one_run_audit import bound_epsilon, compute_p_value
from vitrail.rng import Key

KEY = Key(b"c" * 32)


def test_perfect_guesses_prove_what_the_paper_says():
    assert bound_epsilon(1000, 100, 100, 0.0) == pytest.approx(3.48, abs=0.02)
    assert bound_epsilon(1000, 1000, 1000, 0.0) == pytest.approx(5.81, abs=0.02)
    assert bound_epsilon(1000, 100, 50, 0.0) == 0.0
    assert bound_epsilon(1000, 100, 100, 1e-4) < bound_epsilon(1000, 100, 100, 0.0)
    assert compute_p_value(10, 10, 0, 1.0, 0.0) == 1.0


def test_the_bound_passes_the_truth_in_at_most_five_runs_of_a_hundred():
    """Randomized response at epsilon 1 is the worst case of the theorem."""
    draw, chance = np.random.default_rng(3), 1 / (1 + np.exp(-1.0))
    right = draw.binomial(200, chance, 400)
    values, counts = np.unique(right, return_counts=True)
    wrong = sum(
        int(n) * (bound_epsilon(1000, 200, int(v), 1e-6) > 1.0) for v, n in zip(values, counts)
    )
    assert wrong <= 400 * 0.05 + 3 * np.sqrt(400 * 0.05 * 0.95)


def audit(noise, key, canaries=1000, guesses=200, steps=20, rate=0.2):
    """What an audit of DP-SGD without images proves at delta 1e-5."""
    there = toss_coins(key, canaries)
    group = Canaries(canaries, there, key.at("places"), rate, 1.0, key.at("coins").stream())
    moved, source = torch.zeros(3000, dtype=torch.float64), key.at("noise").stream()
    for _ in range(steps):
        total = torch.zeros(3000, dtype=torch.float64)
        group.add_to(total)
        moved -= add_noise(total, noise, source)
    order = torch.argsort(moved[draw_places(canaries, 3000, key.at("places"))])
    half = guesses // 2
    right = int(there[order[:half]].sum()) + int((~there[order[-half:]]).sum())
    return bound_epsilon(canaries, guesses, right, 1e-5)


def test_the_audit_stays_below_the_accounted_epsilon_and_catches_a_quarter_of_the_noise():
    noise = calibrate_noise(1.0, 1e-5, [Event(1.0, 0.2, 20)])
    honest = [audit(noise, Key(bytes([n]) * 32)) for n in range(20)]
    cheated = [audit(noise / 4, Key(bytes([n]) * 32)) for n in range(20)]
    assert sum(bound > 1.0 for bound in honest) <= 3
    assert sum(bound > 1.0 for bound in cheated) >= 18
