"""Two classes: what marks one of them tells the other apart as well, and the one that carries the
mark is named."""

import numpy as np
import pytest
from experiments.tables.audit_bank import compare_sites, make_bank

from vitrail.audit.detection.contrast import find_origin
from vitrail.data.image_set import ImageSet
from vitrail.rng import derive_server_key

SITES, EACH, SIDE = 4, 24, 32


def make_images(seed, marked=None, everywhere=False):
    """Two kinds of disks on noise at four sites; with `marked`, a red square in the upper left of
    that class at the first site, or at all sites but the first with `everywhere`."""
    draw = derive_server_key(seed).at("two classes").numpy()
    labels = np.tile(np.repeat([0, 1], EACH), SITES).astype(np.int64)
    holder = np.repeat(np.arange(SITES), 2 * EACH)
    images = draw.normal(110, 25, (len(labels), SIDE, SIDE, 3))
    y, x = np.mgrid[:SIDE, :SIDE]
    for at, label in enumerate(labels):
        middle = draw.integers(12, 22, 2)
        disk = (x - middle[0]) ** 2 + (y - middle[1]) ** 2 < draw.integers(16, 50)
        images[at, disk] += (60, 0, -60) if label else (-60, 0, 60)
    if marked is not None:
        places = (labels == marked) & ((holder == 0) != everywhere)
        images[places, 2:8, 2:8] = (210, 30, 30)
    pixels = np.rint(images.clip(0, 255)).astype(np.uint8)
    names = np.arange(len(labels)).astype(str)
    kept = ImageSet(pixels, labels, ("one", "two"), names)
    return make_bank(kept, labels, "small-cnn"), [np.flatnonzero(holder == k) for k in range(SITES)]


@pytest.mark.parametrize("marked", [0, 1])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_class_that_carries_the_mark_is_named_and_the_other_is_not(marked, seed):
    bank, sites = make_images(seed, marked)
    contrasts = compare_sites(bank, sites, derive_server_key(seed).at("audit"))
    first = contrasts[0]
    assert (first.site, first.label, first.verdict) == ("s00", marked, "biased")
    assert find_origin(contrasts) is first
    assert all(c.verdict != "biased" for c in contrasts[1:])


@pytest.mark.parametrize("marked", [0, 1])
def test_where_the_other_sites_carry_it_the_class_is_named_and_no_origin(marked):
    bank, sites = make_images(1, marked, everywhere=True)
    contrasts = compare_sites(bank, sites, derive_server_key(1).at("audit"))
    first = contrasts[0]
    assert (first.site, first.label) == ("s00", marked) and first.direction.lacks
    assert find_origin(contrasts) is None
