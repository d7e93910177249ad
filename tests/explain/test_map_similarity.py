"""How close two maps are, against the formulas written out and another library."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from vitrail.errors import DataError
from vitrail.explain.map_similarity import (
    average_metrics,
    compare_maps,
    global_ssim,
    is_constant,
    mse,
    psnr,
    scale_map,
    ssim,
    top_overlap,
)


def maps(seed, side=24):
    draw = np.random.default_rng(seed)
    return [torch.from_numpy(draw.random((side, side))) for _ in range(2)]


def test_scaling_and_errors_by_hand():
    a = torch.tensor([[0.0, 1.0], [2.0, 4.0]])
    b = torch.tensor([[4.0, 1.0], [2.0, 0.0]])
    assert scale_map(a).tolist() == [[0.0, 63.75], [127.5, 255.0]]
    assert mse(a, b) == 8.0
    assert psnr(scale_map(a), scale_map(b)) == pytest.approx(10 * math.log10(2))  # MSE is 255^2 / 2
    assert psnr(a, a) == math.inf


@pytest.mark.parametrize("seed", range(3))
def test_global_similarity_against_equation_14(seed):
    x, y = (scale_map(m).flatten().tolist() for m in maps(seed))
    n = len(x)
    mx, my = sum(x) / n, sum(y) / n
    vx = sum((v - mx) ** 2 for v in x) / n
    vy = sum((v - my) ** 2 for v in y) / n
    both = sum((v - mx) * (w - my) for v, w in zip(x, y, strict=True)) / n
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    expected = (2 * mx * my + c1) * (2 * both + c2) / ((mx**2 + my**2 + c1) * (vx + vy + c2))
    a, b = maps(seed)
    assert global_ssim(scale_map(a), scale_map(b)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_windowed_similarity_written_out(seed):
    """Wang et al. 2004: Gaussian windows of 11 x 11 and SD 1.5, one around each pixel of
    the map, mirrored at its border."""
    a, b = (np.pad(scale_map(m).numpy(), 5, mode="reflect") for m in maps(seed, 18))
    line = np.exp(-((np.arange(11) - 5) ** 2) / (2 * 1.5**2))
    window = np.outer(line, line) / np.outer(line, line).sum()
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = []
    for row in range(18):
        for column in range(18):
            x, y = (m[row : row + 11, column : column + 11] for m in (a, b))
            mx, my = (window * x).sum(), (window * y).sum()
            vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
            both = (window * (x - mx) * (y - my)).sum()
            top = (2 * mx * my + c1) * (2 * both + c2)
            found.append(top / ((mx**2 + my**2 + c1) * (vx + vy + c2)))
    one, other = (scale_map(m) for m in maps(seed, 18))
    assert ssim(one, other) == pytest.approx(np.mean(found), abs=1e-6)
    assert ssim(one, one) == pytest.approx(1.0)


def test_overlap_of_the_strongest_tenth():
    a = torch.arange(100.0).view(10, 10)
    assert top_overlap(a, a) == 1.0 and top_overlap(a, -a) == 0.0
    b = a.clone()
    b[9, 5:] = -1.0
    assert top_overlap(a, b) == 0.5


def test_all_figures_of_a_pair():
    a, b = maps(7)
    found = compare_maps(a, b)
    assert found["rank_correlation"] == pytest.approx(spearmanr(a.flatten(), b.flatten()).statistic)
    assert found["raw_psnr"] == pytest.approx(
        10 * math.log10(float(a.max() - a.min()) ** 2 / found["raw_mse"])
    )
    same = compare_maps(a, 3 * a + 1)  # scaling takes the difference away
    assert same["mse"] < 1e-9 and same["ssim"] == pytest.approx(1) and same["raw_mse"] > 1


@pytest.mark.parametrize(
    "other",
    [torch.zeros(24, 24), torch.full((24, 24), 3.0), torch.full((24, 24), float("nan"))],
)
def test_a_map_that_says_nothing_is_a_failure(other):
    a, _ = maps(1)
    assert is_constant(other) and compare_maps(a, other) is None and compare_maps(other, a) is None


def test_maps_of_two_sizes_do_not_compare():
    with pytest.raises(DataError, match="do not compare"):
        compare_maps(torch.rand(4, 4), torch.rand(5, 5))


def test_means_leave_out_infinite_decibels():
    assert average_metrics([]) == {}
    assert average_metrics([{"psnr": math.inf}, {"psnr": 20.0}]) == {"psnr": 20.0}
    assert average_metrics([{"psnr": math.inf}]) == {"psnr": None}
