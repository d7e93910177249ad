"""Aggregation rules against slow formulas in float64, and one table of axioms over all of them."""

import math

import pytest
import torch
from scipy.optimize import minimize

from vitrail.aggregate import RULES, Aggregator
from vitrail.config.schema import Aggregate
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

# Rules for numbers of any shape; those for prototypes, centers and frames have tests of their own.
OWN = ("matched", "centers", "grassmann", "karcher", "stiefel", "fltrust")
PLAIN = [name for name in RULES if not name.startswith(OWN)]

NAMES = {"model/a": (4, 3), "model/b": (5,)}
KEY = derive_server_key(4)
KEY0 = derive_server_key(0)  # where an aggregator without a round draws buckets


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
        drop = math.ceil(trim * n)
        return [sum(sorted(c)[drop : n - drop]) / (n - 2 * drop) for c in columns]
    if rule in ("krum", "multi-krum"):
        scores = []
        for i in range(n):
            away = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(n) if j != i)
            scores.append(sum(away[: n - byzantine - 2]))
        best = sorted(range(n), key=lambda i: scores[i])
        best = best[:1] if rule == "krum" else best[: n - byzantine]
        return (sum(rows[i] for i in best) / len(best)).tolist()
    if rule == "geometric-median":  # SciPy's own search, from the mean

        def cost(z):
            return sum(w * float((r - torch.tensor(z)).norm()) for w, r in zip(weights, rows))

        start = sum(w * r for w, r in zip(weights, rows)) / total
        return minimize(cost, start.numpy(), method="BFGS", options={"gtol": 1e-9}).x.tolist()
    if rule == "centered-clipping":
        center = sent.clone()
        for _ in range(3):
            away = sorted(float((r - center).norm()) for r in rows)
            radius = away[(n - 1) // 2]
            moves = [(r - center) * min(1.0, radius / float((r - center).norm())) for r in rows]
            center = center + sum(w / total * m for w, m in zip(weights, moves))
        return center.tolist()
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


@pytest.mark.parametrize("count", [5, 6, 7])
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
    near = 1e-5 if rule == "geometric-median" else 2e-7
    torch.testing.assert_close(flat(sums.tensors), expected, rtol=near, atol=near)
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
    wide = {"clip": 1e6, "radius": 1e6}  # clipping has its own test
    one = updates(1, tau=3.0)
    if rule in FEWEST:
        assert not aggregate(rule, one, [5.0], **wide).tensors
    else:
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


@pytest.mark.parametrize("rule", PLAIN)
def test_what_moves_or_grows_with_the_updates(rule, monkeypatch):
    """Every rule for numbers follows a shift of everything, and a change of unit."""
    wide, weights = {"clip": 1e6, "radius": 1e6}, [1.0, 2.0, 3.0, 4.0, 5.0]
    found = updates(5)
    first = flat(aggregate(rule, found, weights, **wide).tensors)
    for scale, shift in ((1.0, 3.0), (4.0, 0.0)):
        moved = [
            Update(
                u.site, 1, "train", {n: scale * t + shift for n, t in u.tensors.items()}, u.counts
            )
            for u in found
        ]
        sent = {n: scale * t + shift for n, t in SENT.items()}
        with monkeypatch.context() as patch:
            patch.setitem(globals(), "SENT", sent)
            after = flat(aggregate(rule, moved, weights, **wide).tensors)
        torch.testing.assert_close(after, scale * first + shift, rtol=2e-6, atol=2e-6)


FEWEST = {"trimmed-mean": 3, "krum": 5, "multi-krum": 5}


@pytest.mark.parametrize("rule", FEWEST)
def test_too_few_sites_are_said_and_change_nothing(rule):
    """Krum took one of three for safe, and trimmed-mean trimmed nothing, without a word."""
    least = FEWEST[rule]
    for count in range(1, least + 2):
        sums = aggregate(rule, updates(count), [1.0] * count)
        assert bool(sums.tensors) == (count >= least), count
        assert bool(sums.shortage) == (count < least)
        assert len(sums.accepted) == count
    assert "aggregate." in aggregate(rule, updates(1), [1.0]).shortage


def test_any_share_trims_somebody_at_each_end():
    for count in (3, 5, 9, 10, 11, 30):
        sums = aggregate("trimmed-mean", updates(count), [1.0] * count, trim=0.1)
        assert sums.metrics["trimmed"] == 2 * math.ceil(count / 10)
    assert aggregate("trimmed-mean", updates(5), [1.0] * 5, trim=0.0).metrics["trimmed"] == 0


@pytest.mark.parametrize("rule", ["median", "geometric-median", "multi-krum", "centered-clipping"])
def test_buckets_are_means_of_a_few_that_a_rule_then_sees(rule):
    found, weights = updates(12), [float(i + 1) for i in range(12)]
    options = {"bucket": 2, "byzantine": 1}
    sums = aggregate(rule, found, weights, **options)
    order = KEY0.at("buckets").numpy().permutation(12)
    pairs = [order[i : i + 2] for i in range(0, 12, 2)]
    weigh = RULES[rule].weighs
    merged = []
    for i, pair in enumerate(pairs):
        share = [weights[j] if weigh else 1.0 for j in pair]
        tensors = {
            n: sum(w * found[j].tensors[n].double() for w, j in zip(share, pair)) / sum(share)
            for n in NAMES
        }
        tensors = {n: t.float() for n, t in tensors.items()}
        merged.append(Update(f"b{i}", 1, "train", tensors, {"tau": 1.0}))
    by_hand = aggregate(rule, merged, [weights[a] + weights[b] for a, b in pairs], byzantine=1)
    torch.testing.assert_close(flat(sums.tensors), flat(by_hand.tensors), rtol=1e-5, atol=1e-5)


def test_buckets_that_half_of_could_be_spoiled_are_refused():
    for count, refused in ((8, True), (9, False)):
        sums = aggregate("median", updates(count), [1.0] * count, bucket=2, byzantine=2)
        assert bool(sums.shortage) == refused


ROBUST = [
    "median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "geometric-median",
    "centered-clipping",
    "norm-clip",
]


@pytest.mark.parametrize("rule", ROBUST)
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


def test_the_geometric_median_stands_at_a_site_that_holds_most_of_the_weight():
    found = updates(4)
    sums = aggregate("geometric-median", found, [10.0, 1.0, 1.0, 1.0])
    torch.testing.assert_close(flat(sums.tensors), flat(found[0].tensors), rtol=1e-4, atol=1e-4)
    assert sums.metrics["largest_share"] > 0.999


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
