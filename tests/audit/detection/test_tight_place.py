"""The box around a mark: it fits, and there is none where nothing is."""

import itertools

import numpy as np
import pytest
from scipy import ndimage, stats

from vitrail.audit.counterfactual.overlap import iou
from vitrail.audit.detection.tight_place import (
    compute_agreement,
    find_largest_rectangle,
    find_tight_place,
    fit_box,
)


def noise(count, seed, side=48):
    draw = np.random.default_rng(seed)
    return draw.integers(60, 200, (count, side, side, 3)).astype(np.uint8)


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("box", [(4, 30, 12, 38), (20, 5, 32, 11)])
def test_it_fits_a_mark(box, share):
    marked, others = noise(16, 0), noise(40, 1)
    x0, y0, x1, y1 = box
    marked[: int(16 * share), y0:y1, x0:x1] = (250, 20, 20)
    coarse = ((x0 - 3) / 48, (y0 - 3) / 48, (x0 + 6) / 48, (y0 + 6) / 48)
    for place in (coarse, None):
        tight = find_tight_place(marked, others, place)
        assert tight is not None and tight.is_mark and iou(tight.box, box) > 0.6


def test_nothing_sharp_is_no_mark():
    tight = find_tight_place(noise(16, 0), noise(40, 1))
    assert tight is None or not tight.is_mark


@pytest.mark.parametrize("count", [0, 2])
def test_too_few_images_have_no_place(count):
    assert find_tight_place(noise(count, 0), noise(9, 1)) is None
    assert find_tight_place(noise(9, 0), noise(count, 1)) is None


def test_the_largest_rectangle_is_that_of_all_rectangles():
    draw = np.random.default_rng(3)
    for _ in range(20):
        values = draw.normal(-0.2, 1, (5, 6))
        every = {
            (a, b, c, d): values[b:d, a:c].sum()
            for a in range(6) for b in range(5) for c in range(a + 1, 7) for d in range(b + 1, 6)
        }  # fmt: skip
        assert find_largest_rectangle(values) == max(every, key=every.get)
    assert find_largest_rectangle(-np.ones((3, 3))) == (0, 0, 0, 0)


def test_the_agreement_is_a_likelihood_ratio_of_two_shares():
    one, two = noise(9, 0, 2), noise(7, 1, 2)
    one[:5, 1, 0] = (90, 90, 90)
    best = 0.0
    for candidate, within in itertools.product(range(9), (10, 30)):
        alike = [
            int((abs(stack[:, 1, 0].astype(int) - one[candidate, 1, 0]) <= within).all(1).sum())
            for stack in (one, two)
        ]
        own, other = alike[0] - 1, alike[1]
        if own / 8 > other / 7:
            pooled = stats.binom.logpmf([own, other], [8, 7], (own + other) / 15).sum()
            apart = stats.binom.logpmf([own, other], [8, 7], [own / 8, other / 7]).sum()
            best = max(best, apart - pooled)
    assert compute_agreement(one, two)[1, 0] == pytest.approx(best)


def smooth_images(count, seed, side=48):
    """Images whose neighboring pixels go together, as photographs do."""
    draw = np.random.default_rng(seed)
    values = ndimage.gaussian_filter(draw.normal(size=(count, side, side, 1)), (0, 4, 4, 0))
    return (128 + 45 * values / values.std()).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_it_fits_a_letter_on_half_of_the_images(share):
    """A letter has few pixels of its own box, and a half of the images does not move a mean far."""
    marked, others = smooth_images(30, 0), smooth_images(60, 1)
    some = marked[: int(30 * share)]
    some[:, 30:40, 6:8] = 250
    some[:, 38:40, 6:13] = 250
    tight = find_tight_place(marked, others)
    assert tight is not None and iou(tight.box, (6, 30, 13, 40)) > 0.6


def test_gaps_are_bridged_and_far_things_are_not():
    inside = np.zeros((20, 20), bool)
    inside[2:5, 2:5] = inside[7:9, 2:5] = inside[15:18, 15:18] = True
    assert fit_box(inside, (2, 2, 5, 5), 2) == (2, 2, 5, 9)
    assert fit_box(inside, (2, 2, 5, 5), 0) == (2, 2, 5, 5)
    assert fit_box(np.zeros((4, 4), bool), (0, 1, 2, 3), 1) == (0, 1, 2, 3)
