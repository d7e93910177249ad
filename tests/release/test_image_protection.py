"""The guarantees of shared images: what holds, to the digit, and what does not."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm as normal

from vitrail.local.sharing.choose_pixels import make_masks
from vitrail.release.accounting import gaussian
from vitrail.release.accounting.metric_privacy import Distances, compute_epsilon_curve, epsilon_at
from vitrail.release.accounting.randomized_response import (
    compute_truth_probability,
    randomize_labels,
)
from vitrail.release.image_protection import (
    NoiseBox,
    Protection,
    average_groups,
    clip_images,
    make_noise_factors,
    protect,
)
from vitrail.rng import derive_server_key

DELTA = 1e-5


def images(count=6, size=8, channels=3, seed=0):
    shape = (count, size, size, channels)
    return torch.rand(shape, generator=derive_server_key(seed).at("images").torch())


def labels(count=6, classes=3):
    return torch.arange(count) % classes


# local differential privacy


def test_the_noise_hits_epsilon_and_delta_exactly():
    how = Protection("local-dp", epsilon=8.0, delta=DELTA, clip=5.0, epsilon_label=1.0)
    ratio = 10.0 / how.deviation  # sensitivity 2C over sigma, then Balle and Wang's theorem 8
    spent = normal.cdf(ratio / 2 - 8.0 / ratio) - math.exp(8.0) * normal.cdf(
        -ratio / 2 - 8.0 / ratio
    )
    assert spent == pytest.approx(DELTA, rel=1e-6)
    # a hair less noise would not be enough
    assert gaussian.compute_delta(8.0, 0.999 * how.deviation, 10.0) > DELTA


def test_the_line_adds_both_budgets_and_says_what_it_covers():
    how = Protection("local-dp", epsilon=3.0, epsilon_label=1.5, clip=2.0)
    line = protect(images(), labels(), 3, how, derive_server_key(1)).line
    assert line["epsilon"] == 4.5 and line["guarantee"] == "formal: local DP"
    assert "model updates" in line["covers"] and line["images"] == 6
    assert line["bytes"] == 6 * (8 * 8 * 3 * 4 + 8)


def test_every_image_is_cut_to_the_norm_and_every_pixel_is_noised():
    how = Protection("local-dp", epsilon=8.0, clip=1.0, epsilon_label=2.0)
    raw = images(400) * torch.tensor([0.0, 1.0]).repeat(200)[:, None, None, None]
    assert (
        float(torch.linalg.vector_norm(clip_images(raw, 1.0).flatten(1), dim=1).max()) <= 1 + 1e-6
    )
    small = raw * 1e-3
    torch.testing.assert_close(clip_images(small, 1.0), small.double())
    found = protect(raw, labels(400), 3, how, derive_server_key(1)).pixels
    noise = found - clip_images(raw, 1.0)
    # masked pixels (half of the images are all zero) get as much as the others
    for part in (noise[::2], noise[1::2]):
        assert float(part.std()) == pytest.approx(how.deviation, rel=0.02)
        # the grid has about 100 steps in a deviation, so that one number in 250 meets its own
        assert float((part == 0).double().mean()) < 0.02


def test_means_over_a_class_need_less_noise_and_use_each_image_once():
    one, many = (Protection("local-dp", clip=2.0, group=g, epsilon_label=1.0) for g in (1, 8))
    assert many.deviation == pytest.approx(one.deviation / 8)
    pixels = torch.arange(10.0)[:, None, None, None].expand(10, 1, 1, 1)
    found, targets = average_groups(
        pixels, torch.tensor([0] * 5 + [1] * 5), 2, derive_server_key(3)
    )
    assert targets.tolist() == [0, 0, 1, 1] and found.shape == (4, 1, 1, 1)
    assert float(found[:2].max()) <= 4 and float(found[2:].min()) >= 5
    # changing one image moves one mean, by 1/group of the change
    other = pixels.clone()
    other[7] += 1.0
    again, _ = average_groups(other, torch.tensor([0] * 5 + [1] * 5), 2, derive_server_key(3))
    moved = (again - found).flatten()
    assert int((moved != 0).sum()) <= 1 and float(moved.abs().max()) in (0.0, 0.5)


def test_randomized_response_has_the_stated_epsilon():
    classes, epsilon = 5, 1.3
    chance = compute_truth_probability(classes, epsilon)
    other = (1 - chance) / (classes - 1)
    assert math.log(chance / other) == pytest.approx(epsilon, abs=1e-12)
    told = randomize_labels(
        torch.full((60_000,), 2), classes, epsilon, derive_server_key(7)
    ).numpy()
    counts = np.bincount(told, minlength=classes) / len(told)
    # five standard errors; a scheme that draws the label itself among the "others" is outside
    expected = np.where(np.arange(classes) == 2, chance, other)
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected / len(told)))
    assert torch.equal(
        randomize_labels(torch.zeros(3).long(), 1, 1.0, derive_server_key(1)), torch.zeros(3).long()
    )


def test_the_distinguishing_game_stays_below_the_claim():
    """An adversary who knows both candidates and tests by the likelihood ratio, its best test;
    refuted if it ever does better than e^eps FPR + delta allows, five standard errors apart."""
    epsilon, delta, games = 1.0, 0.05, 4000
    how = Protection("local-dp", epsilon=epsilon, delta=delta, clip=1.0)
    a = torch.zeros(1, 2, 2, 1)
    a[0, 0, 0, 0] = 1.0
    scores = []
    for image, name in ((a, "a"), (-a, "b")):  # as far apart as clipping lets them be
        pixels = image.expand(games, 2, 2, 1)
        found = protect(pixels, labels(games, 1), 1, how, derive_server_key(5).at(name)).pixels
        scores.append(found[:, 0, 0, 0].double())
    best = 0.0
    for cut in torch.linspace(-3, 3, 61):
        hit, false = (float((s > cut).double().mean()) for s in scores)
        error = 5 * math.sqrt(0.25 / games) * (1 + math.exp(epsilon))
        assert hit <= math.exp(epsilon) * false + delta + error
        best = max(best, hit - math.exp(epsilon) * false)
    assert best > delta / 3  # the game is not lost by a wide margin: the noise is not excessive


# metric privacy


def test_the_supplements_claim_fails_and_the_curve_does_not():
    """Loss <= eps * d is false for Gaussian noise: with eps = 5 at distance 1 it is 96 at distance
    10 for the supplement's noise, and 110 for the analytic mechanism's, which is smaller."""
    sigma = math.sqrt(2 * math.log(1.25 / DELTA)) / 5
    assert epsilon_at(10.0, sigma, DELTA, "l2") == pytest.approx(96, abs=1)
    sigma = gaussian.compute_sigma(5.0, DELTA, 1.0)
    assert epsilon_at(10.0, sigma, DELTA, "l2") == pytest.approx(110, abs=1)
    distances, values = zip(*compute_epsilon_curve(sigma, DELTA, "l2"))
    assert list(values) == sorted(values) and distances[0] < distances[-1]
    for distance, value in zip(distances, values):
        assert gaussian.compute_delta(value, sigma, distance) <= DELTA * (1 + 1e-6)
        if value > 0.01:
            assert gaussian.compute_delta(0.99 * value, sigma, distance) > DELTA


def test_laplace_noise_is_linear_in_the_l1_distance():
    how = Protection("metric", sigma=0.5, norm="l1", fixed_masks=True)
    assert epsilon_at(3.0, 0.5, DELTA, "l1") == pytest.approx(3.0 * math.sqrt(2) / 0.5)
    blank = torch.zeros(300, 8, 8, 3)
    noise = protect(blank, labels(300), 3, how, derive_server_key(2)).pixels.double()
    scale = 0.5 / math.sqrt(2)
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02)
    for t in (0.5, 2.0):  # tails of Laplace, not of Gauss
        assert float((noise.abs() > t * scale).double().mean()) == pytest.approx(
            math.exp(-t), rel=0.05
        )


def test_the_metric_game_stays_below_the_curve():
    sigma, delta, games = 1.0, 0.02, 4000
    how = Protection("metric", sigma=sigma, delta=delta, fixed_masks=True)
    claim = epsilon_at(0.8, sigma, delta, "l2")
    zero = torch.zeros(games, 1, 1, 1)
    scores = [
        protect(
            zero + shift, labels(games, 1), 1, how, derive_server_key(4).at(shift)
        ).pixels.flatten()
        for shift in (0.8, 0.0)
    ]
    for cut in torch.linspace(-2, 3, 51):
        hit, false = (float((s > cut).double().mean()) for s in scores)
        error = 5 * math.sqrt(0.25 / games) * (1 + math.exp(claim))
        assert hit <= math.exp(claim) * false + delta + error


def test_a_mask_that_follows_the_image_jumps():
    """Mode C is not Lipschitz: at a tie, an image that changes by 1e-6 changes its masked version
    by almost a whole pixel, so no noise calibrated to the distance covers it."""
    one = torch.tensor([[[0.9, 0.9 - 1e-6]]])
    two = torch.tensor([[[0.9 - 1e-6, 0.9]]])
    apart = float((one - two).norm())
    masked = [x * make_masks(x, 0.5) for x in (one, two)]
    assert apart < 2e-6 and float((masked[0] - masked[1]).norm()) > 1.2
    fixed = make_masks(one, 0.5)
    assert float((one * fixed - two * fixed).norm()) <= apart


def test_distances_are_those_between_images_of_one_class():
    pixels = torch.tensor([0.0, 1.0, 3.0, 100.0, 100.5]).view(5, 1, 1, 1)
    classes = torch.tensor([0, 0, 0, 1, 1])
    found = Distances.of(pixels, classes, "l2")
    assert found.nearest == pytest.approx(1.0)  # of 1, 1, 2, 0.5, 0.5
    assert found.pair == pytest.approx(1.0)  # the lower middle of 0.5, 1, 2, 3
    upside_down = Distances.of(
        pixels, classes, "l2", where=torch.tensor([0, 9, 1, 0, 1.0])[:, None]
    )
    assert upside_down.nearest == pytest.approx(2.0)  # of 3, 2, 3, 0.5, 0.5
    assert Distances.of(pixels[:1], classes[:1], "l2") == Distances(None, None)
    told = found.epsilons(1.0, DELTA, "l2")
    assert told["pair"][1] == pytest.approx(gaussian.compute_epsilon(1.0, DELTA, 1.0))


@pytest.mark.parametrize("mode", ["paper", "metric", "local-dp"])
@pytest.mark.parametrize("masks", [{}, {"fixed_masks": True}, {"class_masks": True}])
@pytest.mark.parametrize("mask", [None, 1.0])
@pytest.mark.parametrize("label", [None, 2.0])
def test_a_protection_is_formal_where_its_line_says_so(mode, masks, mask, label):
    how = Protection(mode, epsilon_label=label, epsilon_mask=mask, **masks)
    pixels = torch.rand(4, 3, 3, 1, generator=torch.Generator().manual_seed(1))
    line = protect(
        pixels, torch.tensor([0, 1, 0, 1]), 2, how, derive_server_key(3).at("x"), None
    ).line
    said = line["guarantee"]
    assert how.formal == (said.startswith("formal") and "not covered" not in said)


@pytest.mark.parametrize(("fixed", "word"), [(True, "formal"), (False, "empirical")])
def test_metric_privacy_is_formal_only_with_masks_that_no_image_made(fixed, word):
    how = Protection("metric", sigma=1.0, fixed_masks=fixed)
    line = protect(images(), labels(), 3, how, derive_server_key(1), Distances(1.0, 2.0)).line
    assert line["guarantee"].startswith(word) and "epsilon" not in line
    assert line["curve"][0][0] == 0.1 and set(line["distances"]) == {"nearest neighbor", "pair"}


# what noise and masks do to an image


@pytest.mark.parametrize("removed", [0.6, 0.85])
def test_the_distortion_is_what_was_removed_plus_the_noise(removed):
    """E|x - out|^2 = |(1 - m) x|^2 + d sigma^2, and E|m x - out|^2 = d sigma^2."""
    raw = images(300, 16)
    heat = torch.rand(300, 16, 16, generator=derive_server_key(8).torch())
    masked = raw * make_masks(heat, removed)[..., None]
    out = protect(
        masked, labels(300), 3, Protection("paper", sigma=0.2), derive_server_key(1)
    ).pixels
    noise = 16 * 16 * 3 * 0.2**2
    lost = (raw - masked).square().flatten(1).sum(1)
    assert float((out - masked).square().flatten(1).sum(1).mean()) == pytest.approx(noise, rel=0.02)
    assert float((out - raw).square().flatten(1).sum(1).mean()) == pytest.approx(
        float(lost.mean()) + noise, rel=0.02
    )


def test_regions_have_their_own_noise():
    regions = (NoiseBox((0, 0, 0.5, 1), 3.0), NoiseBox((0, 0, 0.5, 0.5), 2.0))
    found = make_noise_factors(regions, 8, 8)
    assert found[:, 4:].eq(1).all() and found[:, :4].eq(3).all()
    assert make_noise_factors((NoiseBox((0, 0, 1, 0.5), 0.0),), 8, 8)[:4].eq(0).all()
    how = Protection("paper", sigma=0.1, regions=regions)
    noise = protect(torch.zeros(400, 8, 8, 1), labels(400), 3, how, derive_server_key(1)).pixels
    assert float(noise[:, :, :4].std()) == pytest.approx(0.3, rel=0.03)
    assert float(noise[:, :, 4:].std()) == pytest.approx(0.1, rel=0.03)
    assert how.span[1] > 1 + 12 * 0.3 - 1e-9


def test_the_same_key_gives_the_same_noise_and_no_other_does():
    how = Protection("paper", sigma=0.1)
    one, again = (
        protect(images(), labels(), 3, how, derive_server_key(1)).pixels for _ in range(2)
    )
    other = protect(images(), labels(), 3, how, derive_server_key(2)).pixels
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize("mode", ["paper", "local-dp", "metric"])
@pytest.mark.parametrize("count", [0, 1])
def test_no_image_and_one_image(mode, count):
    how = Protection(mode, sigma=0.1, group=2 if mode == "local-dp" else 1, epsilon_label=1.0)
    found = protect(images(count), labels(count), 3, how, derive_server_key(1))
    assert len(found.pixels) == len(found.targets) == (0 if mode == "local-dp" else count)


# masks that a class's images made together


def line(**changes):
    how = Protection(**{"sigma": 0.5, "class_masks": True, **changes})
    return protect(torch.rand(6, 4, 4, 1), labels(6), 3, how, derive_server_key(1)).line


def test_masks_of_a_class_cost_a_budget_of_their_own():
    told = line(mode="metric", epsilon_mask=1.5)
    assert told["guarantee"].startswith("formal: 1.5 for the masks, and epsilon(distance)")
    assert told["epsilon_mask"] == 1.5 and told["delta_mask"] == DELTA
    told = line(mode="local-dp", epsilon=4.0, epsilon_label=2.0, epsilon_mask=1.5)
    assert told["epsilon"] == 7.5 and told["delta"] == 2 * DELTA
    assert told["guarantee"] == "formal: local DP"


@pytest.mark.parametrize("mode", ["metric", "local-dp", "paper"])
def test_without_one_nothing_is_promised(mode):
    """One image moves the mask of every other: what is promised of it alone does not hold."""
    told = line(mode=mode)
    assert told["guarantee"].startswith("empirical") and "epsilon" not in told
