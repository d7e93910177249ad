"""Real images, if they are there: every file loads with sensible options."""

from pathlib import Path

import numpy as np
import pytest

from vitrail import rng
from vitrail.data import load
from vitrail.data.inspect.guess import guess_data

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data"
KEY = rng.derive_server_key(1)


def real(name, **options):
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"real images are not here: {path}")
    data = guess_data(path).model_copy(update={"limit": 400, "cache": "memory", **options})
    images = load(data, FOLDER, KEY)
    assert len(images) == data.limit and images.images.std() > 10
    return images


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("cars40.parquet", (224, 224, 3), 40),
        ("tiny_imagenet20.parquet", (64, 64, 3), 20),
        ("smiles.parquet", (64, 64, 1), 2),
        ("femnist_digits.npz", (28, 28, 1), 10),
        ("omniglot.npz", (28, 28, 1), 242),
        ("cifar10.npz", (32, 32, 3), 10),
    ],
)
def test_shapes_and_classes(name, shape, classes):
    images = real(name)
    assert images.images.shape[1:] == shape and len(images.classes) == classes
    assert len(np.unique(images.labels)) == classes


def test_sites_and_splits():
    assert len(set(real("femnist_digits.npz").sites)) == 9
    assert set(real("cifar10.npz").splits) == {"train", "test"}


def test_birds_have_boxes_and_parts_that_follow_the_size():
    large, small = (real("cub50.parquet", limit=100, image_size=size) for size in (224, 112))
    assert np.allclose(large.boxes, small.boxes * 2, atol=1e-3)
    assert large.extra["parts"].shape == (100, 15, 2)
    seen = ~np.isnan(large.extra["parts"]).any(axis=-1)
    x, y = np.moveaxis(large.extra["parts"], -1, 0)
    x0, y0, x1, y1 = (large.boxes[:, [i]] for i in range(4))
    inside = (x >= x0 - 5) & (x <= x1 + 5) & (y >= y0 - 5) & (y <= y1 + 5)
    assert inside[seen].mean() > 0.95


def test_chest_findings_and_patients():
    images = real("nih_chest.parquet", positive="Cardiomegaly")
    assert images.classes == ("rest", "Cardiomegaly") and images.images.shape[3] == 1
    assert 1 < len(set(images.patients)) < 400 and images.extra["age"].dtype == np.int64
    truth = ["Cardiomegaly" in found for found in images.findings]
    assert images.labels.tolist() == [int(t) for t in truth]
