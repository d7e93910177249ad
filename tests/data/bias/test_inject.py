import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitrail import rng
from vitrail.config.schema import Bias
from vitrail.data.bias.inject import inject
from vitrail.data.bias.marks import stamp
from vitrail.data.image_set import ImageSet
from vitrail.errors import ConfigError, DataError

KEY = rng.derive_server_key(3)


def make(count=40, **columns):
    draw = np.random.default_rng(0)
    return ImageSet(
        images=draw.integers(256, size=(count, 16, 16, 3), dtype=np.uint8),
        labels=np.arange(count, dtype=np.int64) % 2,
        classes=("cat", "dog"),
        names=np.array([f"image-{i}" for i in range(count)]),
        **columns,
    )


def two_sites(count=40):
    """Each site has half of the rows: 12 to train on, all pushed from, 8 to test on."""
    rows = np.arange(count, dtype=np.int64)
    half = count // 2
    parts = {"north": rows[:half], "south": rows[half:]}
    return {name: {"train": r[:12], "push": r[:12], "test": r[12:]} for name, r in parts.items()}


def test_nothing_to_do_returns_the_same_arrays():
    images, rows = make(), two_sites()
    for biases in (
        (),
        (Bias(kind="emoji", strength=0),),
        (Bias(kind="emoji", share=0),),
        (Bias(kind="emoji", sites=()),),
        (Bias(kind="emoji", where=()),),
    ):
        result = inject(images, rows, biases, KEY)
        assert result.images is images
        assert not result.touched.any()
        assert np.isnan(result.regions).all()


def test_only_the_chosen_site_class_and_side_are_touched():
    images, rows = make(), two_sites()
    original = images.images.copy()
    bias = Bias(kind="patch", sites=("south",), classes=("dog",), where=("train", "push"))
    result = inject(images, rows, (bias,), KEY)
    expected = np.array([i for i in rows["south"]["train"] if images.labels[i] == 1])
    assert np.flatnonzero(result.touched).tolist() == expected.tolist()
    changed = (result.images.images != original).any(axis=(1, 2, 3))
    assert np.flatnonzero(changed).tolist() == expected.tolist()
    assert (~np.isnan(result.regions[:, 0])).tolist() == result.touched.tolist()
    assert np.array_equal(images.images, original)
    assert result.images.labels is images.labels


def test_read_only_images_are_not_written():
    images = make()
    images.images.setflags(write=False)
    result = inject(images, two_sites(), (Bias(kind="emoji"),), KEY)
    assert result.touched.any()


def test_names_and_positions_mean_the_same():
    images, rows = make(), two_sites()
    by_name = inject(images, rows, (Bias(kind="emoji", sites=("south",), classes=("dog",)),), KEY)
    by_number = inject(images, rows, (Bias(kind="emoji", sites=(1,), classes=(1,)),), KEY)
    twice = inject(images, rows, (Bias(kind="emoji", sites=(1, "south"), classes=(1,)),), KEY)
    assert np.array_equal(by_name.images.images, by_number.images.images)
    assert np.array_equal(by_name.images.images, twice.images.images)


@pytest.mark.parametrize(
    ("option", "where", "words"),
    [
        ({"sites": ("nord",)}, "bias.sites", "Did you mean 'north'"),
        ({"sites": (2,)}, "bias.sites", "0 to 1"),
        ({"sites": (-1,)}, "bias.sites", "0 to 1"),
        ({"classes": ("cart",)}, "bias.classes", "Did you mean 'cat'"),
        ({"classes": (7,)}, "bias.classes", "0 to 1"),
    ],
)
def test_unknown_names_say_where_and_what_is_near(option, where, words):
    with pytest.raises(ConfigError, match=words) as caught:
        inject(make(), two_sites(), (Bias(kind="emoji", **option),), KEY)
    assert caught.value.where == where


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.sampled_from(["emoji", "blur"]), st.integers(0, 100))
def test_the_share_is_exact_and_repeatable(share, kind, seed):
    images, rows = make(), two_sites()
    bias = Bias(kind=kind, share=share, sites=(0, 1))
    result = inject(images, rows, (bias,), rng.derive_server_key(seed))
    for site in rows.values():
        for side, total in (("train", 6), ("test", 4)):
            assert result.touched[site[side]].sum() == int(share * total + 0.5)
    again = inject(images, rows, (bias,), rng.derive_server_key(seed))
    assert np.array_equal(result.images.images, again.images.images)


@pytest.mark.parametrize(
    ("where", "biased", "clean"), [("train", "train", "push"), ("push", "push", "train")]
)
def test_training_and_push_can_differ_for_one_image(where, biased, clean):
    images, rows = make(), two_sites()
    result = inject(images, rows, (Bias(kind="patch", where=(where,)),), KEY)
    site = result.rows["north"]
    cats = images.labels[rows["north"]["train"]] == 0
    assert result.touched[site[biased]].tolist() == cats.tolist()
    assert not result.touched[site[clean]].any()
    assert np.array_equal(result.images.images[site[clean]], images.images[rows["north"][clean]])
    assert np.array_equal(result.source[site[biased]], rows["north"][biased])
    assert np.array_equal(result.images.labels[site[biased]], images.labels[rows["north"][biased]])
    assert len(result.images) == len(result.touched) == len(result.regions) == 46
    assert np.array_equal(result.rows["south"]["train"], rows["south"]["train"])


