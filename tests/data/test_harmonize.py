"""Harmonized images look as the class does elsewhere; nothing else is touched."""

import numpy as np
import pytest
import torch

from vitrail.config.debias_section import Debias, Suspicion
from vitrail.config.schema import Bias
from vitrail.data.bias.marks import stamp
from vitrail.data.harmonize import harmonize, harmonize_sites
from vitrail.data.image_set import ImageSet
from vitrail.data.look import compute_look, count_look, join_colors, split_colors
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError
from vitrail.rng import derive_server_key

KEY = derive_server_key(5)


def to_floats(images):
    return torch.from_numpy(np.array(images)).permute(0, 3, 1, 2).double() / 255


def draw_images(count, channels, key):
    """Smooth blobs: most power at low frequencies, as in photographs."""
    draw = key.numpy()
    noise = draw.normal(size=(count, channels, 48, 48))
    radius = np.hypot(np.fft.fftfreq(48)[:, None], np.fft.rfftfreq(48)[None]) + 0.02
    values = np.fft.irfft2(np.fft.rfft2(noise) / radius, s=(48, 48))
    values = 128 + 40 * values / values.std()
    return np.moveaxis(values.clip(0, 255), 1, 3).astype(np.uint8)


def test_luma_and_opponent_colors_go_back_to_the_same_colors():
    images = to_floats(draw_images(3, 3, KEY.at("colors")))
    assert torch.allclose(join_colors(split_colors(images)), images, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["gamma", "contrast", "blur", "noise", "vignette", "sharpen"])
def test_a_difference_of_acquisition_is_mostly_gone(kind, channels):
    own, other = (draw_images(60, channels, KEY.at(kind, channels, n)) for n in (1, 2))
    changed, _ = stamp(own, Bias(kind=kind, size=0.06), KEY.at("stamp"), np.arange(len(own)))
    target = compute_look(to_floats(other))

    def far(images):
        return float((compute_look(to_floats(images)) - target).abs().mean())

    assert far(harmonize(changed, target.tolist())) < 0.35 * far(changed)


def test_images_that_look_alike_already_hardly_move():
    images = draw_images(80, 1, KEY.at("same"))
    moved = harmonize(images, compute_look(to_floats(images)).tolist())
    assert np.abs(moved.astype(float) - images).mean() < 1.5


def make_federation():
    images = draw_images(40, 1, KEY.at("all"))
    labels = np.tile([0, 1], 20).astype(np.int64)
    held = ImageSet(images, labels, ("a", "b"), np.arange(40).astype(str))
    sites = (
        SiteRows("one", np.arange(0, 16), np.arange(16, 20)),
        SiteRows("two", np.arange(20, 36), np.arange(36, 40)),
    )
    return held, sites


def test_only_training_images_of_the_suspected_class_at_the_suspected_site_change():
    held, sites = make_federation()
    look = tuple((compute_look(to_floats(held.images)) + 0.1).tolist())
    debias = Debias(
        remedies=("harmonize",), findings=(Suspicion(site="one", label="b", look=look),)
    )
    moved = harmonize_sites(held, sites, debias).images
    changed = np.flatnonzero((moved != held.images).any((1, 2, 3)))
    assert changed.tolist() == [n for n in range(16) if held.labels[n] == 1]


def test_another_remedy_touches_no_image():
    held, sites = make_federation()
    debias = Debias(remedies=("weigh",), findings=(Suspicion(site="one", label="b"),))
    assert harmonize_sites(held, sites, debias) is held


@pytest.mark.parametrize("look", [(0.5,), (float("nan"),) * count_look(1)])
def test_what_is_no_look_is_refused(look):
    with pytest.raises(ConfigError, match="look"):
        harmonize(draw_images(4, 1, KEY.at("bad")), look)


def test_harmonize_needs_to_know_how_the_class_looks_elsewhere():
    with pytest.raises(ValueError, match="looks elsewhere"):
        Debias(remedies=("harmonize",), findings=(Suspicion(site="one", label="b"),))
