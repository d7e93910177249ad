"""A bad update is refused with a sentence and never averaged in; the round goes on."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail.aggregate import RULES, Aggregator
from vitrail.config.schema import Aggregate
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update

FIELDS = (
    Field("model/a", (3, 2)),
    Field("model/b", ()),
    Field("model/none", (0, 4)),
    Field("extra", (5,), "uniform", bound=50.0),
    Field("count", (2,), "uniform", torch.int64),
)
SCHEMA = Schema(FIELDS, FIELDS, ("examples", "steps"), ("loss", "seconds"))
SENT = {"model/a": torch.ones(3, 2), "model/b": torch.tensor(1.0), "model/none": torch.empty(0, 4)}


def good(seed, site="s", **changes):
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        f.name: torch.randint(9, f.shape, generator=generator)
        if f.dtype == torch.int64
        else torch.randn(f.shape, generator=generator)
        for f in FIELDS
    }
    whole = {
        "site": site,
        "round": 2,
        "stage": "train",
        "tensors": tensors,
        "counts": {"examples": 7, "steps": 2},
        "metrics": {"loss": 0.5, "seconds": None},
    }
    return Update(**{**whole, **changes})


def with_tensor(name, value):
    return {"tensors": {**good(0).tensors, name: value}}


def poisoned(name, *values):
    tensor = good(0).tensors[name].clone()
    tensor.view(-1)[: len(values)] = torch.tensor(values)
    return with_tensor(name, tensor)


INF, NAN = math.inf, math.nan
# what is wrong: (fields of the update that differ, weight, a word of the sentence)
BAD = {
    "nan": (poisoned("model/a", NAN), 1.0, "finite"),
    "inf": (poisoned("model/a", INF), 1.0, "finite"),
    "minus inf": (poisoned("extra", -INF), 1.0, "finite"),
    "inf and minus inf": (poisoned("model/a", INF, -INF), 1.0, "finite"),
    "nan scalar": (with_tensor("model/b", torch.tensor(NAN)), 1.0, "finite"),
    "huge": (poisoned("model/a", 1e30), 1.0, "limit"),
    "huge but opposite": (poisoned("model/a", 3e38, -3e38), 1.0, "limit"),
    "over its own bound": (poisoned("extra", 51.0), 1.0, "bound"),
    "shape": (with_tensor("model/a", torch.ones(2, 3)), 1.0, "shape"),
    "flattened": (with_tensor("model/a", torch.ones(6)), 1.0, "shape"),
    "broadcastable": (with_tensor("model/a", torch.ones(1, 2)), 1.0, "shape"),
    "scalar for a vector": (with_tensor("model/b", torch.ones(1)), 1.0, "shape"),
    "rows in an empty tensor": (with_tensor("model/none", torch.ones(1, 4)), 1.0, "shape"),
    "float64": (with_tensor("model/a", torch.ones(3, 2, dtype=torch.float64)), 1.0, "float32"),
    "float16": (with_tensor("model/a", torch.ones(3, 2, dtype=torch.float16)), 1.0, "float32"),
    "complex": (with_tensor("model/a", torch.ones(3, 2, dtype=torch.complex64)), 1.0, "float32"),
    "extra tensor": (with_tensor("model/zzz", torch.ones(1)), 1.0, "declared"),
    "missing tensor": ({"tensors": {"model/a": torch.ones(3, 2)}}, 1.0, "missing"),
    "no tensor": ({"tensors": {}}, 1.0, "missing"),
    "negative weight": ({}, -1.0, "weight"),
    "nan weight": ({}, NAN, "weight"),
    "infinite weight": ({}, INF, "weight"),
    "zero examples": ({"counts": {"examples": 0, "steps": 2}}, 1.0, "examples"),
    "negative steps": ({"counts": {"examples": 7, "steps": -1}}, 1.0, "steps"),
    "nan examples": ({"counts": {"examples": NAN, "steps": 2}}, 1.0, "examples"),
    "text examples": ({"counts": {"examples": "7", "steps": 2}}, 1.0, "examples"),
    "beyond floats": ({"counts": {"examples": 10**400, "steps": 2}}, 1.0, "examples"),
    "no counts": ({"counts": {}}, 1.0, "counts"),
    "missing count": ({"counts": {"examples": 7}}, 1.0, "counts"),
    "extra count": ({"counts": {"examples": 7, "steps": 2, "tau": 3}}, 1.0, "counts"),
    "undeclared metric": ({"metrics": {"patient": 3.0}}, 1.0, "patient"),
    "text metric": ({"metrics": {"loss": "J. Doe, 1948"}}, 1.0, "number"),
    "endless metric": ({"metrics": {"loss": -(10**400)}}, 1.0, "number"),
    "list metric": ({"metrics": {"loss": [1.0]}}, 1.0, "number"),
    "another site": ({"site": "other"}, 1.0, "other"),
    "another round": ({"round": 1}, 1.0, "round 1"),
    "another stage": ({"stage": "warm"}, 1.0, "warm"),
}


def aggregate(offers, rule="mean"):
    fields = tuple(
        Field(f.name, f.shape, rule if f.rule == "mean" else f.rule, f.dtype, f.bound)
        for f in FIELDS
    )
    counts = ("examples", "steps", *(("tau",) if rule == "nova" else ()))
    total = Aggregator(Schema(fields, fields, counts, SCHEMA.metrics), SENT, Aggregate())
    reasons = [total.offer(update, weight, (site, 2, "train")) for site, update, weight in offers]
    return reasons, total.finish()


def same(a, b):
    return a.tensors.keys() == b.tensors.keys() and all(
        torch.equal(a.tensors[n], b.tensors[n]) for n in a.tensors
    )


@pytest.mark.parametrize("rule", ["mean", "median", "krum", "norm-clip"])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_update_is_refused_and_changes_nothing(what, rule):
    changes, weight, word = BAD[what]
    honest = [(f"h{i}", good(i + 1, f"h{i}"), 1.0 + i) for i in range(3)]
    bad = ("s", good(0, **changes), weight)
    reasons, sums = aggregate([honest[0], bad, *honest[1:]], rule)
    assert reasons[0] is None and reasons[2] is None and reasons[3] is None
    assert isinstance(reasons[1], str) and word in reasons[1] and "\n" not in reasons[1]
    assert sums.accepted == ("h0", "h1", "h2") and sums.refused == {"s": reasons[1]}
    assert same(sums, aggregate(honest, rule)[1])


@given(
    name=st.sampled_from(["model/a", "model/b", "extra"]),
    at=st.integers(0, 5),
    value=st.sampled_from([NAN, INF, -INF, 1e20, -1e38]),
    others=st.floats(-3, 3, width=32),
    place=st.integers(0, 3),
)
@settings(max_examples=100, deadline=None)
def test_one_bad_number_anywhere_is_found(name, at, value, others, place):
    tensor = torch.full(good(0).tensors[name].shape, others)
    tensor.view(-1)[at % tensor.numel()] = value
    offers = [(f"h{i}", good(i, f"h{i}"), 1.0) for i in range(3)]
    without = aggregate(offers)[1]
    offers.insert(place, ("s", good(0, **with_tensor(name, tensor)), 1.0))
    reasons, sums = aggregate(offers)
    assert reasons[place] and same(sums, without)


@given(value=st.one_of(st.floats(), st.integers(), st.text(max_size=3), st.none(), st.booleans()))
@settings(max_examples=200, deadline=None)
def test_counts_and_metrics_of_any_kind_never_raise(value):
    counts = {"examples": value, "steps": 2}
    reasons, _ = aggregate([("s", good(1, counts=counts), 1.0)])
    fine = isinstance(value, int | float) and 1 <= value <= 2**53
    assert (reasons[0] is None) == fine
    reasons, _ = aggregate([("s", good(1, metrics={"loss": value}), 1.0)])
    small = isinstance(value, int) and abs(value) <= 2**53
    assert (reasons[0] is None) == (value is None or isinstance(value, float) or small)


def test_a_good_update_passes_and_an_empty_tensor_stays_empty():
    reasons, sums = aggregate([("s", good(1), 3.0)])
    assert reasons == [None] and sums.tensors["model/none"].shape == (0, 4)
    for name, tensor in good(1).tensors.items():
        torch.testing.assert_close(sums.tensors[name], tensor, rtol=1e-6, atol=1e-7)
        assert sums.tensors[name].dtype == tensor.dtype


# Rules for prototypes, centers and frames refuse tensors of other shapes.
OWN = ("matched", "centers", "grassmann", "karcher", "stiefel")


@pytest.mark.parametrize("rule", [r for r in RULES if not r.startswith(OWN)])
def test_nobody_left_gives_no_tensors_and_no_error(rule):
    reasons, sums = aggregate([("s", good(0, **poisoned("model/a", NAN)), 1.0)], rule)
    assert reasons[0] and sums.tensors == {} and sums.accepted == ()
    assert aggregate([], rule)[1].tensors == {}


def test_weights_that_are_all_zero_give_no_tensors():
    assert aggregate([("s", good(1), 0.0)])[1].tensors == {}
