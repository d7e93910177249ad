"""Weights are those of the terms: a server that chooses others gets no sum."""

from __future__ import annotations

import numpy as np
import pytest

from vitrail.aggregate.bounded_weights import bound_weights
from vitrail.engine import round as rounds
from vitrail.engine.storage.transcript import Recording
from vitrail.engine.weigh_sites import weigh_sites
from vitrail.files import read_tensors
from vitrail.secure_aggregation.weight_terms import WeightTerms

pytest.importorskip("cryptography")
SECURE = {"secure_sum": True}
PRIVATE = {"secure_sum": True, "defenses": ["client-dp"]}
PRIVATE["client-dp"] = {"where": "distributed", "noise": 1.0, "delta": 1e-3}


def make_terms(site, own, alike=False, largest=3.0, factors=None):
    factors = factors or {}
    return WeightTerms(site, own, alike, largest, lambda name: factors.get(name, 1.0))


def choose(monkeypatch, change):
    """A server that weighs sites as it likes."""
    monkeypatch.setattr(rounds, "weigh_sites", lambda *given: change(weigh_sites(*given)))


def favor_two(weights):
    """The victim and a site that works for the server; the rest count next to nothing."""
    first, second, *others = sorted(weights)
    return {first: 1.0, second: 1.0, **dict.fromkeys(others, 1e-6)}


def test_a_server_and_one_site_do_not_read_anothers_update_off_chosen_weights(
    tiny, monkeypatch
) -> None:
    """Half the weight each: what is left of the sum without its own site is the victim's update."""
    choose(monkeypatch, favor_two)
    small = {"backbone": "small-cnn", "width": 4}
    sections = {"model": small, "run": {"rounds": 1, "record_updates": True}}
    plain = tiny("plain", **sections)
    secure = tiny("secure", **sections, release=SECURE)
    recording = Recording(plain.path / "server")
    victim, own = recording.sites(1)[:2]
    seen, known = (recording.read_received(1, s).update.tensors for s in (victim, own))
    summed = read_tensors(sorted((secure.path / "server" / "checkpoints").glob("*"))[-1])[0]
    change, error = 0.0, 0.0
    for name, start in recording.read_sent(1).items():
        read = 2 * summed[name].double() - known[name].double()
        change += float((seen[name].double() - start.double()).square().sum())
        error += float((read - seen[name].double()).square().sum())
    assert error > 1e-2 * change  # the victim's change of the model, within a few parts in 10^5
    log = (secure.path / "log.txt").read_text()
    assert "round 1: void" in log and "what this site counts as" in log


@pytest.mark.parametrize("release", [SECURE, PRIVATE])
def test_weights_that_are_not_the_terms_void_the_round(release, tiny, monkeypatch) -> None:
    choose(monkeypatch, lambda w: {s: 1.0 + 0.1 * (s == "site-00") for s in w})
    more = {"model": {"backbone": "small-cnn", "width": 4, "norm": "group"}}
    uniform = {"aggregate": {"weights": "uniform"}}
    run = tiny(release=release, run={"rounds": 1}, **uniform, **more)
    log = (run.path / "log.txt").read_text()
    assert "round 1: void" in log and "every site counts the same" in log


def test_true_weights_pass_and_a_changed_one_is_seen_by_its_own_site() -> None:
    """Whatever the counts: no honest site objects to the truth, and each objects to another number
    of its own, unless the bound makes it the same."""
    draw = np.random.Generator(np.random.PCG64(7))
    for _ in range(300):
        names = [f"s{n}" for n in range(int(draw.integers(2, 9)))]
        counts = {n: float(draw.integers(1, 10 ** int(draw.integers(1, 5)))) for n in names}
        largest = [None, 1.0, 3.0][int(draw.integers(3))]
        factors = {n: float(draw.choice([1.0, 0.5])) for n in names}
        bare = bound_weights(counts, largest)
        weights = {n: bare[n] * factors[n] for n in names}
        for name in names:
            terms = make_terms(name, counts[name], False, largest, factors)
            assert terms.find_problem(weights) is None
            for other in (0.5, 2.0, 1.001, 1e-6):
                changed = {**weights, name: weights[name] * other}
                assert terms.find_problem(changed) is not None


@pytest.mark.parametrize(
    "weights, says",
    [
        ({"a": 1.0, "b": float("nan")}, "not a number"),
        ({"a": 1.0, "b": -1.0}, "not a number"),
        ({"a": 1.0, "b": float("inf")}, "not a number"),
        ({"a": 10.0, "b": 10.0, "c": 31.0}, "3 times the median"),
        ({"a": 9.0, "b": 10.0, "c": 10.0}, "what this site counts as"),
        ({"a": 10.0, "b": 10.0, "left": 1.0}, "without weight"),
        ({"a": 10.0, "b": 1e-9, "c": 1e-9}, "3 times the median"),
        ({}, None),
        ({"a": 10.0, "b": 30.0}, None),
    ],
)
def test_what_is_wrong_is_said(weights, says) -> None:
    terms = make_terms("a", 10.0, factors={"left": 0.0})
    problem = terms.find_problem(weights)
    assert problem is None if says is None else says in problem


def test_weights_that_follow_from_what_others_told_are_bounded_all_the_same() -> None:
    terms = make_terms("a", None)
    assert terms.find_problem({"a": 0.2, "b": 0.3, "c": 0.4}) is None
    assert "3 times" in terms.find_problem({"a": 0.9, "b": 0.1, "c": 0.1})
