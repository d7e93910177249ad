"""FLTrust against its formula, update by update, and what no update can do to it."""

from __future__ import annotations

import math

import pytest
import torch

from vitrail.aggregate import Aggregator
from vitrail.config.schema import Aggregate
from vitrail.errors import RunError
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

SHAPES = {"model/a": (4, 3), "model/b": (5,)}
KEY = derive_server_key(11)


def draw(name, scale=1.0):
    generator = KEY.at(name).torch()
    return {n: scale * torch.randn(s, generator=generator) for n, s in SHAPES.items()}


SENT, OWN = draw("sent"), draw("own")


def aggregate(models, trusted=OWN):
    fields = tuple(Field(n, s, "fltrust") for n, s in SHAPES.items())
    options = Aggregate(rule="fltrust", max_norm=1e9)
    total = Aggregator(Schema(fields, fields, ()), SENT, options, trusted=trusted)
    for i, tensors in enumerate(models):
        assert total.offer(Update(f"s{i}", 1, "t", tensors, {}), 1.0, (f"s{i}", 1, "t")) is None
    return total.finish()


def flatten(tensors):
    return [float(v) for n in SHAPES for v in tensors[n].double().reshape(-1)]


def literal(models):
    """Algorithm 2 of Cao et al. 2021, number by number."""
    sent = flatten(SENT)
    own = [a - b for a, b in zip(flatten(OWN), sent, strict=True)]
    reach = math.sqrt(sum(v * v for v in own))
    total, moved = 0.0, [0.0] * len(sent)
    for model in models:
        change = [a - b for a, b in zip(flatten(model), sent, strict=True)]
        length = math.sqrt(sum(v * v for v in change))
        cosine = sum(a * b for a, b in zip(change, own, strict=True)) / (length * reach)
        trust = max(0.0, cosine)
        total += trust
        moved = [m + trust * reach / length * c for m, c in zip(moved, change, strict=True)]
    return [s + m / total for s, m in zip(sent, moved, strict=True)]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_against_the_formula(count):
    models = [draw(f"u{i}") for i in range(count)]
    sums = aggregate(models)
    assert sums.metrics["trusted_sites"] >= 1
    torch.testing.assert_close(
        torch.tensor(flatten(sums.tensors)), torch.tensor(literal(models)), rtol=2e-6, atol=2e-6
    )


def test_no_update_moves_the_model_farther_than_the_servers_own():
    """Whatever is sent, in whatever length: the step is at most as long as the server's own."""
    sent = torch.tensor(flatten(SENT))
    reach = (torch.tensor(flatten(OWN)) - sent).norm()
    for scale in (1e-6, 1.0, 1e6):
        for number in range(1, 8):
            models = [draw(f"v{i}", scale) for i in range(number)]
            moved = torch.tensor(flatten(aggregate(models).tensors)) - sent
            assert float(moved.norm()) <= float(reach) * (1 + 1e-5)


def test_what_points_backwards_or_nowhere_counts_nothing():
    back = {n: SENT[n] - 100 * (OWN[n] - SENT[n]) for n in SHAPES}
    still = {n: SENT[n].clone() for n in SHAPES}
    honest = draw("u0")
    alone, joined = aggregate([honest]), aggregate([honest, back, still, back])
    torch.testing.assert_close(
        torch.tensor(flatten(joined.tensors)), torch.tensor(flatten(alone.tensors))
    )
    assert joined.metrics["trusted_sites"] == 1
    nobody = aggregate([back, still])
    assert flatten(nobody.tensors) == flatten(SENT) and nobody.metrics["trusted_sites"] == 0


def test_a_server_whose_own_model_did_not_move_moves_nothing():
    assert flatten(aggregate([draw("u0")], trusted=SENT).tensors) == flatten(SENT)


def test_without_the_servers_own_update_it_is_refused():
    with pytest.raises(RunError, match="no update of the server"):
        aggregate([draw("u0")], trusted=None)
