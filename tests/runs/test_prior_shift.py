"""Global logits under a site's own class frequencies, against the formula and Bayes' rule."""

import math

import numpy as np
import pytest

from vitrail.errors import ConfigError
from vitrail.runs.prior_shift import answer_by_prior, shift_sites, shift_to_prior
from vitrail.runs.site_logits import SiteLogits


def test_it_is_the_formula():
    logits = np.array([[1.0, -2.0, 0.5], [0.0, 0.0, 3.0]], np.float32)
    counts, total, t, a = np.array([7, 0, 3]), np.array([20, 30, 10]), 1.7, 0.4
    found = shift_to_prior(logits, counts, total, t, a)
    for n in range(2):
        for c in range(3):
            local = math.log((counts[c] + a) / (10 + 3 * a))
            shared = math.log((total[c] + a) / (60 + 3 * a))
            expected = float(logits[n, c]) / t + local - shared
            assert found[n, c] == pytest.approx(expected, rel=1e-5)


def test_a_calibrated_posterior_moves_as_bayes_says():
    likelihood = np.array([0.2, 0.7, 0.1])
    trained, here = np.array([100, 300, 600]), np.array([50, 40, 10])
    logits = np.log(likelihood * trained)[None].astype(np.float32)
    shifted = np.exp(shift_to_prior(logits, here, trained, 1.0, 1e-9)[0].astype(np.float64))
    expected = likelihood * here / (likelihood * here).sum()
    assert shifted / shifted.sum() == pytest.approx(expected, rel=1e-4)


def make_answers():
    return SiteLogits(
        names=("a", "b"),
        rows=np.arange(3),
        site=np.array([0, 0, 1]),
        labels=np.array([0, 1, 1]),
        logits=np.zeros((3, 2), np.float32),
        counts=np.array([[9, 1], [0, 10]]),
    )


def test_each_site_has_its_own_frequencies_and_the_answers_stay_as_they_were():
    answers = make_answers()
    assert shift_sites(answers, 1.0, 0.1).logits.argmax(1).tolist() == [0, 0, 1]
    assert answer_by_prior(answers).logits.argmax(1).tolist() == [0, 0, 1]
    assert not answers.logits.any()


@pytest.mark.parametrize("setting", [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0)])
def test_no_temperature_and_no_smoothing_are_refused(setting):
    with pytest.raises(ConfigError, match="positive"):
        shift_sites(make_answers(), *setting)
