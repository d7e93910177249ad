"""How odd updates are: the sketch against whole updates, hostile ones against honest ones."""

from __future__ import annotations

import pytest
import torch

from vitrail.aggregate.update_watch import FEWEST, LARGEST, UpdateWatch, _deviate, _sketch
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

KEY = derive_server_key(5)
SHAPE = (40, 50)
SENT = {"model/a": torch.randn(SHAPE, generator=KEY.at("sent").torch())}
SCHEMA = Schema((Field("model/a", SHAPE),), (Field("model/a", SHAPE),))
COMMON = 0.05 * torch.randn(SHAPE, generator=KEY.at("common").torch())


def change(at):
    return COMMON + 0.05 * torch.randn(SHAPE, generator=KEY.at("site", at).torch())


def compare(changes):
    watch = UpdateWatch(SCHEMA, SENT)
    for site, moved in changes.items():
        watch.add(Update(site, 1, "t", {"model/a": SENT["model/a"] + moved}))
    return watch.compare()


def test_a_sketch_keeps_lengths_and_angles():
    a, b = (torch.randn(30_000, generator=KEY.at(i).torch()).double() for i in (1, 2))
    b = a + 0.5 * b
    for x, y in ((a, a), (a, b), (b, b)):
        assert float(_sketch(x) @ _sketch(y)) == pytest.approx(float(x @ y), rel=0.15)
    assert torch.equal(_sketch(a), _sketch(a))


def test_deviations_are_from_the_others_alone():
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 100.0])
    others = sorted([1.0, 2.0, 3.0, 4.0])
    middle = (others[1] + others[2]) / 2
    spread = 1.4826 * (sorted(abs(v - middle) for v in others)[1] + 1.5) / 2
    assert float(_deviate(values)[4]) == min(LARGEST, (100 - middle) / spread)
    assert float(_deviate(values)[0]) == 0.0  # below the others is not odd


HOSTILE = {
    "norm": lambda i: 5 * change(i),
    "direction": lambda i: -change(i),
    "twin": lambda i: change(0),
    "distance": lambda i: change(i) + 0.3 * torch.randn(SHAPE, generator=KEY.at("far").torch()),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_update_is_the_oddest_and_says_in_what(kind):
    honest = {f"s{i}": change(i) for i in range(9)}
    calm = max(odd.score for odd in compare(honest).values())
    odd = compare({**honest, "bad": HOSTILE[kind](9)})
    assert odd["bad"].score > max(5.0, 2 * calm)
    assert getattr(odd["bad"], kind) > 3.0
    others = [site for site in honest if not (kind == "twin" and site == "s0")]
    assert all(odd[site].score < odd["bad"].score for site in others)


@pytest.mark.parametrize("count", [0, 1, FEWEST - 1])
def test_too_few_updates_are_not_compared(count):
    assert compare({f"s{i}": change(i) for i in range(count)}) == {}


def test_equal_silent_and_broken_updates_are_no_crash():
    same = compare({f"s{i}": COMMON for i in range(5)})
    assert all(odd.score == 0 for odd in same.values())
    still = compare({f"s{i}": torch.zeros(SHAPE) for i in range(5)})
    assert all(odd.score == 0 for odd in still.values())
    mixed = compare({**{f"s{i}": change(i) for i in range(5)}, "z": torch.zeros(SHAPE)})
    assert all(0 <= odd.score <= LARGEST for odd in mixed.values())
    assert (
        compare({**{f"s{i}": change(i) for i in range(5)}, "n": torch.full(SHAPE, torch.nan)}) == {}
    )
