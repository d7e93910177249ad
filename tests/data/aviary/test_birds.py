import dataclasses

import numpy as np
import pytest

from vitrail import rng
from vitrail.config.schema import Aviary, Data
from vitrail.data.aviary import birds as aviary
from vitrail.data.aviary.bird_classes import MOST, WORDS, draw_variants, name_classes
from vitrail.data.load_images import SOURCES
from vitrail.errors import ConfigError

KEY = aviary.derive_aviary_key(7)


@pytest.fixture(scope="module")
def birds():
    return aviary.draw_birds(600, 6, KEY)


def test_equal_keys_draw_equal_pixels_and_others_do_not():
    one, two = aviary.draw_birds(20, 4, KEY), aviary.draw_birds(20, 4, KEY)
    other = aviary.draw_birds(20, 4, aviary.derive_aviary_key(8))
    assert np.array_equal(one.images, two.images)
    assert not np.array_equal(one.images, other.images)


def test_an_image_does_not_depend_on_how_many_are_drawn(birds):
    few = aviary.draw_birds(37, 6, KEY)
    many = birds.take(np.arange(37))
    assert np.array_equal(few.images, many.images)
    assert np.array_equal(few.labels, many.labels)
    assert np.array_equal(few.extra["part_mask"], many.extra["part_mask"])
    np.testing.assert_array_equal(few.extra["part_boxes"], many.extra["part_boxes"])


def test_an_image_does_not_depend_on_the_size_of_the_batch(birds, monkeypatch):
    monkeypatch.setattr(aviary, "_TOGETHER", 7 * 64 * 64)
    again = aviary.draw_birds(100, 6, KEY)
    assert np.array_equal(again.images, birds.images[:100])


@pytest.mark.parametrize(("images", "classes"), [(0, 2), (1, 2), (7, 5), (50, 50), (20, 300)])
def test_classes_are_balanced_to_within_one(images, classes):
    counts = np.bincount(aviary.draw_birds(images, classes, KEY, 16).labels, minlength=classes)
    assert counts.sum() == images
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("size", [8, 32, 100])
def test_every_size_has_pixels_masks_and_boxes_of_that_size(size):
    birds = aviary.draw_birds(5, 3, KEY, size)
    assert birds.images.shape == (5, size, size, 3)
    assert birds.images.dtype == np.uint8
    assert birds.extra["part_mask"].shape == (5, size, size)
    boxes = birds.extra["part_boxes"]
    assert np.nanmin(boxes) >= 0
    assert np.nanmax(boxes) <= size


