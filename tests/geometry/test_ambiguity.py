"""What a release leaves open: counts against formulas, ranks against maps whose rank is known."""

import pytest
import torch

from vitrail.geometry import GRASSMANN, canonicalize, compute_cost, fibre, grassmann
from vitrail.geometry.ambiguity import NOTE, measure_ambiguity
from vitrail.geometry.frames import draw_frames
from vitrail.rng import derive_server_key

KEY = derive_server_key(9)


def gaussian(*shape, at="g"):
    return torch.randn(shape, generator=KEY.at(at).torch(), dtype=torch.float64)


@pytest.mark.parametrize(("p", "expected"), [(1, 0), (2, 1), (3, 3), (10, 45)])
def test_the_fibre_is_all_rotations_of_the_basis(p, expected):
    assert fibre(p) == expected


def test_what_is_sent_for_196_classes():
    found = compute_cost(196, 64, 3)
    assert (found.frames, found.packed, found.projectors) == (37_632, 407_680, 802_816)
    assert found.freedoms == 196 * GRASSMANN.dimension(64, 3) == 196 * 183
    assert found.hidden == 196 * 3
    assert found.frames == found.freedoms + found.hidden + 196 * 6  # 6: columns of length 1, ...
    assert found.bytes(found.projectors) / found.bytes(found.frames) == pytest.approx(64 / 3)
    for bad in ((0, 4, 2), (1, 2, 3), (1, 4, 0)):
        with pytest.raises(ValueError, match=r"no .* subspaces"):
            compute_cost(*bad)


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_the_rank_of_a_linear_release(rank):
    matrix = gaussian(7, rank, at="a") @ gaussian(rank, 12, at="b")
    found = measure_ambiguity(lambda x: matrix @ x.flatten(), gaussian(3, 2, 2))
    assert (found.pixels, found.released, found.rank) == (12, 7, rank)
    assert found.dimension == 12 - rank and f"{12 - rank} directions" in found.sentence
    assert found.sentence.endswith(f"({NOTE})")


def test_a_released_subspace_has_no_more_rank_than_freedoms():
    n, p = 6, 2
    frame = draw_frames((n, p), KEY.at("u"), torch.float64)
    mixing = gaussian(n, 20, at="m")

    def release(image):
        z = (mixing @ image.reshape(20, 5)).tanh()
        gradient = -2 * z @ (z.T @ frame)
        moved = GRASSMANN.retraction("polar")(frame, -0.1 * grassmann.project(frame, gradient))
        return canonicalize(moved, like=frame)

    found = measure_ambiguity(release, gaussian(100), tolerance=1e-9)
    assert found.rank == p * (n - p)  # 8 of the 12 numbers are free
    assert found.dimension == 92


def test_a_release_that_does_not_look_leaves_everything_open():
    found = measure_ambiguity(lambda x: torch.ones(3), gaussian(2, 4))
    assert (found.rank, found.dimension, found.released) == (0, 8, 3)
    none = measure_ambiguity(lambda x: x.flatten()[:0], gaussian(2, 4))
    assert (none.rank, none.dimension, none.released) == (0, 8, 0)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="finite"):
        measure_ambiguity(lambda x: (x - x).sqrt(), gaussian(3))
    for image in (torch.ones(3, dtype=torch.uint8), torch.empty(0)):
        with pytest.raises(ValueError, match="floating-point"):
            measure_ambiguity(lambda x: x, image)
