"""Clipped steps of subspaces: jointly bounded whatever a site sends, also after float32."""

import math

import pytest
import torch

from vitrail.aggregate.rule import Group
from vitrail.aggregate.subspace_tangent import GrassmannTangent
from vitrail.config.schema import Aggregate
from vitrail.geometry import canonicalize
from vitrail.geometry.frames import draw_frames
from vitrail.release.defenses.clipped_steps import (
    bound_rounding,
    clip_steps,
    count_sites_for_a_step,
    follow_steps,
)
from vitrail.release.message import Field
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

KEY = derive_server_key(11)
NAME, SHAPE = "model/head.frames", (6, 10, 3)


def frames(*at, shape=SHAPE):
    return draw_frames(shape, KEY.at(*at))


def lift(sent, received):
    """What the rule adds up for a site, as the server or the masker computes it."""
    field = Field(NAME, tuple(sent.shape), "grassmann-tangent", geometry="grassmann")
    group = Group((field,))
    rule = GrassmannTangent(group, Aggregate())
    return rule.lift(Update("s", 1, "train", {NAME: sent}), 1.0, group.pack({NAME: received}))


def axes(shape, first):
    """Subspaces along coordinate axes: of two such, far apart, the steps are huge."""
    classes, n, p = shape
    return torch.eye(n)[:, first : first + p].repeat(classes, 1, 1)


@pytest.mark.parametrize("clip", [1e-3, 0.5, 3.0, 50.0])
@pytest.mark.parametrize("case", ["near", "far", "orthogonal", "same", "one class alone"])
def test_what_is_added_up_is_no_longer_than_the_clip_over_all_classes(clip, case):
    """An adversarial site moves every class as far as it can: the classes are clipped together."""
    received = axes(SHAPE, 0) if case == "orthogonal" else frames("received")
    sent = {
        "near": lambda: torch.linalg.qr(received + 0.1 * frames("other"))[0],
        "far": lambda: frames("far"),
        "orthogonal": lambda: axes(SHAPE, 5),
        "same": lambda: received,
        "one class alone": lambda: torch.cat([frames("far")[:1], received[1:]]),
    }[case]()
    steps, length = clip_steps({NAME: sent}, {NAME: received.double()}, clip)
    assert steps[NAME].norm() <= clip * (1 + 1e-12) and (length > clip or case != "far" or clip > 9)
    out = follow_steps(steps, {NAME: received.double()}, {NAME: sent})[NAME]
    assert out.dtype == torch.float32
    out = canonicalize(out, like=received)  # as the door does afterwards, which rounds once more
    assert float(lift(out, received).norm()) <= clip + bound_rounding([SHAPE], clip)
    if case == "same":
        assert length < 1e-5 and float(lift(out, received).norm()) < 1e-5


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_broken_training_shows_as_no_step_at_all(value):
    received, broken = frames("received"), frames("far")
    broken[2, 1, 0] = value
    steps, length = clip_steps({NAME: broken}, {NAME: received.double()}, 1.0)
    assert not steps[NAME].any() and length == 0.0


def test_no_class_and_no_column_have_no_step():
    for shape in ((0, 5, 2), (3, 5, 0)):
        empty = torch.zeros(shape)
        steps, length = clip_steps({NAME: empty}, {NAME: empty.double()}, 1.0)
        assert steps[NAME].shape == shape and length == 0.0


def test_the_number_of_sites_is_where_agreeing_steps_stand_out_of_drawn_noise():
    """Noise in the sum of so many sites, drawn: its spectral norm is about a class's step."""
    classes, n, p, noise = 10, 64, 3, 1.4
    sites = count_sites_for_a_step(noise, classes, n, p)
    drawn = noise * torch.randn(200, n - p, p, generator=KEY.at("noise").torch()) / sites
    ratio = torch.linalg.matrix_norm(drawn, 2).mean() * math.sqrt(classes)
    assert 0.8 < float(ratio) < 1.05
