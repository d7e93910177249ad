import numpy as np
import pytest

from vitrail import rng
from vitrail.config.schema import Bias
from vitrail.data.bias.marks import SPRITES, WASHES, stamp
from vitrail.errors import ConfigError

KEY = rng.derive_server_key(3)
KINDS = (*SPRITES, *WASHES)


def images(count=3, height=40, width=60, channels=3):
    return np.random.default_rng(0).integers(
        256, size=(count, height, width, channels), dtype=np.uint8
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_marks_change_pixels_at_their_place_only(kind, channels):
    plain = images(channels=channels)
    kept = plain.copy()
    marked, regions = stamp(plain, Bias(kind=kind, size=0.3), KEY)
    assert np.array_equal(plain, kept)
    assert marked.shape == plain.shape
    assert marked.dtype == np.uint8
    changed = (marked != plain).any(axis=3)
    assert changed.any(axis=(1, 2)).all()
    if kind in WASHES:
        assert np.isnan(regions).all()
        return
    for image, (x0, y0, x1, y1) in zip(changed, regions.astype(int)):
        assert 0 <= x0 < x1 <= 60
        assert 0 <= y0 < y1 <= 40
        image[y0:y1, x0:x1] = False
        assert not image.any()


@pytest.mark.parametrize("kind", KINDS)
def test_strength_zero_is_nothing_and_half_lies_between(kind):
    plain = images()
    same, regions = stamp(plain, Bias(kind=kind, strength=0), KEY)
    assert same is plain
    assert np.isnan(regions).all()
    full = stamp(plain, Bias(kind=kind), KEY)[0].astype(float)
    half = stamp(plain, Bias(kind=kind, strength=0.5), KEY)[0].astype(float)
    assert np.abs(half - (plain + full) / 2).max() <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_images_are_no_problem(kind):
    marked, regions = stamp(images(0), Bias(kind=kind, position="random"), KEY)
    assert marked.shape == (0, 40, 60, 3)
    assert regions.shape == (0, 4)


def test_a_patch_is_where_and_what_it_should_be():
    plain = images(1)
    marked, regions = stamp(
        plain, Bias(kind="patch", size=0.5, position=(1.0, 0.0), color=(1, 2, 3)), KEY
    )
    assert regions[0].tolist() == [40, 0, 60, 20]
    assert (marked[0, :20, 40:] == (1, 2, 3)).all()
    assert np.array_equal(marked[0, 20:], plain[0, 20:])


@pytest.mark.parametrize(
    ("word", "left", "upper"),
    [("upper-left", 1, 1), ("upper-right", 0, 1), ("lower-left", 1, 0), ("lower-right", 0, 0)],
)
def test_corners_are_corners(word, left, upper):
    _, regions = stamp(images(1), Bias(kind="patch", size=0.2, position=word), KEY)
    x0, y0, x1, y1 = regions[0]
    assert (x1 < 30) == bool(left)
    assert (y1 < 20) == bool(upper)
    assert x1 - x0 == y1 - y0 == 8


def test_random_places_belong_to_the_number_of_the_image():
    bias = Bias(kind="emoji", position="random")
    plain = images(20)
    marked, regions = stamp(plain, bias, KEY)
    assert len(np.unique(regions, axis=0)) > 10
    rows = np.array([13, 2])
    some, places = stamp(plain[rows], bias, KEY, rows)
    assert np.array_equal(some, marked[rows])
    assert np.array_equal(places, regions[rows])
    other = stamp(plain, bias, rng.derive_server_key(4))[1]
    assert not np.array_equal(other, regions)


@pytest.mark.parametrize("size", [0.01, 1.0])
@pytest.mark.parametrize("kind", KINDS)
def test_tiny_and_huge_marks_fit_into_tiny_images(kind, size):
    marked, _ = stamp(images(2, 3, 5), Bias(kind=kind, size=size, text="LONG TEXT"), KEY)
    assert marked.shape == (2, 3, 5, 3)


def test_hostile_colors_and_texts():
    for color in ((-5, 300, 10), (0, 0, 0)):
        for kind in KINDS:
            stamp(images(1), Bias(kind=kind, color=color), KEY)
    for text in ("", " ", "é漢🙂", "a\nb"):
        assert stamp(images(1), Bias(kind="text", text=text), KEY)[0].shape == (1, 40, 60, 3)


def test_washes_follow_their_formulas():
    plain = images(2).astype(float)
    bright = stamp(images(2), Bias(kind="brightness"), KEY)[0]
    assert np.array_equal(bright, np.minimum(plain * 2, 255))
    tinted = stamp(images(2), Bias(kind="color", color=(200, 0, 100)), KEY)[0]
    assert np.abs(tinted - (plain + np.array([200, 0, 100])) / 2).max() <= 0.5
    framed = stamp(images(2), Bias(kind="border", size=0.4, color=(9, 8, 7)), KEY)[0]
    assert np.array_equal(framed[:, 4:-4, 4:-4], images(2)[:, 4:-4, 4:-4])
    assert (framed[:, :4] == (9, 8, 7)).all()
    blurred = stamp(images(2), Bias(kind="blur"), KEY)[0]
    assert blurred.std() < 0.5 * plain.std()
    assert abs(blurred.mean() - plain.mean()) < 4


def test_replacement_cannot_be_drawn():
    with pytest.raises(ConfigError, match="cannot be drawn"):
        stamp(images(1), Bias(kind="replace"), KEY)
