import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.config.schema import Partition as Options
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import make_partition
from vitrail.data.partition.partition_kinds import KINDS, apportion, dirichlet
from vitrail.errors import ConfigError, DataError

KEY = rng.derive_server_key(1)
SYNTHETIC = ("iid", "dirichlet", "shards", "quantity")


def make(labels, **columns):
    labels = np.asarray(labels, dtype=np.int64)
    count = len(labels)
    return ImageSet(
        images=np.zeros((count, 1, 1, 1), dtype=np.uint8),
        labels=labels,
        classes=tuple(f"class {i}" for i in range(labels.max(initial=-1) + 1)),
        names=np.array([f"image-{i}" for i in range(count)], dtype=np.str_),
        **{k: v if k == "extra" else np.array(v) for k, v in columns.items()},
    )


def random_set(count, classes, seed=0, **columns):
    return make(np.random.default_rng(seed).integers(classes, size=count), **columns)


def rows_of(result):
    parts = [part for site in result.sites for part in (site.train, site.test)]
    return np.concatenate([*parts, result.server_test])


@st.composite
def federations(draw):
    kind = draw(st.sampled_from(SYNTHETIC))
    sites = draw(st.integers(1, 12))
    minimum = draw(st.integers(1, 4))
    shards = draw(st.integers(1, 3))
    count = draw(st.integers(sites * max(minimum, shards), sites * max(minimum, shards) + 80))
    seed = draw(st.integers(0, 1000))
    alpha = draw(st.sampled_from([1e-300, 0.01, 0.5, 10.0, 1e300]))
    fraction = draw(st.sampled_from([None, 0.0, 0.2, 0.5, 0.99]))
    options = Options(
        kind=kind, sites=sites, minimum=minimum, shards=shards, alpha=alpha, test_fraction=fraction
    )
    images = random_set(count, draw(st.integers(1, 7)), seed)
    return images, options, rng.derive_server_key(seed)


@settings(max_examples=150, deadline=None)
@given(federations())
def test_every_image_is_used_exactly_once_and_minimum_holds(case):
    images, options, key = case
    result = make_partition(images, options, Data(), key)
    assert np.array_equal(np.sort(rows_of(result)), np.arange(len(images)))
    assert len(result.sites) == options.sites
    for site in result.sites:
        assert len(site.train) + len(site.test) >= options.minimum
        assert len(site.train) >= 1
        assert np.all(np.diff(site.train) > 0)
        if options.test_fraction == 0:
            assert not len(site.test)
    again = make_partition(images, options, Data(), key)
    for one, two in zip(result.sites, again.sites):
        assert one.name == two.name
        assert np.array_equal(one.train, two.train)
        assert np.array_equal(one.test, two.test)


