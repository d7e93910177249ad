"""The federation's view: one correction over all sites, the origin, who noticed, what to do."""

from dataclasses import replace

import pytest

from vitrail.audit.consensus import SubspaceDeviation
from vitrail.audit.counterfactual.effects import CoveringEffect
from vitrail.audit.detection.strata import WithinGroups
from vitrail.audit.federation_view import NULL, combine_audits
from vitrail.audit.site_audit import Alarm, SiteAudit
from vitrail.report.pages.audit_words import list_facts, list_findings

IMAGES = {"a": 25, "b": 25}


def site(name, *findings, gaps=(0.0, 0.0), spread=0.02, images=IMAGES):
    alarm = Alarm(sum(gaps) / 2, spread, dict(zip("ab", gaps)), images)
    return SiteAudit(name, tuple(findings), alarm, ())


def test_the_federation_and_the_site_say_the_same(finding):
    bad, odd, fine = (
        finding("x", "a", 9.0, 0.001), finding("x", "b", 0.5, 0.02), finding("y", "a", 0.2, 0.3)
    )  # fmt: skip
    whole = combine_audits([site("x", bad, odd), site("y", fine)])
    assert [whole.verdict(f) for f in (bad, odd, fine)] == ["biased", "differs", "clear"]
    assert [whole.p_value(f) for f in (bad, odd, fine)] == [0.001, 0.02, 0.3]
    assert whole.origin == "x" and whole.worst is bad


def test_who_lacks_what_the_others_have_is_no_origin(finding):
    lacking = finding("x", "a", 9.0, 1e-6, lacks=True)
    whole = combine_audits([site("x", lacking), site("y")])
    assert whole.verdict(lacking) == "biased" and whole.origin is None
    assert lacking.reading == "lacks" and "lacks what their images" in whole.action(lacking)


def test_nothing_biased_has_no_origin(finding):
    whole = combine_audits(
        [site("x", finding("x", "a", 0.8, 0.04)), site("y", finding("y", "a", 1.0, 0.5))]
    )
    assert whole.origin is None and whole.worst is None
    assert combine_audits([]).origin is None and combine_audits([]).to_json()["sites"] == []
    assert combine_audits([site("x")]).to_json()["origin"] is None


def test_the_largest_score_is_the_origin_where_several_are_biased(finding):
    less, more = finding("x", "a", 5.0, 1e-6), finding("y", "b", 8.0, 1e-6)
    assert combine_audits([site("x", less), site("y", more)]).origin == "y"


@pytest.mark.parametrize(
    ("gap", "images", "noticed"),
    [
        (-0.2, 25, True),
        (0.2, 25, False),
        (-0.05, 25, False),  # within two standard errors of a class: 0.02 x sqrt(2) x 2
        (-0.06, 25, True),
        (-0.2, 2, False),  # two images of 52: the error is five times as large
        (-1.0, 1, False),
    ],
)
def test_another_site_notices_where_the_shared_model_is_surely_worse(gap, images, noticed, finding):
    one = finding("x", "a", 9.0, 1e-6)
    other = site("y", gaps=(gap, 0.0), images={"a": images, "b": 50 - images + (images < 25) * 2})
    whole = combine_audits([site("x", one, gaps=(-0.5, 0.0)), other])
    assert whole.find_affected_sites(one) == (["x", "y"] if noticed else ["x"])


def test_the_action_follows_reading_and_reach(finding):
    clear = finding("x", "a", 0.0, 0.9)
    shortcut = finding("x", "a", 9.0, 1e-6, without=0.1)
    calm, hurt = site("y"), site("y", gaps=(-0.5, 0.0))
    assert clear.reading == "none" and shortcut.reading == "shortcut"
    assert combine_audits([site("x", clear), hurt]).action(clear) == "stay"
    cleaned = combine_audits([site("x", shortcut), calm]).action(shortcut)
    assert cleaned == "clean these images at x"
    assert combine_audits([site("x", shortcut), hurt]).action(shortcut).startswith("leave x out")
    for more, word in (
        ({"kind": "place", "without": 0.85, "flipped": 0.0}, "if a mark shows that is no part"),
        ({"kind": "color", "without": 0.85, "flipped": 0.1}, "harmonize how images"),
        ({"kind": "color", "common": 0.9}, "all its classes differ"),
        ({"within": {"view": WithinGroups(0.5, 0.0, 2.0, 1.0)}}, "explained by view"),
    ):
        one = finding("x", "a", 9.0, 1e-6, **more)
        one = replace(one, covered={**one.covered, "shared": CoveringEffect(0.8, 0.78, 0.1)})
        assert word in combine_audits([site("x", one), calm]).action(one)


