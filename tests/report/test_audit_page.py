"""The audit's page: what it says on top, for every outcome, and with hostile names."""

import re
from dataclasses import replace
from html import unescape
from types import SimpleNamespace

import pytest
import torch

from vitrail.audit.federation import together
from vitrail.audit.look import Attention, Look, Said
from vitrail.audit.null import Null
from vitrail.audit.site import Alarm, SiteAudit
from vitrail.audit.units import UnitEvidence
from vitrail.report.audit_page import audit_page
from vitrail.report.audit_words import facts, headline, p_text, readings

HOSTILE = '<script>alert(1)</script> & "x"'


def seen(finding):
    said = {"local": Said(finding.label, 0.9, 0.9), "shared": Said("other", 0.6, 0.2)}
    map_ = torch.arange(16.0).view(4, 4)
    one = Attention(4, map_, (2, 3, 6, 8), ((2, 3, 6, 8), (1, 1, 5, 5)), 0.4)
    names = ("own", "covered", "other", "swapped")
    return Look(
        finding,
        "other",
        None if finding.box is None else (2, 3, 6, 8),
        {name: torch.full((1 if name == "own" else 3, 10, 10), 0.5) for name in names},
        dict.fromkeys(names, said),
        {"local": one, "shared": one},
        0.25,
    )


def site(name, *findings, skipped=()):
    labels = [f.label for f in findings]
    alarm = Alarm(-0.1, 0.02, dict.fromkeys(labels, -0.3), dict.fromkeys(labels, 9))
    return SiteAudit(name, findings, alarm, skipped)


def written(whole, classes, looks=(), shown=False):
    card = {"method": "myth-gm", "backbone": "resnet8"}
    names = [one.site for one in whole.sites]
    run = SimpleNamespace(card=card, round=3, sites=names, classes=classes, keeps_home=False)
    return audit_page(run, whole, looks, shown)


def text(page):
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", page.split("<main>")[1]).split()))


def test_a_bias_is_told_on_top_in_plain_words(finding):
    bad = finding("north", "crow", 9.5, 1e-7, "place")
    whole = together(
        [site("north", bad), site("south", finding("south", "crow", 3.0, 0.8))],
        Null.of([1], "birds"),
    )
    top = text(written(whole, ("crow",), [seen(bad)])).split("All sites")[0]
    for word in ("Bias found", "north", "crow", "lower left", "pixels 20 to 60 across", "< 0.0001",
                 "10 %", "instead of 90 %", "+50 points", "covered"):  # fmt: skip
        assert word in top
    assert whole.action(bad) in top


def test_a_suspicion_is_not_called_a_bias(finding):
    odd = finding("north", "crow", 3.0, 0.03)
    whole = together([site("north", odd), site("south", finding("south", "crow", 3.0, 0.9))])
    page = text(written(whole, ("crow",)))
    assert "suspicion" in page and "Bias found" not in page and "Suspected north" in page


def test_nothing_seen_is_no_proof_and_nothing_tested_says_so(finding):
    whole = together([site("north", finding("north", "crow", 3.0, 0.9))])
    page = text(written(whole, ("crow",)))
    assert "No bias seen" in page and "no proof" in page and "All sites" not in page
    whole = together([site("north", skipped=("crow", "tit"))])
    page = text(written(whole, ("crow", "tit")))
    assert "Nothing could be tested" in page and "crow, tit" in page
    assert headline(whole)[1] == "Nothing could be tested"


def test_hostile_names_stay_text(finding):
    bad = finding(HOSTILE, HOSTILE, 3.0, 1e-7)
    whole = together(
        [site(HOSTILE, bad, skipped=(HOSTILE,)), site("b", finding("b", "x", 3.0, 0.9))]
    )
    for shown in (True, False):
        page = written(whole, (HOSTILE, "x"), [seen(bad)], shown)
        assert "<script" not in page and "&amp;lt;" not in page and "alert(1)" in page


