"""The audit of one site: findings, the alarm, what is skipped, and the sentence."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from vitrail.audit.counterfactual.finding_pictures import illustrate_finding
from vitrail.audit.counterfactual.overlap import iou
from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.direction import Direction
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.federation_view import combine_audits
from vitrail.audit.site_audit import Alarm, audit_site, compute_alarm
from vitrail.errors import RunError
from vitrail.rng import derive_server_key

UNITS = (
    Unit("tone", "place", np.arange(3), (0.0, 0.75, 0.25, 1.0)),
    Unit("map as a whole", "image-wide", np.arange(3)),
)


def stand(label, score, unit, p):
    """A contrast as the exchange could have given it."""
    nothing = np.zeros(1)
    direction = Direction(
        "here", label, unit, np.arange(1), nothing, 0.0, 1.0, score, 0.0, False, 1.0
    )
    verdict = "biased" if p < 0.05 and score > 1 else "clear"
    return Contrast("here", label, direction, p, p, score, 1.0, 5.0, verdict, 6, (), score)


STANDING = [stand(0, 9.0, 0, 1e-4), stand(1, 0.5, 0, 0.4), stand(2, 0.2, 1, 0.9)]


def audited(desk, standing=STANDING, **more):
    return audit_site(desk, standing, UNITS, derive_server_key(0).at("audit"), **more)


def test_the_planted_shortcut_is_biased_and_told(make_desk):
    told = []
    found = audited(make_desk(), tell=told.append)
    first = found.findings[0]
    assert first.label == "green" and first.verdict == "biased" and first.reading == "open"
    assert [f.score for f in found.findings] == sorted(
        (f.score for f in found.findings), reverse=True
    )
    assert first.where == "the lower left of the image" and first.box == (0, 24, 8, 32)
    assert "lower left" in first.sentence and "100 %" in first.sentence
    assert len(told) == 3 and told[0] == "here: green"
    entry = first.to_json()
    assert {"class", "score", "p_value", "verdict", "box"} <= set(entry)
    json.dumps(entry, allow_nan=False)
    assert all(f.verdict == "clear" for f in found.findings[1:])
    assert found.findings[1].sentence.startswith("No bias seen")


@pytest.mark.parametrize(
    ("counts", "skipped"),
    [
        ((12, 0, 0), ("green", "blue", "yellow")),
        ((1, 1, 1), ("green", "blue", "yellow")),
        ((2, 9, 9), ("green",)),
    ],
)
def test_what_cannot_be_tested_is_listed(make_desk, counts, skipped):
    found = audited(make_desk(counts=counts))
    assert found.skipped == skipped and len(found.findings) == 3 - len(skipped)
    json.dumps(combine_audits([found]).to_json(), allow_nan=False)


def test_the_alarm_is_the_mean_difference_with_its_error(make_desk):
    desk = make_desk()
    # an image of each other class carries the mark: the own model alone falls for it
    images = np.array(desk.images)
    images[[12, 24], 24:, :8] = images[0, 24:, :8]
    desk = type(desk)("here", images, desk.labels, desk.shared, desk.local)
    found = compute_alarm(desk)
    each = [0.0] * 36
    for row in range(36):
        x = desk.pixels[row : row + 1]
        right = [float(m(x).argmax() == desk.labels[row]) for m in (desk.shared, desk.local)]
        each[row] = right[0] - right[1]
    assert any(each) and found.gap == pytest.approx(sum(each) / 36)
    spread = (sum((e - found.gap) ** 2 for e in each) / 35) ** 0.5 / 6
    assert found.spread == pytest.approx(spread)
    assert found.images == {"green": 12, "blue": 12, "yellow": 12}
    assert found.by_class["blue"] == pytest.approx(sum(each[12:24]) / 12)
    assert found.error("blue") == pytest.approx(spread * 3**0.5)


def test_a_class_with_one_image_or_none_says_nothing():
    found = Alarm(-0.1, 0.05, {"a": -1.0, "b": 0.0}, {"a": 1, "b": 9})
    assert found.error("a") == found.error("absent") == float("inf")


def test_a_model_that_diverged_is_one_sentence(make_desk):
    desk = make_desk()
    with torch.no_grad():
        desk.shared.network.head.weight[:] = float("nan")
    with pytest.raises(RunError, match="no finite number"):
        audited(desk)


def test_the_same_site_twice_is_the_same(make_desk):
    desk = make_desk()
    one, two = (combine_audits([audited(desk)]).to_json() for _ in range(2))
    assert one == two


def test_a_look_shows_the_region_and_what_the_models_say(make_desk):
    desk = make_desk()
    finding = audited(desk).findings[0]
    shown = illustrate_finding(desk, finding)
    x0, y0, x1, y1 = shown.region
    own, covered = shown.pictures["own"], shown.pictures["covered"]
    outside = torch.ones(32, 32, dtype=torch.bool)
    outside[y0:y1, x0:x1] = False
    assert torch.equal(own[:, outside], covered[:, outside]) and not torch.equal(own, covered)
    other, swapped = shown.pictures["other"], shown.pictures["swapped"]
    assert torch.equal(swapped[:, ~outside], own[:, ~outside])
    assert torch.equal(swapped[:, outside], other[:, outside]) and shown.other_label != "green"
    for name, model in desk.models.items():
        for which, picture in shown.pictures.items():
            chances = model.probabilities(picture[None])[0]
            said = shown.said[which][name]
            assert said.predicted == desk.classes[int(chances.argmax())]
            assert said.probability == pytest.approx(float(chances.max()), abs=1e-5)
            assert said.asked == pytest.approx(float(chances[0]), abs=1e-5)
    assert shown.said["swapped"]["local"].asked > 10 * shown.said["other"]["local"].asked
    assert shown.overlap == 0.0 and shown.seen["local"].box != shown.seen["shared"].box
    assert shown.seen["local"].inside > 2 * shown.seen["shared"].inside


def test_a_look_at_what_is_no_place(make_desk):
    desk = make_desk()
    finding = audited(desk).findings[0]
    shown = illustrate_finding(desk, replace(finding, place=Region("color"), box=None))
    assert shown.region is None and shown.seen["local"].inside is None
    assert not torch.equal(shown.pictures["other"], shown.pictures["swapped"])


@pytest.mark.parametrize(
    ("a", "b", "share"),
    [
        ((0, 0, 4, 4), (0, 0, 4, 4), 1.0),
        ((0, 0, 4, 4), (4, 0, 8, 4), 0.0),
        ((0, 0, 4, 4), (2, 0, 6, 4), 1 / 3),
        ((0, 0, 0, 0), (0, 0, 0, 0), 0.0),
    ],
)
def test_overlap_of_boxes(a, b, share):
    assert iou(a, b) == pytest.approx(share)
