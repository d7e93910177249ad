"""A shortcut planted by hand scores high at its class; what all models know does not."""

import pytest

from vitrail.audit.effects import Effect, Probe, covered, probe
from vitrail.audit.regions import Region
from vitrail.audit.score import scores
from vitrail.rng import server


def probes(desk, seed=0):
    key = server(seed).at("audit")
    return [p for label in range(3) if (p := probe(desk, label, key.at(label))) is not None]


def test_a_planted_shortcut_is_found_at_its_class_and_place(make_desk):
    desk = make_desk()
    found = scores(probes(desk))
    first, *others = sorted(found, key=lambda s: -s.score)
    assert first.probe.label == 0 and first.effect.region.kind == "local"
    assert first.score > 3 and all(first.score > 3 * other.score for other in others)
    left = covered(desk, first.probe, first.effect.region)
    assert left["local"].accuracy == 1.0 and left["local"].without < 0.7
    assert left["shared"].without == left["shared"].accuracy == 1.0
    assert left["local"].drop > 1 > abs(left["shared"].drop)
    assert first.effect.flipped["local"] > 0.2 > first.effect.flipped["shared"]


def test_what_both_models_know_is_no_shortcut(make_desk):
    """The same model twice: nothing can move one more than the other."""
    desk = make_desk(mark=False)
    found = scores(probes(desk))
    assert all(max(e.swapped["local"] for e in one.probe.effects) > 1 for one in found)
    assert all(one.score <= 0.01 for one in found)


def test_the_same_key_gives_the_same_scores(make_desk):
    desk = make_desk()
    one, two = ([s.score for s in scores(probes(desk, 3))] for _ in range(2))
    assert one == two != [s.score for s in scores(probes(desk, 4))]


@pytest.mark.parametrize("counts", [(2, 12, 12), (0, 12, 12)])
def test_too_few_images_are_not_probed(make_desk, counts):
    desk = make_desk(counts=counts)
    assert probe(desk, 0, server(0)) is None and probe(desk, 1, server(0)) is not None


def test_one_class_is_not_probed(make_desk):
    desk = make_desk(counts=(12, 0, 0))
    assert probes(desk) == [] and scores([]) == []


def effect(kind, local, shared):
    return Effect(Region(kind), {"local": local, "shared": shared}, {})


def test_the_score_is_the_smaller_of_two_standard_scores():
    random = [effect("random", v, w) for v, w in ((0.0, 0.0), (1.0, 0.5), (2.0, 0.0), (1.0, 1.5))]
    tried = [effect("frame", 9.0, 9.0), effect("color", 5.0, 1.0), effect("local", 3.0, -4.0)]
    one = Probe(0, None, tried, random)
    mean, spread = 1.0, (2 / 3) ** 0.5
    apart = [0.0, 0.5, 2.0, -0.5]
    middle = 0.5
    width = (sum((a - middle) ** 2 for a in apart) / 3) ** 0.5
    wanted = [
        min(
            (e.swapped["local"] - mean) / spread,
            (e.swapped["local"] - e.swapped["shared"] - middle) / width,
        )
        for e in tried
    ]
    (found,) = scores([one])
    assert (
        found.score == pytest.approx(max(wanted))
        and found.effect is tried[wanted.index(max(wanted))]
    )


def test_random_regions_that_do_nothing_do_not_make_everything_certain():
    still = [effect("random", 0.0, 0.0)] * 4
    (found,) = scores([Probe(0, None, [effect("color", 0.01, 0.0)], still)])
    assert 0 < found.score < 1
