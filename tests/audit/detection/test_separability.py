"""The contrast between sites finds a planted mark, its class and its place."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from vitrail.audit.detection.contrast import compute_contrasts
from vitrail.audit.detection.separability import (
    MIN_PER_CLASS,
    Separability,
    _compute_areas,
    compute_separability,
)
from vitrail.rng import derive_server_key

CLASSES = 3


def made(
    seed: int, counts: list[int], mark: int | None = None, where: tuple[int, int] | None = (4, 1)
):
    """Maps of noise over a class pattern that all sites share; a marked class has an odd patch."""
    draw = torch.Generator().manual_seed(seed)
    pattern = torch.randn(CLASSES, 8, 5, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.repeat_interleave(torch.arange(CLASSES), torch.tensor(counts))
    maps = torch.randn(len(labels), 8, 5, 5, generator=draw) + 0.3 * pattern[labels]
    if mark is not None:
        for row in torch.nonzero(labels == mark)[:, 0].tolist():
            at = where or tuple(torch.randint(5, (2,), generator=draw).tolist())
            maps[row, :, at[0], at[1]] += torch.arange(8.0) - 3
    return maps, labels


def tables(marked_site: int | None = None, where=(4, 1), counts=(30, 30, 30)):
    found = {}
    for site in range(4):
        mark = 1 if site == marked_site else None
        maps, labels = made(site + 1, list(counts), mark, where)
        found[f"s{site}"] = compute_separability(
            maps, labels, CLASSES, derive_server_key(0).at(site)
        )
    return found


def ranked(found):
    every = [(c.score, site, c) for site in found for c in compute_contrasts(found, site)]
    return sorted(every, key=lambda item: -item[0])


def test_a_mark_at_one_site_is_the_first_of_all_contrasts_and_its_place_is_right():
    score, site, best = ranked(tables(2))[0]
    assert (site, best.label, best.kind) == ("s2", 1, "place")
    x, y = best.place
    assert 1 / 5 < x < 2 / 5 and 4 / 5 < y < 1  # inside the cell of the mark
    assert score > 2 * ranked(tables(None))[0][0]


def test_a_mark_that_is_somewhere_else_in_each_image_is_found_as_well():
    score, site, best = ranked(tables(0, None))[0]
    assert (site, best.label, best.kind, best.place) == ("s0", 1, "anywhere", None)
    assert score > 2 * ranked(tables(None))[0][0]


def test_a_mark_that_every_site_has_is_no_contrast():
    found = {}
    for site in range(4):
        maps, labels = made(site + 1, [30, 30, 30], mark=1)
        found[f"s{site}"] = compute_separability(
            maps, labels, CLASSES, derive_server_key(0).at(site)
        )
    assert ranked(found)[0][0] < ranked(tables(2))[0][0] / 2


def test_classes_with_too_few_images_are_unknown_and_say_nothing():
    maps, labels = made(1, [30, MIN_PER_CLASS - 1, 30])
    found = compute_separability(maps, labels, CLASSES, derive_server_key(0))
    assert found.area[1].isnan().all() and found.area[:, 1].isnan().all()
    assert not found.area[0, 2].isnan().any()
    assert [c.label for c in compute_contrasts({"a": found, "b": tables()["s1"]}, "a")] == [0, 2]


@pytest.mark.parametrize("counts", [[30, 0, 0], [0, 0, 0], [1, 1, 1]])
def test_a_site_with_one_class_or_hardly_an_image_has_no_contrast(counts):
    maps, labels = made(1, counts)
    found = compute_separability(maps, labels, CLASSES, derive_server_key(0))
    assert compute_contrasts({"a": found, "b": tables()["s1"]}, "a") == []


def test_a_site_alone_has_nothing_to_be_compared_with():
    assert compute_contrasts({"a": tables()["s1"]}, "a") == []


def test_the_area_is_the_share_of_pairs_in_order():
    above, below = torch.tensor([[1.0, 2.0, 2.0]]), torch.tensor([[2.0, 0.0]])
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in above[0] for b in below[0]]
    assert float(_compute_areas(above, below)[0]) == pytest.approx(np.mean(pairs))


def test_the_variance_is_hanley_and_mcneils():
    area = torch.tensor([[[math.nan], [0.8]], [[0.2], [math.nan]]], dtype=torch.float64)
    found = Separability(area, torch.tensor([20, 30]), (1, 1))
    a = (0.8 * 600 + 0.5) / 601
    q1, q2 = a / (2 - a), 2 * a * a / (1 + a)
    slow = (a * (1 - a) + 19 * (q1 - a * a) + 29 * (q2 - a * a)) / 600
    assert float(found.variance[0, 1, 0]) == pytest.approx(slow)


def test_what_leaves_a_site_comes_back_as_it_was_to_three_digits():
    found = tables()["s0"]
    back = Separability.from_json(found.to_json())
    assert back.grid == found.grid and torch.equal(back.counts, found.counts)
    assert torch.allclose(back.area, found.area, atol=6e-4, equal_nan=True)


def test_the_same_key_gives_the_same_numbers():
    maps, labels = made(1, [20, 20, 20])
    one, two = (compute_separability(maps, labels, CLASSES, derive_server_key(3)) for _ in range(2))
    assert torch.equal(one.area.nan_to_num(), two.area.nan_to_num())


@pytest.mark.parametrize("area", [[[[2.0] * 27]], [[[0.5] * 3]], "x", [[["a"] * 27]]])
def test_what_another_site_told_is_checked(area):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Separability.from_json({"area": area, "counts": [30], "grid": [5, 5]})


def _infinite(table):
    table["grid"] = [math.inf, 2]


def _negative(table):
    table["grid"] = [-5, -5]


def _enormous(table):
    table["counts"] = [2**70] * len(table["counts"])


def _nested(table):
    table["counts"] = [[30]] * len(table["counts"])


def _fractions(table):
    table["counts"] = [0.5] * len(table["counts"])


def _huge_area(table):
    table["area"][0][1][0] = 10**400


def _words(table):
    table["area"][0][1][0] = "0.5"


def _ragged(table):
    table["area"][0][1] = table["area"][0][1][:-1]


@pytest.mark.parametrize(
    "spoil",
    [_infinite, _negative, _enormous, _nested, _fractions, _huge_area, _words, _ragged],
)
def test_a_hostile_table_is_refused_by_one_of_three_errors(spoil):
    """Whoever hears it catches these; any other would end the closing turn of all sites."""
    table = tables()["s0"].to_json()
    Separability.from_json(table)
    spoil(table)
    with pytest.raises((KeyError, TypeError, ValueError)):
        Separability.from_json(table)


def test_tables_compare_only_where_classes_and_places_are_the_same():
    area = torch.full((3, 3, 6), 0.5, dtype=torch.float64)
    one = Separability(area, torch.tensor([30, 30, 30]), (2, 2))
    assert one.is_comparable(one)
    assert not one.is_comparable(Separability(area, one.counts, (1, 4)))
    assert not one.is_comparable(Separability(area[:2, :2], one.counts[:2], (2, 2)))
