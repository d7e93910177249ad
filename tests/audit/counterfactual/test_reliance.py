"""A shortcut planted by hand moves its site's own model; what all models know moves both."""

import numpy as np
import pytest

from vitrail.audit.counterfactual.effects import Effect, Probe, probe
from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.counterfactual.reliance import compute_reliance
from vitrail.audit.detection.feature_layout import Unit
from vitrail.rng import derive_server_key

CORNER, MIDDLE = (
    Unit("tone", "place", np.arange(3), box)
    for box in ((0.0, 0.75, 0.25, 1.0), (0.375, 0.375, 0.625, 0.625))
)


def probes(desk, place=CORNER, seed=0):
    key = derive_server_key(seed).at("audit")
    found = [probe(desk, label, place, key.at(label)) for label in range(3)]
    return [one for one in found if one is not None]


def test_a_planted_shortcut_moves_the_own_model(make_desk):
    desk = make_desk()
    tried = probes(desk)
    first, *others = compute_reliance(tried)
    assert first > 3 and first > max(others)
    left = tried[0].covered
    assert left["local"].accuracy == 1.0 and left["local"].without < 0.7
    assert left["shared"].without == left["shared"].accuracy == 1.0
    assert left["local"].drop > 1 > abs(left["shared"].drop)
    assert tried[0].effect.flipped["local"] > 0.2 > tried[0].effect.flipped["shared"]


def test_what_both_models_know_is_no_shortcut(make_desk):
    """The same model twice: nothing can move one more than the other."""
    tried = probes(make_desk(mark=False), MIDDLE)
    assert all(one.effect.swapped["local"] > 1 for one in tried)
    assert all(value <= 0.01 for value in compute_reliance(tried))


def test_the_same_key_gives_the_same_numbers(make_desk):
    desk = make_desk()
    one, two = (compute_reliance(probes(desk, seed=3)) for _ in range(2))
    assert one == two != compute_reliance(probes(desk, seed=4))


@pytest.mark.parametrize("counts", [(2, 12, 12), (0, 12, 12)])
def test_too_few_images_are_not_probed(make_desk, counts):
    desk = make_desk(counts=counts)
    assert probe(desk, 0, CORNER, derive_server_key(0)) is None
    assert probe(desk, 1, CORNER, derive_server_key(0)) is not None


def test_one_class_is_not_probed(make_desk):
    desk = make_desk(counts=(12, 0, 0))
    assert probes(desk) == [] and compute_reliance([]) == []


def effect(kind, local, shared):
    return Effect(Region(kind), {"local": local, "shared": shared}, {})


def test_it_is_the_smaller_of_two_standard_scores():
    random = [effect("random", v, w) for v, w in ((0.0, 0.0), (1.0, 0.5), (2.0, 0.0), (1.0, 1.5))]
    tried = [effect("color", 9.0, 9.0), effect("color", 5.0, 1.0), effect("place", 3.0, -4.0)]
    mean, spread = 1.0, (2 / 3) ** 0.5
    apart, middle = [0.0, 0.5, 2.0, -0.5], 0.5
    width = (sum((a - middle) ** 2 for a in apart) / 3) ** 0.5
    for one in tried:
        wanted = min(
            (one.swapped["local"] - mean) / spread,
            (one.swapped["local"] - one.swapped["shared"] - middle) / width,
        )
        assert compute_reliance([Probe(0, None, one, tuple(random))]) == pytest.approx([wanted])


def test_random_regions_that_do_nothing_do_not_make_everything_certain():
    still = (effect("random", 0.0, 0.0),) * 4
    (found,) = compute_reliance([Probe(0, None, effect("color", 0.01, 0.0), still)])
    assert 0 < found < 1
