"""Frames at the door: back on their manifold, and in the one frame their subspace has."""

import pytest
import torch

from vitrail.geometry import canonicalize, deviation, grassmann, polar_factor
from vitrail.geometry.frames import draw_frames
from vitrail.models.flat import Layout
from vitrail.models.parts import TensorSpec
from vitrail.release.frame_release import project_to_manifold
from vitrail.release.message import Field, Schema, make_model_fields
from vitrail.rng import derive_server_key

KEY = derive_server_key(5)
SHAPE = (4, 8, 2)
NAME = "model/head.frames"


def spec(geometry):
    return TensorSpec("head.frames", SHAPE, "prototypes", "weight", geometry, True, False)


class FakeSite:
    """The two things that are looked at: the layout and what was received."""

    def __init__(self, geometry, received):
        self.model = self
        self.layout = Layout.of([spec(geometry)])
        self.received = received.reshape(-1)


def passed(frames, geometry="grassmann"):
    received = draw_frames(SHAPE, KEY.at("received"))
    site = FakeSite(geometry, received)
    fields = make_model_fields(site.layout, {"head.frames": "mean"})
    assert [f.geometry for f in fields] == [geometry]
    beside = Field("extra", (2,))
    given = {NAME: frames, "extra": torch.ones(2)}
    found = project_to_manifold(given, site, Schema((), (*fields, beside)))
    assert given[NAME] is frames and torch.equal(found["extra"], torch.ones(2))
    return found[NAME], received


@pytest.mark.parametrize("seed", range(5))
def test_a_subspace_leaves_as_the_frame_nearest_to_the_one_received(seed):
    frames = draw_frames(SHAPE, KEY.at(seed))
    one, received = passed(frames)
    two, _ = passed(frames @ draw_frames((4, 2, 2), KEY.at("turn", seed)))
    assert (one - two).abs().max() <= 1e-6
    torch.testing.assert_close(one, canonicalize(frames, received))
    assert grassmann.projection_distance(one, frames).max() < 1e-6


def test_the_basis_of_stiefel_frames_is_theirs():
    frames = draw_frames(SHAPE, KEY.at("own"))
    assert torch.equal(passed(frames, "stiefel")[0], frames)
    assert torch.equal(passed(3 * frames, "euclidean")[0], 3 * frames)


@pytest.mark.parametrize("geometry", ["stiefel", "grassmann"])
def test_what_a_defense_bent_is_bent_back(geometry):
    bent = draw_frames(SHAPE, KEY.at("own")) + 0.1 * torch.randn(SHAPE, generator=KEY.torch())
    found, _ = passed(bent, geometry)
    assert deviation(bent).max() > 0.01 > 1e-5 > deviation(found).max()
    assert grassmann.projection_distance(found, polar_factor(bent)).max() < 1e-5


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_left_for_the_guard(value):
    frames = draw_frames(SHAPE, KEY.at("own"))
    frames[1, 0, 0] = value
    found, _ = passed(frames)
    assert torch.equal(found.isfinite(), frames.isfinite())