@pytest.mark.parametrize("kind", ["place", "anywhere", "color"])
def test_pixels_only_if_they_may_be_shown(kind, finding):
    bad = finding("north", "crow", 3.0, 1e-7, kind=kind)
    whole = together([site("north", bad)])
    assert "data:image" not in written(whole, ("crow",), [seen(bad)])
    page = written(whole, ("crow",), [seen(bad)], shown=True)
    assert page.count("data:image/png") == 6  # four pictures and two maps
    assert ("undone" in page) == (kind == "color")


def test_every_verdict_is_a_word_and_a_shape(finding):
    """Without color the three are still told apart."""
    three = [
        finding("n", "a", 9.0, 1e-7),
        finding("n", "b", 3.0, 0.03),
        finding("n", "c", 3.0, 0.9),
    ]
    page = written(together([site("n", *three), site("m")]), ("a", "b", "c"))
    for word in ("no bias seen", "suspect", "biased"):
        found = re.search(rf'<span class="verdict \w+"><svg[^>]*>(.*?)</svg>{word}<', page)
        assert found
    shapes = set(re.findall(r'<span class="verdict \w+"><svg[^>]*>(.*?)</svg>', page))
    assert len(shapes) == 3 and "not tested" in page


def test_many_classes_are_summed_up_but_no_doubt_is_hidden(finding):
    many = [finding("n", f"c{i}", 5 - i / 50, 0.9) for i in range(200)]
    many.append(finding("n", "last", -9.0, 0.04))
    page = text(written(together([site("n", *many)]), tuple(f.label for f in many)))
    assert "170 more, all clear" in page and "last suspect" in page


def test_both_readings_are_shown_and_one_is_supported(finding):
    for without, name in ((0.1, "A shortcut"), (0.8, "A minority")):
        told = readings(finding("n", "a", 3.0, 1e-7, without=without))
        assert [one[0] for one in told] == ["A shortcut", "A minority"]
        assert [one[0] for one in told if one[2]] == [name]
    unclear = finding("n", "a", 3.0, 1e-7, "place", without=0.5)
    assert not any(one[2] for one in readings(unclear))
    page = text(written(together([site("n", unclear)]), ("a",), [seen(unclear)]))
    assert "neither reading" in page and "look at these images at n" in page


def test_prototypes_that_look_at_the_place_come_first(finding):
    bad = finding("north", "crow", 9.5, 1e-7, "place")
    units = [
        UnitEvidence(n, n == 3, 2.0 if n == 3 else -0.5, 0.0, 0.1, 0.4, None, "maps", None)
        for n in range(20)
    ]
    bad = replace(bad, units=tuple(units))
    page = text(written(together([site("north", bad)]), ("crow",), [seen(bad)]))
    listed = page.split("overlap of their boxes")[1]
    assert listed.split()[:3] == ["3", "yes", "+2.00"] and "8 more" in listed
    assert bad.prototypes == (3,) and bad.to_json()["prototypes"] == [3]
    assert finding("n", "a", 3.0, 0.9).prototypes == ()


def test_models_that_others_lent_are_told(finding):
    bad = finding("north", "crow", 9.5, 1e-7, "place")
    bad = replace(bad, flipped={**bad.flipped, HOSTILE: 0.25})
    page = written(together([site("north", bad)]), ("crow",))
    assert "Models that other sites lent" in page and "<script" not in page
    assert "+25 points" in page


@pytest.mark.parametrize(
    ("p", "told"), [(0.0, "< 0.0001"), (0.00123, "0.0012"), (0.0499, "0.0499"), (1.0, "1.00")]
)
def test_p_values_as_people_write_them(p, told):
    assert p_text(p) == told


def test_those_who_noticed_are_named(finding):
    bad = finding("north", "crow", 3.0, 1e-7)
    other = SiteAudit("south", (), Alarm(-0.2, 0.01, {"crow": -0.6}, {"crow": 20}), ())
    told = dict(facts(together([site("north", bad), other]), bad))
    assert "south" in told["Likely origin"] and "leave" in told["What to do"]