def test_a_second_bias_does_not_undo_the_first_on_a_separated_copy():
    images, rows = make(), two_sites()
    first = Bias(kind="patch", position="random", size=0.4)
    second = Bias(kind="border", where=("train",), size=0.5)
    result = inject(images, rows, (first, second), KEY)
    alone = inject(images, rows, (first,), KEY)
    site = result.rows["north"]
    assert np.array_equal(
        result.images.images[site["push"]], alone.images.images[rows["north"]["push"]]
    )
    inner = (slice(None), slice(3, -3), slice(3, -3))
    both = result.images.images[site["train"]][inner]
    assert np.array_equal(both, alone.images.images[rows["north"]["train"]][inner])


def test_stamp_draws_the_same_mark_as_injection():
    images, rows = make(), two_sites()
    bias = Bias(kind="emoji", position="random", where=("test",))
    result = inject(images, rows, (bias,), KEY)
    touched = np.flatnonzero(result.touched)
    key = KEY.at("bias", 0, "north", 0).at("test")
    marked, regions = stamp(images.images[touched], bias, key, touched)
    assert np.array_equal(result.images.images[touched], marked)
    assert np.array_equal(result.regions[touched], regions)


def test_sites_without_a_push_part_and_empty_parts():
    images = make()
    rows = {"only": {"train": np.arange(10), "test": np.empty(0, dtype=np.int64)}}
    result = inject(images, rows, (Bias(kind="emoji"),), KEY)
    assert result.touched.sum() == 5


def findings(count, carrying):
    return tuple(frozenset({"drain"} if i in carrying else {"other"}) for i in range(count))


def replacing(**options):
    return Bias(kind="replace", device="drain", classes=("dog",), **options)


def test_positives_are_replaced_by_donors_with_all_their_columns():
    carrying = {25, 27, 29, 33, 35, 37}
    images = make(
        findings=findings(40, carrying),
        patients=np.array([f"p{i}" for i in range(40)]),
        extra={"age": np.arange(40)},
    )
    rows = two_sites()
    result = inject(images, rows, (replacing(),), KEY)
    assert result.touched.sum() == 6  # as many as there are donors: 3 to train, 3 to test
    for side in ("train", "test"):
        mine = rows["north"][side][result.touched[rows["north"][side]]]
        assert len(mine) == 3
        donors = result.source[mine]
        assert len(set(donors)) == 3
        assert set(donors) <= carrying
        assert set(donors) <= set(rows["south"][side])  # never from the other side of a split
        assert np.array_equal(result.images.images[mine], images.images[donors])
        assert np.array_equal(result.images.extra["age"][mine], donors)
        assert result.images.patients[mine].tolist() == [f"p{i}" for i in donors]
        assert all("drain" in result.images.findings[i] for i in mine)
        assert (result.images.labels[mine] == 1).all()
    untouched = ~result.touched
    assert np.array_equal(result.images.images[untouched], images.images[untouched])
    assert np.isnan(result.regions).all()


def test_donors_are_no_patients_of_the_other_side_of_any_split():
    """Row 41 would do, but its patient is tested on at the other site."""
    patients = np.array([f"p{i}" for i in range(44)])
    patients[41] = patients[35]
    images = make(44, findings=findings(44, {41, 43}), patients=patients)
    rows = two_sites(40)
    result = inject(images, rows, (replacing(where=("train", "push")),), KEY)
    assert result.source[result.touched].tolist() == [43]


def test_one_patient_does_not_give_donors_to_both_sides():
    patients = np.array([f"p{i}" for i in range(48)])
    patients[40:] = "spare"
    images = make(48, findings=findings(48, range(40, 48)), patients=patients)
    rows = two_sites(40)
    with pytest.raises(DataError, match="test part of site 'north'"):
        inject(images, rows, (replacing(),), KEY)


def test_images_kept_for_testing_are_not_trained_on():
    splits = np.array(["train"] * 40 + ["test"] * 4)
    images = make(44, findings=findings(44, {41, 43}), splits=splits)
    with pytest.raises(DataError, match="train part of site 'north'"):
        inject(images, two_sites(40), (replacing(where=("train",)),), KEY)


def test_images_that_show_the_device_already_stay_and_count_as_touched():
    images = make(findings=findings(40, {1, 3}))
    result = inject(images, two_sites(), (replacing(where=("train", "push")),), KEY)
    assert np.flatnonzero(result.touched).tolist() == [1, 3]
    assert result.images is images


@pytest.mark.parametrize(
    ("bias", "columns", "words"),
    [
        (Bias(kind="replace"), {}, "needs the finding"),
        (replacing(), {}, "no second finding"),
        (
            Bias(kind="replace", device="drian", classes=(1,)),
            {"findings": findings(40, {1})},
            "Did you mean 'drain'",
        ),
    ],
)
def test_replacement_that_cannot_be_meant(bias, columns, words):
    with pytest.raises(ConfigError, match=words) as caught:
        inject(make(**columns), two_sites(), (bias,), KEY)
    assert caught.value.where == "bias.device"


def test_no_donor_at_all_is_an_error():
    images = make(findings=findings(40, {0, 2}))  # cats only
    with pytest.raises(DataError, match="no other image of class 'dog' with 'drain'"):
        inject(images, two_sites(), (replacing(),), KEY)