@settings(max_examples=100, deadline=None)
@given(federations(), st.integers(1, 6))
def test_patients_are_never_split(case, most):
    images, options, key = case
    options = options.model_copy(update={"minimum": 1, "shards": 1})
    draw = np.random.default_rng(len(images))
    patients = np.sort(draw.integers(max(options.sites, len(images) // most), size=len(images)))
    patients[: options.sites] = np.arange(options.sites)  # enough of them for all sites
    images = make(images.labels, patients=[f"p{i}" for i in patients])
    result = make_partition(images, options, Data(), key)
    assert np.array_equal(np.sort(rows_of(result)), np.arange(len(images)))
    owners = {}
    for site in result.sites:
        for side, rows in (("train", site.train), ("test", site.test)):
            for patient in images.patients[rows]:
                assert owners.setdefault(patient, (site.name, side)) == (site.name, side)


def test_images_of_unknown_patients_are_on_their_own():
    images = make([0, 1] * 20, patients=[""] * 40)
    result = make_partition(images, Options(sites=4), Data(), KEY)
    assert [len(s.train) + len(s.test) for s in result.sites] == [10] * 4


def test_a_patient_goes_where_its_most_frequent_label_goes():
    """With one shard a site and two labels, the majority decides the site."""
    labels = [0, 0, 1] * 10 + [1, 1, 0] * 10
    images = make(labels, patients=np.repeat([f"p{i}" for i in range(20)], 3))
    result = make_partition(images, Options(kind="shards", sites=2, shards=1), Data(), KEY)
    means = sorted(images.labels[np.r_[s.train, s.test]].mean() for s in result.sites)
    assert means == pytest.approx([1 / 3, 2 / 3])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(0, 1000))
def test_apportioned_counts_are_exact_and_within_one_of_the_ideal(shares, total):
    shares = np.array(shares) + 1e-6
    counts = apportion(shares, total)
    assert counts.sum() == total
    assert (counts >= 0).all()
    assert (np.abs(counts - shares / shares.sum() * total) < 1 + 1e-6).all()


def test_apportioned_counts_by_hand():
    assert apportion(np.array([0.5, 0.3, 0.2]), 4).tolist() == [2, 1, 1]
    assert apportion(np.array([1.0]), 0).tolist() == [0]


@pytest.mark.parametrize("alpha", [1e-308, 1e-9, 0.01, 1.0, 1e9, 1e308])
def test_shares_are_shares_for_any_alpha(alpha):
    shares = dirichlet(alpha, 50, np.random.default_rng(0))
    assert np.isfinite(shares).all()
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1)


def test_dirichlet_gives_each_class_its_exact_largest_remainder_counts():
    """The counts per class are those of the same draws written out literally."""
    labels = np.repeat(np.arange(5), [40, 30, 20, 10, 7])
    owner = KINDS["dirichlet"](labels, Options(sites=6, alpha=0.3), np.random.default_rng(3))
    draw = np.random.default_rng(3)
    for label in range(5):
        count = int((labels == label).sum())
        draw.permutation(count)
        shares = draw.dirichlet(np.full(6, 0.3))
        expected = np.floor(shares * count).astype(int)
        for site in np.argsort(-(shares * count - expected), kind="stable")[
            : count - expected.sum()
        ]:
            expected[site] += 1
        assert np.bincount(owner[labels == label], minlength=6).tolist() == expected.tolist()


def test_small_alpha_is_skewed_and_large_alpha_is_not():
    images = random_set(2000, 10)

    def spread(alpha):
        options = Options(kind="dirichlet", sites=10, alpha=alpha, test_fraction=0.0)
        sites = make_partition(images, options, Data(), KEY).sites
        return np.mean([len(np.unique(images.labels[s.train])) for s in sites])

    assert spread(0.01) < 3
    assert spread(1000.0) == 10


def test_iid_sizes_differ_by_at_most_one_and_shards_hold_few_classes():
    images = random_set(1003, 10)
    sizes = [
        len(s.train)
        for s in make_partition(images, Options(sites=7, test_fraction=0), Data(), KEY).sites
    ]
    assert max(sizes) - min(sizes) <= 1
    options = Options(kind="shards", sites=10, shards=2, test_fraction=0)
    for site in make_partition(images, options, Data(), KEY).sites:
        assert len(np.unique(images.labels[site.train])) <= 4  # a shard may cross one border


def test_quantity_varies_sizes_and_not_labels():
    images = random_set(5000, 2)
    options = Options(kind="quantity", sites=5, alpha=0.5, minimum=200, test_fraction=0)
    sites = make_partition(images, options, Data(), KEY).sites
    sizes = [len(s.train) for s in sites]
    assert max(sizes) > 2 * min(sizes)
    for site in sites:
        assert abs(images.labels[site.train].mean() - 0.5) < 0.15


@pytest.mark.parametrize("kind", SYNTHETIC)
def test_500_sites_of_100_classes_take_less_than_two_seconds(kind):
    images = random_set(20_000, 100)
    started = time.process_time()
    result = make_partition(
        images, Options(kind=kind, sites=500, alpha=0.01, minimum=20), Data(), KEY
    )
    assert time.process_time() - started < 2
    assert min(len(s.train) + len(s.test) for s in result.sites) >= 20


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "quantity"])
def test_one_image_per_site(kind):
    images = random_set(12, 3)
    result = make_partition(images, Options(kind=kind, sites=12, minimum=1), Data(), KEY)
    assert [len(s.train) for s in result.sites] == [1] * 12
    assert [len(s.test) for s in result.sites] == [0] * 12


def test_one_site_and_one_image():
    result = make_partition(make([0]), Options(sites=1, minimum=1), Data(), KEY)
    assert result.sites[0].train.tolist() == [0]
    assert result.sites[0].name == "site-00"


def test_site_names_have_enough_digits():
    result = make_partition(random_set(300, 2), Options(sites=101), Data(), KEY)
    assert result.sites[0].name == "site-000"
    assert result.sites[100].name == "site-100"


