"""Medians of subspaces: against slow searches, and how far hostile frames can move them."""

from __future__ import annotations

import pytest
import torch

from vitrail.aggregate import Aggregator
from vitrail.aggregate.subspace_rules import CLASS_COUNTS
from vitrail.config.schema import Aggregate
from vitrail.geometry import GRASSMANN, deviation, grassmann, polar_factor
from vitrail.geometry.frames import draw_frames
from vitrail.geometry.subspace_median import (
    compute_square_distances,
    find_subspace_median,
    find_trimmed_mean,
)
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

NAME, C, N, P = "model/head.frames", 4, 10, 3
KEY = derive_server_key(11)
TRUE = draw_frames((C, N, P), KEY.at("true"))
RULES = ["grassmann-median", "grassmann-trimmed"]


def near(at, spread=0.1):
    noise = torch.randn(TRUE.shape, generator=KEY.at("near", at).torch())
    return GRASSMANN.retraction("qr")(TRUE, grassmann.project(TRUE, spread * noise))


def wild(at):
    return draw_frames((C, N, P), KEY.at("wild", at))


def aggregate(rule, frames, counts=None, sent=TRUE, **options):
    fields = [Field(NAME, (C, N, P), rule, geometry="grassmann")]
    if counts is not None:
        fields.append(Field(CLASS_COUNTS, (C,), rule))
    fields = tuple(fields)
    total = Aggregator(Schema(fields, fields, ()), {NAME: sent}, Aggregate(**options))
    for i, frame in enumerate(frames):
        tensors = {NAME: frame} | ({} if counts is None else {CLASS_COUNTS: counts[i]})
        assert total.offer(Update(f"s{i}", 1, "t", tensors), 1.0, (f"s{i}", 1, "t")) is None
    return total.finish()


def exact(frames):
    return polar_factor(torch.stack(frames).double())


def distance(a, b):
    """|P_a - P_b|_F / sqrt 2, written out."""
    a, b = polar_factor(a.double()), polar_factor(b.double())
    return torch.linalg.matrix_norm(a @ a.mT - b @ b.mT) / 2**0.5


def test_the_distance_is_that_of_projectors():
    frames = exact([wild(i) for i in range(3)])
    literal = torch.stack([distance(f, TRUE) for f in frames])
    torch.testing.assert_close(
        compute_square_distances(frames, polar_factor(TRUE.double())).sqrt(), literal
    )


def test_no_step_away_from_the_median_is_cheaper():
    frames = exact([near(i, 0.4) for i in range(5)] + [wild(0), wild(1)])
    weights = torch.tensor([1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 1.0], dtype=torch.float64)
    weights = weights[:, None].expand(-1, C)
    median = find_subspace_median(frames, weights)

    def cost(frame):
        return (weights * torch.stack([distance(f, frame) for f in frames])).sum(0)

    torch.testing.assert_close(cost(median.frame), median.cost)
    for i in range(40):
        step = torch.randn(median.frame.shape, generator=KEY.at("step", i).torch()).double()
        for length in (1e-3, 1e-2, 0.1):
            tangent = length * grassmann.project(median.frame, step)
            moved = GRASSMANN.retraction("qr")(median.frame, tangent)
            assert (cost(moved) >= median.cost - 1e-7).all()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("hostile", [1, 2, 3])
def test_the_median_stays_where_the_honest_ones_are(rule, hostile):
    """d(M, P*) <= 2 (n - f) r / (n - 2 f), with r the largest honest distance to P*."""
    n = 9
    honest = [near(i) for i in range(n - hostile)]
    poison = wild(0)  # all hostile sites send the same subspace, the worst for a mean
    sums = aggregate(rule, [*honest, *[poison] * hostile], trim=0.4)
    median = sums.model["head.frames"]
    radius = torch.stack([distance(f, TRUE) for f in honest]).max(0).values
    bound = 2 * (n - hostile) * radius / (n - 2 * hostile)
    assert (distance(median, TRUE) <= bound).all()
    assert deviation(median).max() < 1e-6
    mean = aggregate("grassmann", [*honest, *[poison] * hostile]).model["head.frames"]
    if hostile == 3:  # of fewer, averaging over more sites may make up for one
        assert distance(median, TRUE).mean() < distance(mean, TRUE).mean()


@pytest.mark.parametrize("rule", RULES)
def test_axioms(rule):
    frames = [near(i, 0.3) for i in range(6)]
    first = aggregate(rule, frames).model["head.frames"]
    mixed = aggregate(rule, [frames[i] for i in (4, 2, 0, 5, 1, 3)]).model["head.frames"]
    assert distance(first, mixed).max() < 1e-5
    turn = torch.linalg.qr(torch.randn(N, N, generator=KEY.at("turn").torch())).Q
    turned = aggregate(rule, [turn @ f for f in frames], sent=turn @ TRUE).model["head.frames"]
    assert distance(turned, turn @ first).max() < 1e-5
    same = aggregate(rule, [frames[0]] * 4).model["head.frames"]
    assert distance(same, frames[0]).max() < 1e-4
    alone = aggregate(rule, [frames[0]]).model["head.frames"]
    assert distance(alone, frames[0]).max() < 1e-4


@pytest.mark.parametrize("rule", RULES)
def test_only_sites_that_hold_a_class_vote_for_it(rule):
    """Seven sites without the class send what they received: a median would stay there."""
    sent, frames = wild(5), [near(i) for i in range(3)]
    counts = [torch.ones(C)] * 3 + [torch.tensor([0.0, 1.0, 1.0, 0.0])] * 7
    updates = [*frames, *[sent] * 7]
    blind = aggregate(rule, updates, sent=sent).model["head.frames"]
    assert (distance(blind, sent) < 0.5).all()
    sums = aggregate(rule, updates, counts, sent, byzantine=2)
    found = sums.model["head.frames"]
    assert (distance(found, TRUE)[[0, 3]] < 0.6).all() and (distance(found, sent)[1:3] < 0.5).all()
    assert sums.metrics["few_voters"] == 2  # 3 votes are fewer than 2 * 2 + 1


@pytest.mark.parametrize("rule", RULES)
def test_a_class_that_nobody_votes_for_stays_as_it_was(rule):
    counts = [torch.tensor([1.0, 0.0, 1.0, 1.0])] * 3
    found = aggregate(rule, [near(i) for i in range(3)], counts, wild(5)).model["head.frames"]
    assert distance(found, wild(5))[1] < 1e-5 < distance(found, wild(5))[0]


def test_trimming_leaves_the_farthest_out():
    frames = exact([near(i) for i in range(4)] + [wild(0)])
    weights = torch.ones(5, C, dtype=torch.float64)
    trimmed = find_trimmed_mean(frames, weights, 0.2)
    literal = grassmann.mean(frames[:4]).frame
    assert distance(trimmed.frame, literal).max() < 1e-7


def test_a_bucket_of_subspaces_is_their_mean():
    frames = [near(i) for i in range(6)]
    sums = aggregate("grassmann-median", frames, bucket=2, byzantine=1)
    order = derive_server_key(0).at("buckets").numpy().permutation(6)
    pairs = [torch.stack([frames[order[i]], frames[order[i + 1]]]) for i in (0, 2, 4)]
    means = [grassmann.mean(pair).frame for pair in pairs]
    by_hand = aggregate("grassmann-median", means, byzantine=1)
    assert distance(sums.model["head.frames"], by_hand.model["head.frames"]).max() < 1e-4
