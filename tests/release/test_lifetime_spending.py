"""Budgets add up across runs: against dp-accounting and opacus, under one neighbor relation."""

from __future__ import annotations

import math
from dataclasses import replace

import dp_accounting
import pytest
from opacus.accountants import RDPAccountant

from vitrail.release.accounting.accountant import Event, calibrate_noise, compute_epsilon
from vitrail.release.accounting.promise import NO_GUARANTEE, OUTSIDE, SERVER
from vitrail.release.defenses.subspace_dp import CLIPPED_SITE
from vitrail.release.lifetime_spending import Spending, convert_event, read_spending

DELTA = 1e-5


def release(events, unit="one image", against=SERVER, mechanism="dp-sgd"):
    spend = {"mechanism": mechanism, "unit": unit, "against": against, "events": events}
    return {"kind": "release", "guarantee": "formal: ...", "spends": [spend]}


def test_ten_runs_at_epsilon_8_are_what_the_libraries_say():
    """Was not counted at all: 30.5 on the same images, not 8 and not 80."""
    shape = Event(1.0, 0.05, 200)
    noise = calibrate_noise(8.0, DELTA, [shape])
    run = read_spending([release([[noise, 0.05, 200]])])
    total = Spending()
    for _ in range(10):
        total = total.join(run)
    epsilon = total.compute_epsilon(DELTA)
    accountant = dp_accounting.pld.PLDAccountant()
    step = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(noise))
    accountant.compose(step, 2000)
    assert epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=0.01)
    renyi = RDPAccountant()
    renyi.history = [(noise, 0.05, 2000)]
    assert epsilon < renyi.get_epsilon(DELTA) < 1.35 * epsilon
    assert 8.0 < epsilon < 80.0


def test_ten_whole_releases_at_epsilon_8():
    """Ten releases without sampling, each worth 8: the closed form, as the issue's 30.5."""
    noise = calibrate_noise(8.0, DELTA, [Event(1.0)])
    epsilon = Spending((Event(noise, 1.0, 10),)).compute_epsilon(DELTA)
    accountant = dp_accounting.pld.PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(noise), 10)
    assert epsilon == pytest.approx(accountant.get_epsilon(DELTA), rel=0.01)


def test_a_whole_site_counts_for_an_image_with_half_its_noise():
    """Blanking an image moves a clipped update by up to twice the clip."""
    site = read_spending([release([[2.0, 1.0, 3]], "a whole site", mechanism="client-dp")])
    assert site.whole == (Event(1.0, 1.0, 3),) and not site.events
    assert site.compute_epsilon(DELTA) > compute_epsilon([Event(2.0, 1.0, 3)], DELTA)
    replaced = Event(2.0)
    assert convert_event(replaced, "one image replaced by another", "subspace-dp") == replaced
    assert convert_event(replaced, "a whole site", "subspace-dp") == replaced
    halved = convert_event(replaced, CLIPPED_SITE, "subspace-dp")  # it may move by twice the clip
    assert halved == replace(replaced, noise=replaced.noise / 2)


@pytest.mark.parametrize(
    "line",
    [
        {"kind": "release", "guarantee": NO_GUARANTEE},
        {"kind": "enroll", "guarantee": f"{NO_GUARANTEE}: 'x' leaves without noise"},
        {"kind": "classes", "guarantee": NO_GUARANTEE},
        {"kind": "images", "guarantee": "formal: local DP, labels not covered", "epsilon": 1.0},
        {"kind": "images", "guarantee": "formal: epsilon(distance) by the curve", "curve": []},
        release([[1.0, 1.0, 1]], against=OUTSIDE),
    ],
)
def test_a_release_without_a_proof_leaves_no_bound(line):
    spent = read_spending([release([[5.0, 1.0, 1]]), line])
    assert spent.compute_epsilon(DELTA) == math.inf
    assert Spending.read(spent.to_json()) == spent


def test_images_and_scores_with_an_epsilon_of_their_own_are_added():
    images = {"kind": "images", "guarantee": "formal: local DP", "epsilon": 3.0, "delta": 4e-6}
    spent = read_spending([release([[5.0, 1.0, 1]]), images])
    wanted = compute_epsilon([Event(5.0)], DELTA - 4e-6) + 3.0
    assert spent.compute_epsilon(DELTA) == pytest.approx(wanted)
    assert read_spending([images] * 3).compute_epsilon(DELTA) == math.inf  # delta is used up
    assert read_spending([]).compute_epsilon(DELTA) == 0.0
    assert read_spending([{"kind": "enroll", "guarantee": "nothing left"}]).bounded