def test_boxes_are_the_hulls_of_the_masks(birds):
    for mask, boxes in list(zip(birds.extra["part_mask"], birds.extra["part_boxes"]))[:60]:
        for part in range(len(aviary.PARTS)):
            ys, xs = np.nonzero(mask == part + 1)
            if len(xs):
                assert boxes[part].tolist() == [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            else:
                assert np.isnan(boxes[part]).all()


def test_parts_are_visible_exactly_where_the_class_has_them(birds):
    table = draw_variants(6, KEY)[birds.labels]
    seen = ~np.isnan(birds.extra["part_boxes"][:, :, 0])
    for index, part in enumerate(aviary.PARTS):
        optional = part in ("crest", "wing bar")
        expected = table[:, index] > 0 if optional else np.ones(len(birds), dtype=bool)
        assert np.array_equal(seen[:, index], expected), part


@pytest.mark.parametrize("part", range(5))
def test_changing_a_part_changes_the_picture_at_that_part_and_nowhere_else(part):
    draw = KEY.at("test").numpy()
    r = draw.random((12, 55), dtype=np.float32)
    noise = draw.standard_normal((12, 64, 64), dtype=np.float32)
    before = np.tile(np.array([[0, 1, 1, 1, 1]]), (12, 1))
    after = before.copy()
    after[:, part] = 2
    images, masks = zip(aviary._render(before, r, noise), aviary._render(after, r, noise))
    changed = (images[0] != images[1]).any(axis=3)
    near = (masks[0] == part + 1) | (masks[1] == part + 1)
    for _ in range(4):  # an edge is a pixel wider than the mask, a sharp tip some pixels longer
        padded = np.pad(near, ((0, 0), (1, 1), (1, 1)))
        near = np.max(
            [padded[:, i : i + 64, j : j + 64] for i in range(3) for j in range(3)], axis=0
        )
    assert changed.any(axis=(1, 2)).all()
    assert not (changed & ~near).any()


def test_neighboring_classes_differ_in_one_part_and_all_parts_take_their_turn():
    differs = aviary.find_discriminating_parts(60, 7)
    steps = differs[np.arange(59), np.arange(1, 60)]
    assert (steps.sum(axis=1) == 1).all()
    assert (
        aviary.find_discriminating_parts(6, 7)[np.arange(5), np.arange(1, 6)].sum(axis=0) == 1
    ).all()


def test_discriminating_parts_are_the_literal_comparison_of_names():
    differs = aviary.find_discriminating_parts(40, 3)
    table = draw_variants(40, aviary.derive_aviary_key(3))
    assert differs.shape == (40, 40, 5)
    for a in range(40):
        for b in range(40):
            assert differs[a, b].tolist() == [x != y for x, y in zip(table[a], table[b])]
            assert differs[a, b].any() == (a != b)


def test_all_birds_have_different_readable_names():
    table = draw_variants(MOST, KEY)
    assert len(np.unique(table, axis=0)) == MOST
    words = name_classes(table)
    assert len(set(words)) == MOST
    assert all(word and word == word.strip() and "  " not in word for word in words)
    assert np.prod([len(words) for words in WORDS]) == MOST


def test_a_class_is_the_same_bird_however_many_classes_there_are():
    assert np.array_equal(draw_variants(500, KEY)[:20], draw_variants(20, KEY))


@pytest.mark.parametrize("classes", [-1, 0, 1, MOST + 1])
def test_impossible_numbers_of_classes_are_refused(classes):
    with pytest.raises(ConfigError, match=f"Use 2 to {MOST}"):
        aviary.draw_birds(10, classes, KEY)


def _ridge_accuracy(features, labels, classes, train):
    """Least squares on one-hot labels, in the dual, as a linear classifier."""
    x = features.reshape(len(features), -1).astype(np.float64)
    x = (x - x[:train].mean(axis=0)) / 128
    y = np.eye(classes)[labels] - 1 / classes
    gram = x[:train] @ x[:train].T
    weights = np.linalg.solve(gram + 0.1 * np.trace(gram) / train * np.eye(train), y[:train])
    return float(((x[train:] @ x[:train].T @ weights).argmax(axis=1) == labels[train:]).mean())


def test_neither_raw_pixels_nor_mean_color_nor_background_give_the_class_away(birds):
    frame = birds.images.copy()
    frame[:, 4:-4, 4:-4] = 0
    colors = birds.images.mean(axis=(1, 2))
    for features in (birds.images, frame, colors):
        assert _ridge_accuracy(features, birds.labels, 6, 400) < 0.35  # chance is 0.17


def test_masks_of_parts_do_give_the_class_away(birds):
    """The label is in the parts: a few numbers about each part beat every pixel."""
    mask, table = birds.extra["part_mask"], draw_variants(6, KEY)
    absent = np.stack([(mask == i + 1).sum(axis=(1, 2)) == 0 for i in range(5)], axis=1)
    assert np.array_equal(absent[:, 1], table[birds.labels, 1] == 0)
    assert np.array_equal(absent[:, 2], table[birds.labels, 2] == 0)


def test_the_source_follows_the_configuration():
    data = Data(image_size=32, aviary=Aviary(images=12, classes=3, seed=5))
    birds = SOURCES["embedded"](data, None, rng.derive_server_key(1))
    assert birds.public
    assert birds.splits is None
    assert birds.images.shape == (12, 32, 32, 3)
    assert np.array_equal(
        birds.images, aviary.draw_birds(12, 3, aviary.derive_aviary_key(5), 32).images
    )
    again = SOURCES["embedded"](data, None, rng.derive_server_key(2))
    assert np.array_equal(birds.images, again.images)


def test_gray_birds_are_the_luma_of_colored_ones():
    data = Data(aviary=Aviary(images=4, classes=2))
    color = aviary.embedded(data, None, KEY)
    gray = aviary.embedded(data.model_copy(update={"channels": 1}), None, KEY)
    assert gray.images.shape == (4, 64, 64, 1)
    luma = np.rint(color.images.astype(float) @ [0.299, 0.587, 0.114])
    assert np.abs(gray.images[..., 0] - luma).max() <= 1
    assert dataclasses.replace(gray, images=color.images).classes == color.classes


@pytest.mark.parametrize("option", [{"path": "x"}, {"classes": ("a", "b")}, {"positive": "a"}])
def test_options_that_birds_cannot_follow_are_errors(option):
    with pytest.raises(ConfigError, match=f"data.{next(iter(option))}"):
        aviary.embedded(Data(**option), None, KEY)