def test_without_a_split_a_fifth_is_held_out_of_every_class():
    images = make(np.repeat([0, 1, 2], [50, 30, 20]))
    (site,) = make_partition(images, Options(sites=1), Data(), KEY).sites
    assert np.bincount(images.labels[site.test]).tolist() == [10, 6, 4]


def test_a_class_is_not_lost_to_the_test_part():
    labels = np.r_[np.zeros(20), np.arange(1, 6)]
    for seed in range(20):
        images = make(labels)
        (site,) = make_partition(
            images, Options(sites=1, test_fraction=0.5), Data(), rng.derive_server_key(seed)
        ).sites
        assert set(images.labels[site.train]) == set(range(6))


def test_own_test_split_goes_to_the_server_or_stays_with_the_column():
    splits = ["train", "test"] * 20
    images = make([0, 0, 1, 1] * 10, splits=splits, sites=["a"] * 20 + ["b"] * 20)
    result = make_partition(images, Options(sites=2), Data(), KEY)
    assert result.server_test.tolist() == list(range(1, 40, 2))
    assert [len(s.test) for s in result.sites] == [0, 0]
    both = make_partition(images, Options(sites=2, test_fraction=0.5), Data(), KEY)
    assert len(both.server_test) == 20
    assert [len(s.test) for s in both.sites] == [5, 5]
    column = make_partition(images, Options(kind="column"), Data(site="s"), KEY)
    assert not len(column.server_test)
    assert column.sites[0].test.tolist() == list(range(1, 20, 2))
    more = make_partition(images, Options(kind="column", test_fraction=0.5), Data(site="s"), KEY)
    assert [len(s.test) for s in more.sites] == [15, 15]
    assert set(column.sites[0].test) <= set(more.sites[0].test)


def test_a_split_without_test_images_is_no_split():
    images = make([0, 1] * 20, splits=["train"] * 40)
    result = make_partition(images, Options(sites=2), Data(), KEY)
    assert [len(s.test) for s in result.sites] == [4, 4]
    assert not len(result.server_test)


def test_columns_are_sorted_naturally_and_may_be_numbers():
    names = ["site 10", "site 2", "Site 1", "b"]
    images = make([0, 1] * 8, sites=np.repeat(names, 4))
    found = make_partition(images, Options(kind="column"), Data(), KEY)
    assert [s.name for s in found.sites] == ["b", "Site 1", "site 2", "site 10"]
    images = make([0, 1] * 4, extra={"hospital": np.repeat([10.0, 2.0], 4)})
    found = make_partition(images, Options(kind="column", column="hospital"), Data(), KEY)
    assert [s.name for s in found.sites] == ["2", "10"]
    assert sorted(np.r_[found.sites[0].train, found.sites[0].test]) == [4, 5, 6, 7]


def test_missing_sites_are_counted():
    images = make([0, 1] * 4, sites=["a"] * 5 + ["", " ", "a"])
    with pytest.raises(DataError, match="2 of 8 images name no site, 'image-5'"):
        make_partition(images, Options(kind="column"), Data(), KEY)
    images = make([0, 1] * 4, extra={"h": np.array([1.0, np.nan] * 4)})
    with pytest.raises(DataError, match="4 of 8 images"):
        make_partition(images, Options(kind="column", column="h"), Data(), KEY)


def test_an_unknown_column_names_the_nearest():
    images = make([0, 1] * 4, extra={"hospital": np.arange(8), "boxes": np.zeros((8, 4))})
    with pytest.raises(ConfigError, match="Did you mean 'hospital'"):
        make_partition(images, Options(kind="column", column="hospitel"), Data(), KEY)
    with pytest.raises(ConfigError, match="no column 'boxes'"):
        make_partition(images, Options(kind="column", column="boxes"), Data(), KEY)


def test_a_patient_of_two_hospitals_is_on_one_side_everywhere():
    patients = [f"p{i // 2}" for i in range(200)]
    images = make([0, 0, 1, 1] * 50, patients=patients, sites=["a", "b"] * 100)
    result = make_partition(images, Options(kind="column", test_fraction=0.3), Data(), KEY)
    train = np.concatenate([s.train for s in result.sites])
    test = np.concatenate([s.test for s in result.sites])
    assert len(test) > 20
    assert not set(images.patients[train]) & set(images.patients[test])


