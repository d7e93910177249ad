"""No reading contradicts its numbers, and no mark is ever taken for the site's own feature."""

import itertools
from dataclasses import replace

import pytest
import torch

from vitrail.audit.counterfactual.effects import CoveringEffect
from vitrail.audit.counterfactual.prototype_evidence import UnitEvidence
from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.federation_view import combine_audits
from vitrail.audit.remedy_choice import list_remedies
from vitrail.audit.site_audit import Alarm, SiteAudit

BOXES = torch.tensor([[2, 3, 6, 8]] * 2)
FAMILIES = ("tone", "texture", "early map", "map", "map as a whole", "parts anywhere", "noise")


@pytest.fixture
def read(finding):
    """A function: a biased finding with these numbers."""

    def make(kind, sharp, family, lost=0.0, won=0.0, moved=0.1, **more):
        covered = CoveringEffect(0.8, 0.8 * (1 - lost), moved)
        return replace(
            finding("x", "crow", 9.0, 1e-6, family=family, **more),
            place=Region(kind, None if kind == "color" else BOXES, sharp),
            flipped={"local": won, "shared": 0.0},
            swapped={"local": moved, "shared": 0.0},
            covered={"local": covered, "shared": covered},
        )

    return make


def act(one):
    calm = SiteAudit("x", (one,), Alarm(0.0, 0.02, {"crow": 0.0}, {"crow": 25}), ())
    return combine_audits([calm]).action(one)


def test_what_stands_out_at_a_place_is_never_a_minority(read):
    """Whatever family it shows in and whatever the models do: a mark could be there."""
    for kind, sharp, family, lost, won in itertools.product(
        ("place", "anywhere"), (True, False), FAMILIES, (0.0, 0.2, 0.6), (0.0, 0.3, 0.9)
    ):
        one = read(kind, sharp, family, lost, won)
        assert one.reading in ("shortcut", "unused", "open")
        assert "personalize" not in act(one) or "only if the feature is real" in act(one)


def test_what_moves_an_answer_is_used_even_if_the_answer_stays(read):
    """Three nats of log-odds and not one answer changed: nobody may say that it is not needed."""
    assert read("place", True, "tone", moved=0.5).reading == "unused"
    assert read("place", True, "tone", moved=3.0).reading == "open"


def test_unused_is_said_of_marks_only(read):
    assert read("place", False, "tone").reading == "open"
    assert read("place", True, "map").reading == "unused"
    assert "clean them" in act(read("place", True, "map"))


def test_a_minority_differs_as_a_whole_in_what_it_shows(read):
    assert read("color", False, "map as a whole").reading == "minority"
    assert read("color", False, "noise").reading == "acquisition"
    assert read("color", False, "map as a whole", lost=0.4).reading == "open"


def test_subspaces_are_not_masked_and_not_mixed(read):
    """They have no numbers to go by: such advice cannot be followed."""
    for is_point, wanted in ((True, ("mask", "mix", "weigh")), (False, ("weigh", "leave-out"))):
        unit = UnitEvidence(1, True, 1.0, 1.0, 1.0, 0.5, 0.1, "maps", 0.5, is_point=is_point)
        one = read("place", True, "tone", lost=0.9, units=(unit,))
        assert list_remedies(one)[: len(wanted)] == wanted


def test_remedies_follow_the_reading(read):
    look = (0.1,) * 40
    assert list_remedies(read("color", False, "noise", look=look))[0] == "harmonize"
    assert list_remedies(read("place", True, "tone", lost=0.9)) == ("weigh", "leave-out")
    for harmless in (read("color", False, "map as a whole"), read("place", True, "tone")):
        assert list_remedies(harmless) == ()


@pytest.mark.parametrize("kind", ["place", "anywhere", "color"])
def test_a_reading_agrees_with_the_numbers_beside_it(read, kind):
    for sharp, family, lost, won, moved in itertools.product(
        (True, False), FAMILIES, (0.0, 0.1, 0.5, 0.51, 1.0), (0.0, 0.1, 0.49, 0.5), (0.0, 5.0)
    ):
        one = read(kind, sharp, family, lost, won, moved)
        if one.reading == "shortcut":
            assert lost > 0.5 or won >= 0.5
        if one.reading in ("unused", "minority"):
            assert lost <= 0.25 and won <= 0.25
        if one.reading == "unused":
            assert moved <= 1 and "do not need today" in act(one)
        if one.reading != "shortcut":
            assert not act(one).startswith("clean these")