@pytest.mark.parametrize(
    ("without", "flipped", "reading"),
    [
        (0.0, 0.0, "shortcut"),
        (0.44, 0.0, "shortcut"),
        (0.45, 0.0, "open"),  # half of 0.9 is kept
        (0.9, 0.5, "shortcut"),  # the place alone wins half of the other images
        (0.9, 0.2, "open"),
        (0.8, 0.0, "open"),
        (0.85, 0.1, "open"),  # the shared model loses more than a tenth
        (0.9, -0.3, "open"),
    ],
)
def test_a_reading_needs_clear_numbers(finding, without, flipped, reading):
    one = finding("x", "a", 9.0, 1e-6, "place", without=without, flipped=flipped)
    one = replace(one, covered={**one.covered, "shared": CoveringEffect(0.8, 0.6, 0.1)})
    assert one.reading == reading


@pytest.mark.parametrize("without", [0.1, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("flipped", [-0.5, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("family", ["tone", "early map", "palette", "noise"])
def test_no_mark_is_ever_blessed(finding, without, flipped, family):
    """Whatever the models do: what shows in pixels is never called this site's own feature."""
    for kind in ("place", "anywhere", "color"):
        one = finding("x", "a", 9.0, 1e-6, kind, without=without, flipped=flipped, family=family)
        action = combine_audits([site("x", one), site("y")]).action(one)
        assert one.reading != "minority" and "helps there" not in action
        assert "stay" not in action


def test_where_the_numbers_do_not_tell_somebody_looks_and_both_ways_are_named(finding):
    half = finding("x", "crow", 9.0, 1e-6, "place", without=0.52)
    told = combine_audits([site("x", half), site("y")]).action(half)
    assert told.startswith("look at these images at x") and "no part of crow" in told
    assert "clean them at x" in told and "personalize there" in told
    hurt = Alarm(-0.5, 0.02, {"crow": -0.5}, {"crow": 25})
    noticed = combine_audits([site("x", half), SiteAudit("y", (), hurt, ())])
    assert "leave x out until they are clean" in noticed.action(half)


def test_the_json_has_the_agreed_form(finding):
    found = finding("x", "a", 9.0, 1e-6)
    whole = combine_audits(
        [site("x", found), site("y", gaps=(-0.5, 0.0))],
    )
    told = whole.to_json()
    assert told["origin"] == "x" and told["null"] == NULL
    first, second = told["sites"]
    assert first["site"] == "x" and first["seen_by"] == ["x", "y"] and second["seen_by"] == []
    (entry,) = first["classes"]
    assert list(entry)[:5] == ["class", "score", "p_value", "verdict", "box"]
    assert entry["verdict"] == "biased" and entry["box"] is None and second["classes"] == []


def test_a_subspace_that_stands_apart_is_evidence_beside_the_verdict(finding):
    found = finding("x", "a", 0.0, 0.9)
    away = [SubspaceDeviation("x", "a", 0.5, 3.0), SubspaceDeviation("y", "a", 0.1, 0.0)]
    whole = combine_audits([site("x", found)], standings=away)
    (entry,) = whole.to_json()["sites"][0]["classes"]
    assert entry["subspace"] == {"distance": 0.5, "excess": 3.0} and entry["verdict"] == "clear"
    (first,) = list_findings(whole.to_json())
    told = dict(list_facts(whole.to_json(), first))["Subspace of the class"]
    assert "0.50" in told and "3.0 robust" in told
    alone = combine_audits([site("x", found)]).to_json()
    assert "Subspace of the class" not in dict(list_facts(alone, list_findings(alone)[0]))


def test_the_sentence_counts_in_points_and_has_no_minus_zero(finding):
    told = finding("x", "a", 9.0, 1e-6).sentence
    assert "rises by 40 points" in told and "stays as it is" in told and "undone" in told
    assert "-0" not in told
    assert "falls by 25 points" in finding("x", "a", 9.0, 1e-6, flipped=-0.25).sentence
