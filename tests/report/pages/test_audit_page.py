"""The audit's page: what it says on top, for every outcome, and with hostile names."""

import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest
import torch

from vitrail.audit.counterfactual.finding_pictures import Attention, ClassPrediction, FindingExample
from vitrail.audit.counterfactual.prototype_evidence import UnitEvidence
from vitrail.audit.federation_view import combine_audits
from vitrail.audit.site_audit import Alarm, SiteAudit
from vitrail.report.pages.audit_page import render_audit_page
from vitrail.report.pages.audit_words import (
    format_p_value,
    list_doubted,
    list_facts,
    render_readings,
    write_headline,
)

HOSTILE = '<script>alert(1)</script> & "x"'


def make_example(finding):
    predictions = {
        "local": ClassPrediction(finding.label, 0.9, 0.9),
        "shared": ClassPrediction("other", 0.6, 0.2),
    }
    map_ = torch.arange(16.0).view(4, 4)
    attention = Attention(4, map_, (2, 3, 6, 8), ((2, 3, 6, 8), (1, 1, 5, 5)), 0.4)
    names = ("own", "covered", "other", "swapped")
    return FindingExample(
        finding,
        "other",
        None if finding.box is None else (2, 3, 6, 8),
        {name: torch.full((1 if name == "own" else 3, 10, 10), 0.5) for name in names},
        dict.fromkeys(names, predictions),
        {"local": attention, "shared": attention},
        0.25,
    )


def site(name, *findings, skipped=()):
    labels = [f.label for f in findings]
    alarm = Alarm(-0.1, 0.02, dict.fromkeys(labels, -0.3), dict.fromkeys(labels, 9))
    return SiteAudit(name, findings, alarm, skipped)


def render_audit(whole, classes, examples=(), shown=False):
    card = {"method": "myth-gm", "backbone": "resnet8"}
    names = [audit.site for audit in whole.sites]
    run = SimpleNamespace(card=card, round=3, sites=names, classes=classes, keeps_home=False)
    return render_audit_page(run, whole, examples, shown)


def text(page):
    return unescape(
        " ".join(
            re.sub(r"<[^>]+>", " ", page.split('<main id="main">')[1].split("<footer>")[0]).split()
        )
    )


def test_a_bias_is_told_on_top_in_plain_words(finding):
    bad = finding("north", "crow", 9.5, 1e-7, "place")
    whole = combine_audits(
        [site("north", bad), site("south", finding("south", "crow", 3.0, 0.8))],
    )
    top = text(render_audit(whole, ("crow",), [make_example(bad)])).split("All sites")[0]
    for word in ("Bias found", "north", "crow", "lower left", "pixels 20 to 60 across", "< 0.0001",
                 "10 %", "instead of 90 %", "+40 points", "covered"):  # fmt: skip
        assert word in top
    assert whole.action(bad) in top


def test_a_suspicion_is_not_called_a_bias(finding):
    odd = finding("north", "crow", 0.6, 0.03)
    whole = combine_audits([site("north", odd), site("south", finding("south", "crow", 3.0, 0.9))])
    page = text(render_audit(whole, ("crow",)))
    assert "a difference" in page and "Bias found" not in page and "Suspected north" in page


def test_nothing_seen_is_no_proof_and_nothing_tested_says_so(finding):
    whole = combine_audits([site("north", finding("north", "crow", 3.0, 0.9))])
    page = text(render_audit(whole, ("crow",)))
    assert "No bias seen" in page and "no proof" in page and "All sites" not in page
    whole = combine_audits([site("north", skipped=("crow", "tit"))])
    page = text(render_audit(whole, ("crow", "tit")))
    assert "Nothing could be tested" in page and "crow, tit" in page
    verdict, words = write_headline(whole.to_json())
    assert verdict == "untested" and words.startswith("Nothing could be tested")  # no green ring


@pytest.mark.parametrize("p", [0.9, 1e-7])
def test_the_headline_counts_what_was_not_tested(finding, p):
    """Whatever the verdict: a bias somewhere says nothing of classes that nobody looked at."""
    whole = combine_audits(
        [
            site("north", finding("north", "crow", 3.0, p), skipped=("tit",)),
            site("south", skipped=("crow", "tit")),
        ]
    )
    _, words = write_headline(whole.to_json())
    assert "; 3 more had too few images to be tested" in words
    assert words in text(render_audit(whole, ("crow", "tit")))
    assert (whole.to_json()["tested"], whole.to_json()["skipped"]) == (1, 3)


def test_hostile_names_stay_text(finding):
    bad = finding(HOSTILE, HOSTILE, 3.0, 1e-7)
    whole = combine_audits(
        [site(HOSTILE, bad, skipped=(HOSTILE,)), site("b", finding("b", "x", 3.0, 0.9))]
    )
    for shown in (True, False):
        page = render_audit(whole, (HOSTILE, "x"), [make_example(bad)], shown)
        assert "<script" not in page and "&amp;lt;" not in page and "alert(1)" in page


