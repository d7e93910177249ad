"""Aggregation rules against slow formulas in float64, and one table of axioms over all of them."""

import pytest
import torch

from vitrail.aggregate import RULES, Aggregator
from vitrail.config.schema import Aggregate
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

# Rules for numbers of any shape; those for prototypes, centers and frames have tests of their own.
OWN = ("matched", "centers", "grassmann", "karcher", "stiefel")
PLAIN = [name for name in RULES if not name.startswith(OWN)]

NAMES = {"model/a": (4, 3), "model/b": (5,)}
KEY = derive_server_key(4)


def updates(count, key="u", scale=1.0, tau=None):
    generator = KEY.at(key).torch()
    found = []
    for i in range(count):
        tensors = {n: scale * torch.randn(s, generator=generator) for n, s in NAMES.items()}
        found.append(
            Update(f"s{i}", 1, "train", tensors, {"tau": float(i + 1) if tau is None else tau})
        )
    return found


SENT = {n: torch.randn(s, generator=KEY.at("sent").torch()) for n, s in NAMES.items()}


def aggregate(rule, found, weights, **options):
    fields = tuple(Field(n, s, rule) for n, s in NAMES.items())
    total = Aggregator(Schema(fields, fields, ("tau",)), SENT, Aggregate(rule=rule, **options))
    for update, weight in zip(found, weights, strict=True):
        assert total.offer(update, weight, (update.site, 1, "train")) is None
    return total.finish()


def flat(tensors):
    return torch.cat([tensors[n].reshape(-1) for n in NAMES]).double()


def literal(rule, rows, sent, weights, taus, trim, byzantine, clip):
    """Coordinate by coordinate, in Python's own floats."""
    n, total = len(rows), sum(weights)
    columns = list(zip(*[r.tolist() for r in rows], strict=True))
    if rule == "mean":
        return [sum(w * v for w, v in zip(weights, col, strict=True)) / total for col in columns]
    if rule == "uniform":
        return [sum(col) / n for col in columns]
    if rule == "median":
        return [(sorted(c)[(n - 1) // 2] + sorted(c)[n // 2]) / 2 for c in columns]
    if rule == "trimmed-mean":
        drop = int(trim * n)
        return [sum(sorted(c)[drop : n - drop]) / (n - 2 * drop) for c in columns]
    if rule == "krum":
        scores = []
        for i in range(n):
            away = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(n) if j != i)
            scores.append(sum(away[: n - byzantine - 2]))
        return rows[scores.index(min(scores))].tolist()
    if rule == "norm-clip":
        moved = torch.zeros_like(sent)
        for w, row in zip(weights, rows, strict=True):
            moved += w / total * (row - sent) * min(1.0, clip / float((row - sent).norm()))
        return (sent + moved).tolist()
    if rule == "nova":
        shares = [w / total for w in weights]
        effective = sum(p * t for p, t in zip(shares, taus, strict=True))
        steps = [p / t * (sent - r) for p, t, r in zip(shares, taus, rows, strict=True)]
        return (sent - effective * torch.stack(steps).sum(0)).tolist()
    raise AssertionError(f"write down what {rule} computes")


@pytest.mark.parametrize("count", [4, 5, 7])
@pytest.mark.parametrize("rule", PLAIN)
def test_against_the_formula(rule, count):
    found, weights = updates(count), [3.0, 1.0, 0.5, 10.0, 2.0, 7.0, 0.0][:count]
    options = {"trim": 0.25, "byzantine": 1, "clip": 4.0}
    sums = aggregate(rule, found, weights, **options)
    taus = [u.counts["tau"] for u in found]
    rows, sent = [flat(u.tensors) for u in found], flat(SENT)
    expected = torch.tensor(
        literal(rule, rows, sent, weights, taus, **options), dtype=torch.float64
    )
    torch.testing.assert_close(flat(sums.tensors), expected, rtol=2e-7, atol=2e-7)
    if rule == "norm-clip":  # the test must see both kinds
        clipped = sum(float((r - sent).norm()) > 4.0 for r in rows)
        assert 0 < clipped < count and sums.metrics["clipped"] == clipped
    if rule == "nova":
        shares = [w / sum(weights) for w in weights]
        assert sums.metrics["tau_eff"] == pytest.approx(
            sum(p * t for p, t in zip(shares, taus, strict=True))
        )


@pytest.mark.parametrize("rule", PLAIN)
def test_axioms(rule):
    wide = {"clip": 1e6}  # clipping has its own test
    one = updates(1, tau=3.0)
    alone = flat(aggregate(rule, one, [5.0], **wide).tensors)
    torch.testing.assert_close(alone, flat(one[0].tensors), rtol=1e-6, atol=1e-6)
    equal = [Update(f"s{i}", 1, "train", one[0].tensors, one[0].counts) for i in range(5)]
    alike = flat(aggregate(rule, equal, [1.0, 2.0, 3.0, 4.0, 5.0], **wide).tensors)
    torch.testing.assert_close(alike, flat(one[0].tensors), rtol=1e-6, atol=1e-6)
    found, weights = updates(5), [1.0, 2.0, 3.0, 4.0, 5.0]
    first = flat(aggregate(rule, found, weights, **wide).tensors)
    order = [3, 0, 4, 2, 1]
    mixed = aggregate(rule, [found[i] for i in order], [weights[i] for i in order], **wide)
    torch.testing.assert_close(flat(mixed.tensors), first, rtol=1e-6, atol=1e-6)
    scaled = aggregate(rule, found, [w / 1024 for w in weights], **wide)
    torch.testing.assert_close(flat(scaled.tensors), first, rtol=1e-6, atol=1e-6)
    again = aggregate(rule, found, weights, **wide)
    assert torch.equal(flat(again.tensors), first)


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", "krum", "norm-clip"])
def test_one_hostile_site_does_not_decide(rule):
    found = updates(6, "honest", scale=0.1)
    hostile = {n: torch.full(s, 60.0) for n, s in NAMES.items()}
    found[2] = Update("s2", 1, "train", hostile, {"tau": 1.0})
    sums = aggregate(rule, found, [1.0] * 6, trim=0.2, byzantine=1, clip=1.0)
    assert flat(sums.tensors).abs().max() < 3.0
    plain = aggregate("mean", found, [1.0] * 6)
    assert flat(plain.tensors).abs().max() > 9.0  # without the rule it would
    if rule == "krum":
        honest = [flat(u.tensors) for i, u in enumerate(found) if i != 2]
        assert sums.metrics["chosen"] != 2
        assert any(torch.equal(flat(sums.tensors), row) for row in honest)


def test_krum_tells_updates_apart_that_lie_far_from_zero():
    """Distances from a Gram matrix lose digits when all updates share a large offset."""
    global SENT
    base = {n: torch.full(s, 1000.0) for n, s in NAMES.items()}
    before, SENT = SENT, base
    try:
        found = [
            Update(f"s{i}", 1, "train", {n: base[n] + d for n in NAMES}, {"tau": 1.0})
            for i, d in enumerate([0.0, 0.001, 0.0011, 0.5, 0.0012])
        ]
        assert aggregate("krum", found, [1.0] * 5, byzantine=1).metrics["chosen"] in (1, 2, 4)
    finally:
        SENT = before
