import numpy as np
import pytest
from PIL import Image

from vitrail.data.partition.partition import Partition, SiteRows
from vitrail.report.figures.partition_picture import draw_partition


def deal(sites, classes, each=6):
    rows = np.arange(sites * each).reshape(sites, each)
    labels = np.random.default_rng(0).integers(classes, size=sites * each)
    parts = tuple(SiteRows(f"site-{i}", r[:-1], r[-1:]) for i, r in enumerate(rows))
    return Partition(parts, np.empty(0, dtype=np.int64)), labels


@pytest.mark.parametrize(("sites", "classes"), [(1, 2), (4, 6), (100, 200)])
def test_pictures_of_all_sizes_are_drawn(tmp_path, sites, classes):
    result, labels = deal(sites, classes)
    path = tmp_path / "deep" / "partition.png"
    draw_partition(result, labels, tuple(f"a class called {i}" for i in range(classes)), path)
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        assert 300 < picture.width < 3000
        assert 100 < picture.height < 3000
        assert len(np.unique(np.asarray(picture.convert("L")))) > 20


def test_equal_partitions_give_equal_files(tmp_path):
    result, labels = deal(3, 4)
    for name in ("a.png", "b.png"):
        draw_partition(result, labels, ("a", "b", "c", "d"), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_hostile_names_and_single_images(tmp_path):
    one = SiteRows("$x_{$", np.array([0]), np.empty(0, dtype=np.int64))
    classes = ("$\\frac{", "x" * 500, "")
    draw_partition(
        Partition((one,), np.array([1, 2])), np.array([0, 1, 1]), classes, tmp_path / "p.png"
    )
    assert (tmp_path / "p.png").stat().st_size > 1000