@pytest.mark.parametrize("kind", ["place", "anywhere", "color"])
def test_pixels_only_if_they_may_be_shown(kind, finding):
    bad = finding("north", "crow", 3.0, 1e-7, kind=kind)
    whole = combine_audits([site("north", bad)])
    assert "data:image" not in render_audit(whole, ("crow",), [make_example(bad)])
    page = render_audit(whole, ("crow",), [make_example(bad)], shown=True)
    assert page.count("data:image/png") == 6  # four pictures and two maps
    assert ("undone" in page) == (kind == "color")


def test_every_verdict_is_a_word_and_a_shape(finding):
    """Without color the three are still told apart."""
    three = [
        finding("n", "a", 9.0, 1e-7),
        finding("n", "b", 0.6, 0.03),
        finding("n", "c", 3.0, 0.9),
    ]
    page = render_audit(combine_audits([site("n", *three), site("m")]), ("a", "b", "c"))
    for word in ("no bias seen", "differs", "biased"):
        match = re.search(rf'<span class="verdict \w+"><svg[^>]*>(.*?)</svg>{word}<', page)
        assert match
    shapes = set(re.findall(r'<span class="verdict \w+"><svg[^>]*>(.*?)</svg>', page))
    assert len(shapes) == 3 and "not tested" in page


def test_many_classes_are_summed_up_but_no_doubt_is_hidden(finding):
    many = [finding("n", f"c{i}", 5 - i / 50, 0.9) for i in range(200)]
    many.append(finding("n", "last", -9.0, 0.04))
    page = text(render_audit(combine_audits([site("n", *many)]), tuple(f.label for f in many)))
    assert "170 more, all clear" in page and "last differs" in page


def test_the_reading_that_numbers_support_is_shown_or_both_that_are_left(finding):
    shortcut = finding("n", "a", 3.0, 1e-7, without=0.1)
    cards = render_readings(shortcut.reading)
    assert cards.count("<h4>") == 1 and "A shortcut: what the numbers support" in cards
    unclear = finding("n", "a", 3.0, 1e-7, "place", without=0.5)
    cards = render_readings(unclear.reading)
    assert cards.count("<h4>") == 2 and "support" not in cards
    page = text(render_audit(combine_audits([site("n", unclear)]), ("a",), [make_example(unclear)]))
    assert "no reading" in page and "look at these images at n" in page


def test_prototypes_that_look_at_the_place_come_first(finding):
    bad = finding("north", "crow", 9.5, 1e-7, "place")
    units = [
        UnitEvidence(n, n == 3, 2.0 if n == 3 else -0.5, 0.0, 0.1, 0.4, None, "maps", None)
        for n in range(20)
    ]
    bad = replace(bad, units=tuple(units))
    page = text(render_audit(combine_audits([site("north", bad)]), ("crow",), [make_example(bad)]))
    listed = page.split("overlap of their boxes")[1]
    assert listed.split()[:3] == ["3", "yes", "+2.00"] and "8 more" in listed
    assert bad.prototypes == (3,) and bad.to_json()["prototypes"] == [3]
    assert finding("n", "a", 3.0, 0.9).prototypes == ()


def test_models_that_others_lent_are_told(finding):
    bad = finding("north", "crow", 9.5, 1e-7, "place")
    bad = replace(bad, flipped={**bad.flipped, HOSTILE: 0.25})
    page = render_audit(combine_audits([site("north", bad)]), ("crow",))
    assert "Models that other sites lent" in page and "<script" not in page
    assert "+25 points" in page


@pytest.mark.parametrize(
    ("p", "written_p"), [(0.0, "< 0.0001"), (0.00123, "0.0012"), (0.0499, "0.0499"), (1.0, "1.00")]
)
def test_p_values_as_people_write_them(p, written_p):
    assert format_p_value(p) == written_p


def test_those_who_noticed_are_named(finding):
    bad = finding("north", "crow", 3.0, 1e-7)
    other = SiteAudit("south", (), Alarm(-0.2, 0.01, {"crow": -0.6}, {"crow": 20}), ())
    whole = combine_audits([site("north", bad), other]).to_json()
    facts = dict(list_facts(whole, list_doubted(whole)[0]))
    assert "south" in facts["Likely origin"] and "leave" in facts["What to do"]


def test_a_site_that_lacks_what_others_have_is_not_the_one_to_speak_of(finding):
    """The report's headline named it where the audit's page named the origin."""
    lacks = replace(finding("south", "crow", 9.5, 1e-7, "place"), lacks=True)
    origin = finding("north", "crow", 3.0, 1e-7, "place")
    whole = combine_audits([site("south", lacks), site("north", origin)])
    assert write_headline(whole.to_json()) == ("biased", "Bias found: crow at north")
    assert whole.origin == "north"
    first, second = list_doubted(whole.to_json())
    assert "Likely origin" in dict(list_facts(whole.to_json(), first))
    assert "Suspected" in dict(list_facts(whole.to_json(), second))
