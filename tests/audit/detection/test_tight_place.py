"""The box around a mark: it fits, and there is none where nothing is."""

import numpy as np
import pytest

from vitrail.audit.counterfactual.overlap import iou
from vitrail.audit.detection.tight_place import (
    compute_divergence,
    find_largest_rectangle,
    find_tight_place,
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


def test_the_divergence_is_that_of_two_normal_distributions():
    one, two = noise(9, 0, 2), noise(7, 1, 2)
    value = compute_divergence(one, two)[1, 0]
    parts = []
    for channel in range(3):
        a, b = one[:, 1, 0, channel].astype(float), two[:, 1, 0, channel].astype(float)
        p, q = a.var() + 4, b.var() + 4
        parts.append(0.5 * (p / q + (a.mean() - b.mean()) ** 2 / q - 1 - np.log(p / q)))
    assert value == pytest.approx(np.mean(parts))
