import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates

from vitrail import rng
from vitrail.config.schema import Augment
from vitrail.data.augment import VIEWS, _mirror, apply_view, augment
from vitrail.errors import ConfigError

EVERYTHING = Augment(crop=3, flip=True, rotate=20, shear=10, cutout=5)
ALONE = [
    Augment(crop=3),
    Augment(flip=True),
    Augment(rotate=20),
    Augment(shear=10),
    Augment(cutout=5),
]


def generator(seed=0):
    return rng.derive_server_key(seed).torch()


def images(count=16, channels=3, height=12, width=14, dtype=torch.uint8):
    pixels = torch.randint(0, 256, (count, channels, height, width), generator=generator(9))
    return pixels.to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64])
@pytest.mark.parametrize("options", [EVERYTHING, *ALONE])
def test_the_same_generator_gives_the_same_views_of_the_same_kind(options, dtype):
    batch = images(dtype=dtype)
    kept = batch.clone()
    one = augment(batch, options, generator(1))
    assert one.dtype == dtype
    assert one.shape == batch.shape
    assert torch.equal(one, augment(batch, options, generator(1)))
    assert not torch.equal(one, augment(batch, options, generator(2)))
    assert torch.equal(batch, kept)


def test_nothing_asked_for_is_the_batch_itself_and_draws_nothing():
    batch, source = images(), generator()
    before = source.get_state()
    assert augment(batch, Augment(), source) is batch
    assert torch.equal(source.get_state(), before)


@pytest.mark.parametrize("count", [0, 1])
def test_empty_and_single_batches(count):
    assert augment(images(count), EVERYTHING, generator()).shape == (count, 3, 12, 14)


def test_one_pixel_images_survive_everything():
    batch = images(4, 1, 1, 1)
    assert augment(batch, EVERYTHING, generator()).shape == batch.shape


def test_crops_are_windows_of_the_reflected_image():
    batch = images(30)
    result = augment(batch, Augment(crop=3), generator()).numpy()
    shifts = set()
    for before, after in zip(batch.numpy(), result):
        padded = np.pad(before, ((0, 0), (3, 3), (3, 3)), mode="reflect")
        found = [
            (y, x)
            for y in range(7)
            for x in range(7)
            if np.array_equal(padded[:, y : y + 12, x : x + 14], after)
        ]
        assert len(found) == 1
        shifts.add(found[0])
    assert len(shifts) > 10


def test_crops_wider_than_the_image_are_reflected_again_and_again():
    index = torch.arange(-20, 25)
    expected = np.pad(np.arange(5), (20, 20), mode="reflect")
    assert _mirror(index, 5).tolist() == expected.tolist()
    assert augment(images(), Augment(crop=100), generator()).shape == (16, 3, 12, 14)


def test_about_half_of_the_images_are_flipped():
    batch = images(200)
    result = augment(batch, Augment(flip=True), generator())
    flipped = (result == batch.flip(-1)).flatten(1).all(1)
    same = (result == batch).flatten(1).all(1)
    assert bool((flipped ^ same).all())
    assert 70 < int(flipped.sum()) < 130


def test_rotation_and_shear_resample_where_the_formula_says():
    batch = images(4, 1, 9, 13, torch.float64)
    result = augment(batch, Augment(rotate=40, shear=20), generator(5))
    source = generator(5)
    angles = (2 * torch.rand(4, generator=source) - 1) * math.radians(40)
    slants = torch.tan((2 * torch.rand(4, generator=source) - 1) * math.radians(20))
    for before, after, angle, slant in zip(batch, result, angles.tolist(), slants.tolist()):
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        matrix = turn @ np.array([[1, slant], [0, 1]])
        y, x = np.mgrid[:9, :13].astype(float)
        at_x, at_y = (
            np.tensordot(matrix, np.stack([x - 6, y - 4]), 1) + np.array([6, 4])[:, None, None]
        )
        inside = (at_x >= 0) & (at_x <= 12) & (at_y >= 0) & (at_y <= 8)
        expected = map_coordinates(before[0].numpy(), [at_y, at_x], order=1, mode="nearest")
        assert inside.sum() > 60
        np.testing.assert_allclose(after[0].numpy()[inside], expected[inside], atol=2e-3)


def test_cutout_is_one_square_of_zeros_per_image():
    batch = images(50) // 2 + 1
    holes = augment(batch, Augment(cutout=5), generator()) == 0
    assert bool((holes.any(1) == holes.all(1)).all())
    for hole in holes[:, 0].numpy():
        ys, xs = np.nonzero(hole)
        assert 1 <= len(ys) <= 25
        assert len(ys) == (np.ptp(ys) + 1) * (np.ptp(xs) + 1)
        assert np.ptp(ys) < 5
        assert np.ptp(xs) < 5


def test_global_randomness_is_left_alone():
    state = torch.random.get_rng_state()
    augment(images(), EVERYTHING, generator())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_views_are_numpys():
    batch = images(2)
    plain = batch.numpy()
    assert apply_view(batch, "identity") is batch
    assert np.array_equal(apply_view(batch, "flip").numpy(), plain[..., ::-1])
    for turns in (1, 2, 3):
        expected = np.rot90(plain, turns, (2, 3))
        assert np.array_equal(apply_view(batch, f"rotate{90 * turns}").numpy(), expected)
    assert all(apply_view(batch, name).dtype == torch.uint8 for name in VIEWS)


def test_unknown_views_and_wrong_shapes():
    with pytest.raises(ConfigError, match="Did you mean 'rotate90'"):
        apply_view(images(1), "rotate9")
    with pytest.raises(ValueError, match="shape"):
        augment(images(1)[0], EVERYTHING, generator())
