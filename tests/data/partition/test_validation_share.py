"""Images that settings are chosen on: never tested, whatever the seed, the fold or the copies."""

import numpy as np
import pytest

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.config.schema import Partition as Options
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import make_partition
from vitrail.errors import ConfigError

CLASSES = ("a", "b", "c")


def make_images(count=180, **columns):
    return ImageSet(
        images=np.zeros((count, 1, 1, 3), np.uint8),
        labels=np.arange(count) % 3,
        classes=CLASSES,
        names=np.array([f"i{i}" for i in range(count)]),
        **columns,
    )


def deal(images, seed=1, **options):
    options = {"sites": 3, "folds": 5, "validation": 0.25, **options}
    return make_partition(images, Options(**options), Data(), rng.derive_server_key(seed))


def gather(partition, side):
    return np.sort(np.concatenate([getattr(site, side) for site in partition.sites]))


def test_what_is_validated_on_is_never_tested_and_everything_else_is_tested_once():
    images = make_images()
    chosen_on = {
        tuple(gather(deal(images, seed, validate_only=True, **kind), "test").tolist())
        for seed in (1, 2, 3)
        for kind in ({}, {"kind": "dirichlet", "alpha": 0.5})
    }
    assert len(chosen_on) == 1  # for every seed and partition the same
    reserved = np.array(chosen_on.pop())
    assert len(reserved) == 45
    assert np.bincount(images.labels[reserved]).tolist() == [15, 15, 15]
    for seed in (1, 2):
        tested = [gather(deal(images, seed, fold=fold), "test") for fold in range(5)]
        rest = np.setdiff1d(np.arange(180), reserved)
        assert np.array_equal(np.sort(np.concatenate(tested)), rest)
        for fold in range(5):
            assert set(reserved) <= set(gather(deal(images, seed, fold=fold), "train"))


def test_while_settings_are_chosen_all_other_images_are_trained_on():
    images = make_images()
    chosen = deal(images, validate_only=True)
    rest = np.setdiff1d(np.arange(180), gather(chosen, "test"))
    assert np.array_equal(gather(chosen, "train"), rest)


def test_patients_and_copies_are_reserved_together():
    patients = np.array([f"p{i // 4}" for i in range(180)])
    groups = np.arange(180)
    groups[100] = groups[3]  # a copy, of another patient
    images = make_images(patients=patients, groups=groups)
    for seed in (1, 2):
        reserved = gather(deal(images, seed, validate_only=True), "test")
        train = gather(deal(images, seed, validate_only=True), "train")
        assert not set(patients[reserved]) & set(patients[train])
        assert (3 in reserved) == (100 in reserved)


def test_the_datas_own_test_images_are_not_seen_while_settings_are_chosen():
    splits = np.array(["test" if i < 30 else "train" for i in range(180)])
    images = make_images(splits=splits)
    chosen = deal(images, folds=None, validate_only=True)
    assert len(chosen.server_test) == 0
    assert gather(chosen, "train").min() >= 30 and gather(chosen, "test").min() >= 30
    later = deal(images, folds=None)
    assert later.server_test.tolist() == list(range(30))
    assert set(gather(chosen, "test")) <= set(gather(later, "train"))


def test_without_the_share_nothing_changes_and_nonsense_is_refused():
    images = make_images()
    plain = Options(sites=3)
    before = make_partition(images, plain, Data(), rng.derive_server_key(1))
    assert len(gather(before, "test")) == 36
    with pytest.raises(ConfigError, match="no share to hold out"):
        deal(images, validation=None, validate_only=True)
    one = make_images(1)
    with pytest.raises(ConfigError, match="leaves nothing on one side"):
        deal(one, sites=1, folds=None, minimum=1)