def test_a_split_that_tears_patients_apart_is_an_error():
    images = make([0, 1] * 4, patients=["p"] * 8, splits=["train", "test"] * 4)
    with pytest.raises(DataError, match="1 patients have images in both"):
        make_partition(images, Options(sites=1), Data(), KEY)


def test_balance_cuts_the_training_part_only():
    images = make(np.repeat([0, 1], [90, 30]))
    data = Data(positive="class 1", balance=True)
    result = make_partition(images, Options(sites=2), data, KEY)
    plain = make_partition(images, Options(sites=2), Data(), KEY)
    for cut, whole in zip(result.sites, plain.sites):
        counts = np.bincount(images.labels[cut.train])
        assert counts[0] == counts[1] == (images.labels[whole.train] == 1).sum()
        assert np.array_equal(cut.test, whole.test)
        assert set(cut.train) <= set(whole.train)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sites": 11}, "11 sites cannot share 10 images"),
        ({"sites": 4, "minimum": 3}, "at least 3 images each need 12"),
        ({"kind": "shards", "sites": 4, "shards": 3}, "need 12 images"),
    ],
)
def test_impossible_wishes_are_one_sentence(options, words):
    with pytest.raises(ConfigError, match=words):
        make_partition(make([0, 1] * 5), Options(**options), Data(), KEY)


def test_patients_that_cannot_fill_all_sites_are_an_error():
    images = make([0] * 10, patients=["big"] * 8 + ["x", "y"])
    with pytest.raises(ConfigError, match="patients have so many images each"):
        make_partition(images, Options(sites=3, minimum=2), Data(), KEY)


def test_no_images_and_sites_without_training_images_and_lost_classes():
    with pytest.raises(DataError, match="no images"):
        make_partition(make([]), Options(sites=1), Data(), KEY)
    images = make(
        [0, 1, 0, 1], sites=["a", "a", "b", "b"], splits=["train", "train", "test", "test"]
    )
    with pytest.raises(DataError, match="site 'b' has 2 test images and none to train on"):
        make_partition(images, Options(kind="column"), Data(), KEY)
    images = make([0, 1, 0, 0], sites=["a"] * 4, splits=["train", "test", "train", "test"])
    with pytest.raises(DataError, match="no site has a training image of class 'class 1'"):
        make_partition(images, Options(kind="column"), Data(), KEY)


def test_a_natural_site_below_the_minimum_is_an_error():
    images = make([0, 1, 0, 1], sites=["a", "a", "a", "b"])
    with pytest.raises(DataError, match="1 sites have fewer than 2 images, 'b'"):
        make_partition(images, Options(kind="column"), Data(), KEY)


def test_folds_hold_out_every_patient_once_and_keep_classes_even():
    labels = np.repeat([0, 0, 0, 1], 30)
    patients = [f"p{i // 2}" for i in range(120)]
    images = make(labels, patients=patients)
    found = [
        make_partition(images, Options(sites=3, folds=5, fold=fold), Data(), KEY)
        for fold in range(5)
    ]
    tested = []
    for one in found:
        test = np.concatenate([site.test for site in one.sites])
        train = np.concatenate([site.train for site in one.sites])
        assert not {patients[i] for i in test} & {patients[i] for i in train}
        assert 0 < labels[test].sum() <= 12
        tested.append(test)
        for mine, same in zip(one.sites, found[0].sites):  # another fold is no other deal
            assert set(mine.train) | set(mine.test) == set(same.train) | set(same.test)
    assert np.array_equal(np.sort(np.concatenate(tested)), np.arange(120))


def test_a_patient_of_two_sites_is_in_one_fold_everywhere():
    sites = np.array(["a", "b"] * 20)
    images = make([0, 1] * 20, patients=[f"p{i // 4}" for i in range(40)], extra={"site": sites})
    for fold in range(3):
        options = Options(kind="column", column="site", folds=3, fold=fold)
        found = make_partition(images, options, Data(), KEY)
        patients = images.patients
        test = np.concatenate([patients[site.test] for site in found.sites])
        train = np.concatenate([patients[site.train] for site in found.sites])
        assert len(test) and not set(test.tolist()) & set(train.tolist())


def test_a_site_of_one_patient_cannot_be_held_out():
    images = make([0, 1, 0, 1], patients=["p", "p", "q", "q"])
    with pytest.raises(DataError, match="none to train on"):
        for fold in range(2):
            make_partition(images, Options(sites=2, folds=2, fold=fold), Data(), KEY)
