"""Who takes part: exact counts, one order, and draws that repeat."""

import math

import pytest
import torch

from vitrail.config.schema import Run
from vitrail.engine.sampling import draw_sites, order_sites
from vitrail.rng import Key, derive_server_key

EXAMPLES = {f"s{i}": float(5 + (i * 7) % 11) for i in range(10)}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.25, 0.3, 0.5, 0.7, 0.99, 1.0])
def test_participation_is_exact_and_fair(share):
    counts = dict.fromkeys(EXAMPLES, 0)
    for round_ in range(200):
        found = draw_sites(
            EXAMPLES, Run(participation=share), derive_server_key(1).at("round", round_), False
        )
        assert len(found.sites) == len(set(found.sites)) == max(1, math.ceil(share * 10 - 1e-9))
        assert list(found.sites) == order_sites({s: EXAMPLES[s] for s in found.sites})
        for site in found.sites:
            counts[site] += 1
    expected = 200 * max(1, math.ceil(share * 10 - 1e-9)) / 10
    assert max(abs(c - expected) for c in counts.values()) < 5 * math.sqrt(expected) + 1e-9
    assert draw_sites(
        EXAMPLES, Run(participation=share), derive_server_key(1), True
    ).sites == tuple(order_sites(EXAMPLES))


def test_largest_first_then_by_name():
    assert order_sites({"b": 3, "a": 3, "z": 9, "c": 1}) == ["z", "a", "b", "c"]
    assert order_sites({}) == []


def test_dropout_has_its_rate_and_its_reason():
    gone = kept = 0
    for round_ in range(300):
        found = draw_sites(
            EXAMPLES, Run(dropout=0.4), derive_server_key(2).at("round", round_), False
        )
        assert set(found.sites) | set(found.dropped) == set(EXAMPLES)
        assert not set(found.sites) & set(found.dropped)
        assert set(found.dropped.values()) <= {"dropped out"}
        gone, kept = gone + len(found.dropped), kept + len(found.sites)
    assert abs(gone / (gone + kept) - 0.4) < 4 * math.sqrt(0.24 / 3000)


def test_a_deadline_drops_the_same_slow_sites_every_round():
    run = Run(deadline=1.5, slowness=0.8)
    rounds = [
        draw_sites(EXAMPLES, run, derive_server_key(3).at("round", r), False) for r in range(5)
    ]
    late = set(rounds[0].dropped)
    assert late and all(set(r.dropped) == late for r in rounds)
    assert set(rounds[0].dropped.values()) == {"missed the deadline"}
    root = Key(derive_server_key(3).root).at("slowness")
    times = {
        s: n * math.exp(0.8 * float(root.at(s).numpy().standard_normal()))
        for s, n in EXAMPLES.items()
    }
    median = sorted(times.values())
    assert late == {s for s, t in times.items() if t > 1.5 * (median[4] + median[5]) / 2}
    assert draw_sites(EXAMPLES, Run(deadline=1e9), derive_server_key(3), False).dropped == {}


def test_draws_differ_between_rounds_and_seeds_and_repeat():
    run = Run(participation=0.5, dropout=0.2)
    first = [
        draw_sites(EXAMPLES, run, derive_server_key(1).at("round", r), False) for r in range(5)
    ]
    assert first == [
        draw_sites(EXAMPLES, run, derive_server_key(1).at("round", r), False) for r in range(5)
    ]
    assert len({r.sites for r in first}) > 1
    assert first != [
        draw_sites(EXAMPLES, run, derive_server_key(2).at("round", r), False) for r in range(5)
    ]


def test_too_few_sites_make_a_void_round(tiny, ending):
    run = {"rounds": 2, "min_sites": 4, "dropout": 0.9}
    void = tiny("void", run=run, method={"name": "scaffold"})
    start = tiny("start", run={"rounds": 0}, method={"name": "scaffold"})
    after, before = ending(void.path), ending(start.path)
    assert all(torch.equal(after[n], before[n]) for n in before)
    assert not any("/own/" in name for name in after) and not after["state/control"].any()
    log = (void.path / "log.txt").read_text()
    assert "round 1: void" in log and "round 2: void" in log
