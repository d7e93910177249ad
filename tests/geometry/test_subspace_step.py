"""Steps between subspaces: there and back, against the formula with an inverse, at the edges."""

import math

import pytest
import torch

from vitrail.geometry import deviation, grassmann
from vitrail.geometry.frames import draw_frames
from vitrail.geometry.subspace_step import compute_step, follow_step
from vitrail.rng import derive_server_key

KEY = derive_server_key(3)


def frames(*at, shape=(4, 9, 3)):
    return draw_frames(shape, KEY.at(*at), torch.float64)


@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_the_one_of_the_formula(seed):
    """(I - P) Y (U^T Y)^-1, with the inverse that the code avoids."""
    u, y = frames("u", seed), frames("y", seed)
    eye = torch.eye(9, dtype=torch.float64)
    wanted = (eye - u @ u.mT) @ y @ torch.linalg.inv(u.mT @ y)
    torch.testing.assert_close(compute_step(u, y), wanted, rtol=1e-9, atol=1e-9)
    angles = grassmann.principal_angles(u, y)
    sizes = torch.linalg.svdvals(compute_step(u, y))
    torch.testing.assert_close(
        sizes.sort(-1).values, angles.tan().sort(-1).values, rtol=1e-8, atol=1e-9
    )


@pytest.mark.parametrize("length", [0.0, 1e-6, 0.3, 5.0, 1e3])
def test_there_and_back(length):
    """However long: local noise on a step must not be folded by the frame that carries it."""
    u = frames("start")
    step = torch.randn(u.shape, generator=KEY.at("step").torch(), dtype=torch.float64)
    step = step - u @ (u.mT @ step)
    step = length * step / step.norm()
    there = follow_step(u, step)
    assert deviation(there).max() < 1e-12
    torch.testing.assert_close(compute_step(u, there), step, rtol=1e-7, atol=1e-9 * (1 + length))
    inside = u @ torch.ones(4, 3, 3, dtype=torch.float64)  # what lies in the span turns nothing
    torch.testing.assert_close(follow_step(u, step + inside), there, rtol=1e-9, atol=1e-9)


def test_to_first_order_it_is_the_change_of_the_projector():
    u = frames("start")
    step = torch.randn(u.shape, generator=KEY.at("step").torch(), dtype=torch.float64)
    step = 1e-5 * (step - u @ (u.mT @ step))
    y = follow_step(u, step)
    change = y @ y.mT - u @ u.mT
    torch.testing.assert_close(change @ u, step, rtol=1e-3, atol=1e-9)
    assert float(change.norm()) == pytest.approx(math.sqrt(2) * float(step.norm()), rel=1e-3)


def test_edges():
    """The basis of the goal is forgotten; the same subspace is no step; orthogonal ones are far,
    finite and lead somewhere; a whole space, no class and no column have no step."""
    u, y = frames("u"), frames("y")
    turned = y @ frames("turn", shape=(4, 3, 3))
    torch.testing.assert_close(compute_step(u, turned), compute_step(u, y), rtol=1e-8, atol=1e-8)
    assert compute_step(u, u).abs().max() < 1e-12
    axes = torch.eye(6, dtype=torch.float64)
    far = compute_step(axes[:, :2], axes[:, 2:4])
    assert bool(torch.isfinite(far).all()) and far.norm() > 1e6
    assert deviation(follow_step(axes[:, :2], far)).max() < 1e-9
    whole = frames("whole", shape=(2, 3, 3))
    assert compute_step(whole, frames("other", shape=(2, 3, 3))).abs().max() < 1e-12
    assert compute_step(torch.zeros(0, 5, 2), torch.zeros(0, 5, 2)).shape == (0, 5, 2)
    rounded = u.float()  # what travels is rounded: no step must stay no step
    assert compute_step(rounded, rounded).abs().max() < 1e-6
