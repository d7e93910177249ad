"""The rotation between two clouds: against literal Procrustes in float64, and at the edges."""

import math

import numpy as np
import pytest
import torch
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.transform import Rotation

from vitrail.geometry.rotation import fit_rotation, fit_turn
from vitrail.geometry.slots import match_slots
from vitrail.rng import derive_server_key

KEY = derive_server_key(77)


def draw(*shape, at="cloud"):
    return torch.randn(shape, generator=KEY.at(at).torch(), dtype=torch.float64)


def draw_rotation(size, at="rotation"):
    q, r = torch.linalg.qr(draw(size, size, at=at))
    q = q * r.diagonal().sign()
    q[:, 0] *= torch.linalg.det(q).sign()
    return q


def literal_residual(points, target, rotation):
    """|(Z_k - mu_k) R - (Z_0 - mu_0)|^2 / |Z_0 - mu_0|^2, number by number."""
    points, target, rotation = points.numpy(), target.numpy(), rotation.numpy()
    start, end = points - points.mean(0), target - target.mean(0)
    left = whole = 0.0
    for i in range(len(start)):
        for j in range(start.shape[1]):
            turned = sum(start[i, k] * rotation[k, j] for k in range(start.shape[1]))
            left += (turned - end[i, j]) ** 2
            whole += end[i, j] ** 2
    return left / whole


@pytest.mark.parametrize("size", [1, 2, 3, 8, 32])
def test_a_turned_cloud_is_turned_back_to_where_it_came_from(size):
    start, shift, rotation = draw(5 * size + 2, size), draw(size, at="shift"), draw_rotation(size)
    turned = start @ rotation.mT + shift
    turn = fit_turn(turned, start)
    assert torch.allclose(turn.rotation, rotation, atol=1e-10)
    assert torch.allclose(turn.apply(turned), start, atol=1e-10)
    assert torch.allclose(turn.undo(start), turned, atol=1e-10)
    assert turn.residual < 1e-18


def test_it_is_the_procrustes_solution_of_clouds_that_differ_by_more():
    points, target = draw(60, 6), draw(60, 6, at="other")
    points[:, :3] += 2 * target[:, 1:4]
    turn = fit_turn(points, target)
    literal, _ = orthogonal_procrustes(
        (points - points.mean(0)).numpy(), (target - target.mean(0)).numpy()
    )
    if np.linalg.det(literal) < 0:  # Kabsch: the weakest direction changes its sign
        u, _, v = np.linalg.svd(((points - points.mean(0)).mT @ (target - target.mean(0))).numpy())
        u[:, -1] *= -1
        literal = u @ v
    assert np.allclose(turn.rotation.numpy(), literal, atol=1e-10)
    assert math.isclose(turn.residual, literal_residual(points, target, turn.rotation))


def test_no_rotation_of_three_dimensions_is_better_than_scipys():
    points, target = draw(40, 3), draw(40, 3, at="other")
    start, end = points - points.mean(0), target - target.mean(0)
    best, _ = Rotation.align_vectors(end.numpy(), start.numpy())
    assert np.allclose(fit_turn(points, target).rotation.numpy(), best.as_matrix().T, atol=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_no_other_rotation_leaves_less(seed):
    points, target = draw(50, 4, at=f"a{seed}"), draw(50, 4, at=f"b{seed}")
    turn = fit_turn(points, target)
    assert math.isclose(float(torch.linalg.det(turn.rotation)), 1.0, abs_tol=1e-10)
    assert torch.allclose(turn.rotation @ turn.rotation.mT, torch.eye(4).double(), atol=1e-10)
    for other in range(20):
        rotation = draw_rotation(4, at=f"r{seed} {other}")
        assert turn.residual <= literal_residual(points, target, rotation) + 1e-12


def test_a_mirrored_cloud_cannot_be_turned_back_and_the_residual_says_so():
    start = draw(100, 3)
    mirrored = start * torch.tensor([1.0, 1.0, -1.0]).double()
    turn = fit_turn(mirrored, start)
    assert float(torch.linalg.det(turn.rotation)) > 0.99 and turn.residual > 0.1


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_equal_clouds_give_the_identity_even_where_they_say_nothing(rank):
    flat = draw(30, rank) @ draw(rank, 6, at="plane") if rank else torch.zeros(30, 6).double()
    turn = fit_turn(flat, flat)
    assert torch.allclose(turn.rotation, torch.eye(6).double(), atol=1e-9)
    assert turn.residual < 1e-18
    vectors = draw(4, 6, at="vectors").float()
    assert torch.allclose(turn.apply(vectors), vectors, atol=1e-6)


def test_clouds_that_are_no_numbers_turn_nothing():
    points = draw(9, 3)
    points[2, 1] = torch.nan
    turn = fit_turn(points, draw(9, 3, at="other"))
    vectors = draw(2, 3, at="vectors")
    assert math.isnan(turn.residual) and torch.equal(turn.apply(vectors), vectors)


@pytest.mark.parametrize(
    "shapes", [((0, 3), (0, 3)), ((4, 3), (5, 3)), ((4, 3), (4, 2)), ((4,), (4,))]
)
def test_clouds_that_do_not_belong_together_are_refused(shapes):
    with pytest.raises(ValueError, match="shapes"):
        fit_turn(torch.ones(shapes[0]), torch.ones(shapes[1]))


def test_one_channel_has_only_the_rotation_by_nothing():
    assert fit_rotation(torch.tensor([[-3.0]]).double()).item() == 1.0


def test_turning_and_pairing_commute():
    """Distances are the same in both spaces, so a site may pair before or after it turns."""
    own, reference, rotation = draw(6, 4), draw(6, 4, at="reference"), draw_rotation(4)
    here = match_slots(own, reference, 2)
    there = match_slots(own @ rotation, reference @ rotation, 2)
    assert torch.equal(here, there)
