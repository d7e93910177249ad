"""Scores against the formulas in float64, and the cases in which they could lie."""

import math

import pytest
import torch

from vitrail.attack.image_scores import psnr, score_images, ssim
from vitrail.errors import DataError


def images(count, seed=0, size=16):
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def test_psnr_is_that_of_the_pixel_range():
    a, b = images(1), images(1, 1)
    mse = sum((float(x) - float(y)) ** 2 for x, y in zip(a.flatten(), b.flatten())) / a.numel()
    (found,) = score_images(a, b)
    assert found.mse == pytest.approx(mse, rel=1e-6)
    assert found.psnr == pytest.approx(10 * math.log10(1 / mse), rel=1e-6)
    assert float(psnr(torch.zeros(()))) == pytest.approx(100)


def slow_ssim(a, b, sigma=1.5, side=11):
    """Wang et al. 2004, equation 13, with a Gaussian window, channel by channel, in float64."""
    at = torch.arange(side, dtype=torch.float64) - side // 2
    line = torch.exp(-(at**2) / (2 * sigma**2))
    window = (line[:, None] * line) / line.sum() ** 2
    values = []
    for x, y in zip(a.double(), b.double()):
        for top in range(x.shape[0] - side + 1):
            for left in range(x.shape[1] - side + 1):
                p, q = (t[top : top + side, left : left + side] for t in (x, y))
                mp, mq = (window * p).sum(), (window * q).sum()
                vp, vq = (window * (p - mp) ** 2).sum(), (window * (q - mq) ** 2).sum()
                both = (window * (p - mp) * (q - mq)).sum()
                c1, c2 = 0.01**2, 0.03**2
                values.append(
                    (2 * mp * mq + c1) * (2 * both + c2)
                    / ((mp**2 + mq**2 + c1) * (vp + vq + c2))
                )  # fmt: skip
    return float(torch.stack(values).mean())


def test_ssim_is_that_of_the_paper_channel_by_channel():
    a = images(1)[0]
    b = (0.7 * a + 0.3 * images(1, 1)[0]).clamp(0, 1)
    assert float(ssim(a[None], b[None])) == pytest.approx(slow_ssim(a, b), abs=0.02)
    assert float(ssim(a[None], a[None])) == pytest.approx(1.0, abs=1e-5)


def test_order_does_not_matter_and_each_true_image_counts_once():
    truth = images(4)
    found = score_images(truth[[2, 0]] + 0.01, truth)
    assert [s.truth for s in found] == [2, 0]
    twice = score_images(truth[[1, 1]], truth)
    assert len({s.truth for s in twice}) == 2  # the same picture twice is one image stolen
    assert sum(s.mse < 1e-9 for s in twice) == 1


def test_identified_means_nearest_among_all():
    truth, others = images(2), images(5, 7)
    near = score_images((truth + 0.02).clamp(0, 1), truth, others)
    assert all(s.identified for s in near)
    assert not any(s.identified for s in score_images(others[:2], truth, others))
    gray = torch.full((1, 3, 16, 16), 0.5)
    assert not score_images(gray, truth[:1], torch.cat([gray, others]))[0].identified


def test_small_gray_images_and_equal_ones():
    a = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    assert all(s.psnr == pytest.approx(100) and s.ssim > 0.99 for s in score_images(a, a))


@pytest.mark.parametrize(
    ("found", "truth"),
    [
        (images(3), images(2)),
        (images(1, size=8), images(1)),
        (torch.full((1, 3, 16, 16), torch.nan), images(1)),
    ],
)
def test_what_cannot_be_compared(found, truth):
    with pytest.raises(DataError):
        score_images(found, truth)
