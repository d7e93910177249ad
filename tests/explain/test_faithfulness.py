"""Measures of truth on cases whose answer is known."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from vitrail.errors import DataError
from vitrail.explain.attribution import attribute
from vitrail.explain.faithfulness import (
    Curve,
    compare_with_random,
    compute_pointing_chance,
    deletion_curve,
    insertion_curve,
    points_at_region,
    randomize_network,
    rank_correlation,
    rank_regions,
    rank_regions_randomly,
    run_sanity_check,
    share_inside,
)
from vitrail.rng import derive_server_key


def region(height=10, width=12, box=(3, 2, 7, 5)):
    mask = torch.zeros(height, width, dtype=torch.bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    return mask


@pytest.mark.parametrize(
    ("place", "hit"),
    [
        ((3, 2, 7, 5), True),
        ((5.0, 3.9), True),
        ((7, 2), False),  # the right edge is outside
        ((0, 0, 12, 10), False),  # its middle is (6, 5), below
        ((-4, 0, 2, 2), False),
        ((500, 500), False),
    ],
)
def test_pointing(place, hit):
    assert points_at_region(place, region()) is hit


def test_the_share_inside_counts_what_speaks_for_the_class():
    map_, mask = torch.zeros(10, 12), region()
    assert np.isnan(share_inside(map_, mask))
    map_[2, 3], map_[0, 0], map_[4, 6] = 3.0, 1.0, -9.0
    assert share_inside(map_, mask) == 0.75
    assert share_inside(torch.ones(10, 12), mask) == pytest.approx(12 / 120)


@pytest.mark.parametrize("place", [(1,), (1, 2, 3), (float("nan"), 0), ()])
def test_pointing_at_nothing_is_refused(place):
    with pytest.raises(DataError):
        points_at_region(place, region())


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (12, 10)])
def test_chance_is_the_share_of_all_places_of_the_box(size):
    mask, (wide, high) = region(), size
    places = itertools.product(range(12 - wide + 1), range(10 - high + 1))
    hits = [points_at_region((x, y, x + wide, y + high), mask) for x, y in places]
    assert compute_pointing_chance((0, 0, wide, high), mask) == pytest.approx(np.mean(hits))


def test_chance_of_everything_nothing_and_a_box_too_large():
    assert compute_pointing_chance((1, 1, 4, 4), torch.ones(8, 8, dtype=torch.bool)) == 1
    assert compute_pointing_chance((1, 1, 4, 4), torch.zeros(8, 8, dtype=torch.bool)) == 0
    with pytest.raises(DataError, match="does not fit"):
        compute_pointing_chance((0, 0, 9, 4), torch.ones(8, 8, dtype=torch.bool))
    with pytest.raises(DataError):
        compute_pointing_chance((3, 3, 3, 5), torch.ones(8, 8, dtype=torch.bool))


def mean_of_corner(images):
    """A model that looks at the upper left quarter only."""
    return images[:, :, :8, :8].mean((1, 2, 3))


def test_curves_of_a_model_whose_region_is_known():
    image, map_ = torch.ones(3, 16, 16), torch.zeros(16, 16)
    map_[:8, :8] = 1
    order = rank_regions(map_, 2)
    gone = deletion_curve(mean_of_corner, image, order, steps=4)
    assert gone.shares == (0, 0.25, 0.5, 0.75, 1) and gone.scores == (1, 0, 0, 0, 0)
    assert gone.area == pytest.approx(0.125)
    back = insertion_curve(mean_of_corner, image, order, steps=4)
    assert back.scores == (0, 1, 1, 1, 1) and back.area == pytest.approx(0.875)
    fill = torch.full((3, 1, 1), 0.5)
    assert deletion_curve(mean_of_corner, image, order, 4, fill).scores == (1, 0.5, 0.5, 0.5, 0.5)


def test_the_right_order_beats_random_ones_and_the_wrong_one_does_not():
    image, map_ = torch.ones(3, 16, 16), torch.zeros(16, 16)
    map_[:8, :8] = 1

    def curve(order):
        return deletion_curve(mean_of_corner, image, order, steps=16)

    right = compare_with_random(curve, map_, derive_server_key(1), cells=4)
    wrong = compare_with_random(curve, -map_, derive_server_key(1), cells=4)
    assert len(right.random) == 10 and right.random == wrong.random
    assert right.area < min(right.random) and right.gain < 0 < wrong.gain


def test_orders_are_ranks_of_whole_regions():
    map_ = torch.randn(15, 10, generator=derive_server_key(2).torch())
    for order in (rank_regions(map_, 4), rank_regions_randomly(15, 10, 4, derive_server_key(3))):
        assert order.shape == (15, 10) and set(order.flatten().tolist()) == set(range(16))
    means = [map_[rank_regions(map_, 4) == rank].double().mean() for rank in range(16)]
    assert means == sorted(means, reverse=True)
    assert rank_regions(torch.zeros(4, 4), 1).unique().tolist() == [0]


@pytest.mark.parametrize("cells", [0, 11])
def test_regions_that_do_not_fit_are_refused(cells):
    with pytest.raises(DataError, match="regions"):
        rank_regions(torch.zeros(10, 20), cells)


def test_a_curve_needs_ranks_of_this_image():
    with pytest.raises(DataError):
        deletion_curve(mean_of_corner, torch.ones(3, 8, 8), torch.zeros(4, 4), 2)
    assert Curve((0.0, 1.0), (2.0, 2.0)).area == 2


def test_rank_correlation_is_spearmans():
    a, b = torch.randn(2, 6, 7, generator=derive_server_key(4).torch())
    b = (b > 0).float() * b  # ties
    assert rank_correlation(a, b) == pytest.approx(spearmanr(a.flatten(), b.flatten()).statistic)
    assert rank_correlation(a, a.exp()) == pytest.approx(1)
    assert np.isnan(rank_correlation(a, torch.ones(6, 7)))
    assert np.isnan(rank_correlation(a, a * torch.nan))


def test_a_randomized_copy_is_another_model_and_leaves_the_first_alone(network, picture):
    net = network()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    other = randomize_network(net, derive_server_key(5))
    assert all(torch.equal(before[name], t) for name, t in net.state_dict().items())
    assert not torch.allclose(net(picture()), other(picture()))
    assert torch.equal(other(picture()), randomize_network(net, derive_server_key(5))(picture()))
    ratio = other.neck.conv1.weight.std() / net.neck.conv1.weight.std()
    assert 0.5 < ratio.item() < 2


def test_sanity_tells_a_map_of_the_model_from_a_map_of_the_image(network, picture):
    net, x = network("linear"), picture(3)
    edges = run_sanity_check(lambda _: x.abs().sum(1), net, derive_server_key(6))
    assert edges == pytest.approx([1, 1, 1])
    learned = run_sanity_check(
        lambda n: attribute("gradient", n, x, torch.tensor([0, 1, 2])), net, derive_server_key(6)
    )
    assert max(map(abs, learned)) < 0.5
