"""A few images of each class: who keeps what, and what is refused."""

import numpy as np
import pytest

from vitrail.config.schema import Data, Partition
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.limit_per_class import limit_per_class
from vitrail.data.partition.partition import make_partition
from vitrail.errors import ConfigError
from vitrail.rng import derive_server_key

KEY = derive_server_key(3)
LABELS = np.arange(200) % 4


def images():
    names = np.array([f"{i}" for i in range(200)])
    pixels = np.zeros((200, 8, 8, 3), np.uint8)
    return ImageSet(images=pixels, labels=LABELS, classes=("a", "b", "c", "d"), names=names)


def dealt(**options):
    return make_partition(images(), Partition(sites=5, **options), Data(), KEY)


def test_so_many_of_each_class_over_all_sites_and_test_images_stay():
    whole, few = dealt(), dealt(per_class=6)
    train = np.concatenate([site.train for site in few.sites])
    assert np.bincount(LABELS[train]).tolist() == [6, 6, 6, 6]
    for site, before in zip(few.sites, whole.sites, strict=True):
        assert np.array_equal(site.test, before.test)
        assert np.isin(site.train, before.train).all() and (np.diff(site.train) > 0).all()


def test_a_smaller_number_keeps_a_part_of_a_larger_one():
    small, large = dealt(per_class=5), dealt(per_class=9)
    for site, more in zip(small.sites, large.sites, strict=True):
        assert np.isin(site.train, more.train).all()
    drawn = [
        make_partition(images(), Partition(per_class=5), Data(), derive_server_key(s))
        for s in (1, 1, 2)
    ]
    first, again, other = (np.concatenate([s.train for s in d.sites]) for d in drawn)
    assert np.array_equal(first, again) and set(first) != set(other)


def test_more_than_there_are_changes_nothing():
    for site, before in zip(dealt(per_class=1000).sites, dealt().sites, strict=True):
        assert np.array_equal(site.train, before.train)


def test_a_rare_class_keeps_what_it_has():
    labels = np.array([0] * 9 + [1])
    (rows,) = limit_per_class([np.arange(10)], ["a"], labels, 3, KEY)
    assert np.bincount(labels[rows]).tolist() == [3, 1]


def test_a_site_that_would_be_left_with_nothing_is_named():
    with pytest.raises(ConfigError, match=r"per_class: site 'b' has no training image left with 1"):
        limit_per_class([np.arange(40), np.arange(40, 41)], ["a", "b"], np.zeros(41, int), 1, KEY)
