"""Recalls by hand: what counts as biased, unbiased, other, and what a change costs."""

import numpy as np
import pytest
import torch

from vitrail.audit.remedy_figures import HeldOut
from vitrail.audit.remedy_trial import judge_change

LABELS = np.array([0, 0, 0, 0, 1, 1, 2, 2])
SUSPECTED = np.array([True, True, False, False, False, False, False, False])


@pytest.fixture
def held():
    """Class 0 is suspected at one site, which holds its first two images."""
    everything = np.ones(8, bool)
    return HeldOut(torch.zeros(8, 1, 2, 2), LABELS, SUSPECTED, LABELS == 0, everything)


def test_each_share_is_over_its_own_images(held):
    right = np.array([1.0, 1, 0, 1, 1, 1, 0, 1])
    recalls = held.summarize(right, held.validation)
    assert (recalls.biased, recalls.unbiased) == (1.0, 0.5)
    assert recalls.others == pytest.approx((1.0 + 0.5) / 2)
    assert recalls.balanced == pytest.approx((0.5 + 1.0 + 0.5) / 3)


def test_a_part_without_images_has_no_share(held):
    recalls = held.summarize(np.ones(8), np.zeros(8, bool))
    assert recalls == type(recalls)(None, None, None, None)
    assert held.compare(np.ones(8), np.ones(8), np.zeros(8, bool)) == (0.0, np.inf)


def test_suspected_images_do_not_count_in_the_change(held):
    before, after = np.zeros(8), np.where(SUSPECTED, 1.0, 0.0)
    change, _ = held.compare(before, after, held.validation)
    assert change == 0.0
    change, error = held.compare(before, np.ones(8), held.validation)
    assert change == 1.0 and error == 0.0


def test_a_loss_is_a_cost_and_help_must_be_sure():
    assert judge_change(-0.001, 0.5, 4) == "costs more than it mends"
    assert judge_change(0.02, 0.01, 1) == "helps"
    assert judge_change(0.02, 0.01, 4) == "no clear change"  # four tries: 2.5 standard errors
    assert judge_change(0.0, 0.0, 1) == "no clear change"
