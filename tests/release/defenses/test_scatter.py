"""Scatters and noise of subspaces: the bounds that the proofs rest on, and what noise leaves."""

import math

import pytest
import torch

from vitrail.geometry.subspace_mean import leading_eigenvectors
from vitrail.release.accounting.gaussian import compute_sigma
from vitrail.release.defenses.scatter import (
    add_symmetric_noise,
    compute_contributions,
    count_surviving_sites,
)
from vitrail.rng import derive_server_key


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def frames(classes=3, n=6, p=2, seed=1):
    white = torch.randn(classes, n, p, generator=generator(seed), dtype=torch.float64)
    return torch.linalg.qr(white)[0]


def literal(z, label, bases, k):
    """One image's matrix, written out patch by patch."""
    patches = [z[:, i, j] for i in range(z.shape[1]) for j in range(z.shape[2])]
    units = [p / p.norm() if float(p.norm()) else p for p in patches]
    energy = [float((bases[label].T @ u).square().sum()) for u in units]
    best = sorted(range(len(units)), key=lambda at: -energy[at])[:k]
    return sum(torch.outer(units[at], units[at]) for at in best) / len(best)


def test_an_image_adds_what_the_formula_says():
    z = torch.randn(5, 6, 3, 2, generator=generator(), dtype=torch.float64)
    labels, bases = torch.tensor([0, 1, 2, 1, 0]), frames()
    for k in (1, 4, 6, 50):
        found = compute_contributions(z, labels, bases, k)
        for at in range(5):
            assert torch.allclose(found[at], literal(z[at], labels[at], bases, k), atol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
def test_no_image_adds_more_than_one_and_none_can_break_the_sum(scale):
    z = scale * torch.randn(40, 6, 2, 2, generator=generator())
    z[0] = float("nan")
    z[1] = float("inf")
    labels = torch.arange(40) % 3
    found = compute_contributions(z, labels, frames(), 3)
    assert torch.isfinite(found).all()
    assert float(found.flatten(1).norm(dim=1).max()) <= 1 + 1e-12
    assert torch.allclose(found, found.mT)
    far = (found[:, None] - found[None]).flatten(2).norm(dim=2)
    assert float(far.max()) <= math.sqrt(2) + 1e-12  # substitution within a class


def test_the_noise_is_white_among_symmetric_matrices():
    """Projected on any symmetric direction of norm 1 it has the deviation: that is the proof."""
    drawn = add_symmetric_noise(torch.zeros(40_000, 4, 4), 1.5, derive_server_key(0).stream())
    assert torch.equal(drawn, drawn.mT)
    for seed in range(3):
        white = torch.randn(4, 4, generator=generator(seed), dtype=torch.float64)
        direction = (white + white.T) / (white + white.T).norm()
        assert float((drawn * direction).sum((1, 2)).std()) == pytest.approx(1.5, rel=0.02)


def kept(sites, deviation, n=64, p=3):
    """How much of a subspace that all sites agree on is left in the noised sum."""
    basis = frames(1, n, p)
    noised = add_symmetric_noise(sites * basis @ basis.mT, deviation, derive_server_key(5).stream())
    return float((basis.mT @ leading_eigenvectors(noised, p)).square().sum()) / p


def test_the_eigengap_survives_from_the_stated_number_of_sites_on_and_not_at_eight():
    deviation = math.sqrt(2 * 3 * 10) * compute_sigma(8.0, 1e-5, 1.0)
    wanted = count_surviving_sites(deviation, 64)
    assert wanted == 106  # as the docs say
    assert kept(wanted, deviation) > 0.7
    assert kept(8, deviation) < 0.2  # 3/64 is chance
