"""Frames: what is refused, and one frame for each subspace."""

import pytest
import torch

from vitrail.geometry import (
    GRASSMANN,
    canonicalize,
    deviation,
    grassmann,
    orthonormalize,
    polar_factor,
)
from vitrail.geometry.frames import check_frames, draw_frames, find_problem
from vitrail.rng import derive_server_key

KEY = derive_server_key(3)


def frames(*shape, at="x", dtype=torch.float64):
    return draw_frames(shape, KEY.at(at), dtype)


BAD = {
    "p larger than n": (torch.zeros(2, 3, 5), "dimension 5 in 3"),
    "a vector": (torch.zeros(4), "shape"),
    "integers": (torch.zeros(4, 2, dtype=torch.int64), "int64"),
    "NaN": (torch.full((4, 2), torch.nan), "finite"),
    "infinite": (torch.full((4, 2), torch.inf), "finite"),
    "zeros": (torch.zeros(4, 2), "rank-deficient"),
    "twice the same column": (torch.ones(4, 2) / 2, "rank-deficient"),
    "not of length 1": (2 * frames(4, 2, dtype=torch.float32), "not orthonormal.* 3$"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_frame_is_refused_in_words(what):
    value, words = BAD[what]
    with pytest.raises(ValueError, match=words) as caught:
        check_frames(value, "the frames of site A")
    assert str(caught.value).startswith("the frames of site A: ")
    if what != "a vector":
        with pytest.raises(ValueError, match=words):
            grassmann.mean(value[None])


def test_the_deviation_is_a_number_per_frame():
    x = frames(3, 6, 2)
    x[1, :, 0] *= 1.5
    torch.testing.assert_close(
        deviation(x), torch.tensor([0.0, 1.25, 0.0], dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert "1.25" in str(find_problem(x))


def test_no_frames_can_be_drawn_that_do_not_exist():
    with pytest.raises(ValueError, match="p <= n"):
        draw_frames((3, 4), KEY)


def test_decompositions_against_their_definitions():
    x = torch.randn(4, 6, 3, generator=KEY.at("gauss").torch(), dtype=torch.float64)
    q = orthonormalize(x)
    r = q.mT @ x
    torch.testing.assert_close(q @ r, x)
    assert r.tril(-1).abs().max() < 1e-12 and (r.diagonal(dim1=-2, dim2=-1) > 0).all()
    u = polar_factor(x)
    symmetric = u.mT @ x
    torch.testing.assert_close(symmetric, symmetric.mT)
    assert torch.linalg.eigvalsh(symmetric).min() > 0 and deviation(u).max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("with_reference", [True, False])
def test_the_canonical_frame_depends_on_the_subspace_alone(with_reference, dtype):
    x = frames(50, 16, 3, dtype=dtype)
    like = frames(50, 16, 3, at="like", dtype=dtype) if with_reference else None
    turned = x @ frames(50, 3, 3, at="turn", dtype=dtype)
    assert (x - turned).abs().max() > 0.1
    one, two = canonicalize(x, like), canonicalize(turned, like)
    tiny = 1e-5 if dtype == torch.float32 else 1e-11
    assert (one - two).abs().max() < tiny and one.dtype == dtype
    torch.testing.assert_close(one @ one.mT, x @ x.mT, rtol=0, atol=tiny)
    torch.testing.assert_close(canonicalize(one, like), one, rtol=0, atol=tiny)


def test_where_the_nearest_frame_is_not_unique_another_rule_decides():
    eye = torch.eye(6, dtype=torch.float64)
    x, like = eye[:, :2], eye[:, 2:4]  # orthogonal to each other
    for seed in range(5):
        turned = x @ draw_frames((2, 2), derive_server_key(seed), torch.float64)
        torch.testing.assert_close(canonicalize(turned, like), x, rtol=0, atol=1e-12)


def test_principal_angles_and_distances_against_projectors():
    x, y = frames(20, 12, 3), frames(20, 12, 3, at="y")
    px, py = x @ x.mT, y @ y.mT
    torch.testing.assert_close(
        grassmann.projection_distance(x, y), (px - py).norm(dim=(-2, -1)) / 2**0.5
    )
    cosines = torch.linalg.svdvals(x.mT @ y).clamp(max=1)
    angles = grassmann.principal_angles(x, y)
    torch.testing.assert_close(angles, cosines.acos(), rtol=0, atol=1e-9)
    torch.testing.assert_close(grassmann.geodesic_distance(x, y), cosines.acos().norm(dim=-1))
    nearest = (x - canonicalize(y, x)).norm(dim=(-2, -1))
    torch.testing.assert_close(grassmann.chordal_distance(x, y), nearest)


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-8, 0.3, torch.pi / 2 - 1e-12, torch.pi / 2])
def test_angles_are_exact_where_cosines_or_sines_are_not(angle):
    angle = torch.tensor(angle, dtype=torch.float64)
    x = torch.eye(4, dtype=torch.float64)[:, :2]
    y = x.clone()
    y[:, 0] = torch.stack([angle.cos(), 0 * angle, angle.sin(), 0 * angle])
    found = grassmann.principal_angles(x, y)
    torch.testing.assert_close(found.max(), angle, rtol=1e-10, atol=1e-16)
    assert found.min() < 1e-15


def test_frames_of_other_shapes_do_not_compare():
    with pytest.raises(ValueError, match="do not compare"):
        grassmann.projection_distance(frames(6, 2), frames(6, 3))


def test_the_arctan_step_is_the_eigenspace_of_the_updated_projector():
    x = frames(10, 12, 3)
    h = grassmann.project(x, torch.randn(10, 12, 3, generator=KEY.torch(), dtype=torch.float64))
    for size in (0.01, 1.0, 30.0):
        moved = GRASSMANN.retraction("arctan")(x, size * h)
        updated = x @ x.mT + size * (h @ x.mT + x @ h.mT)
        top = torch.linalg.eigh(updated).eigenvectors[..., -3:]
        assert grassmann.projection_distance(moved, top).max() < 1e-12


def test_the_logarithm_undoes_the_geodesic():
    x, y = frames(10, 12, 3), frames(10, 12, 3, at="y")
    step = grassmann.logarithm(x, y)
    assert (x.mT @ step).abs().max() < 1e-12
    assert grassmann.projection_distance(GRASSMANN.retraction("geodesic")(x, step), y).max() < 1e-12
    torch.testing.assert_close(step.norm(dim=(-2, -1)), grassmann.geodesic_distance(x, y))
    assert grassmann.logarithm(x, x).abs().max() < 1e-7
