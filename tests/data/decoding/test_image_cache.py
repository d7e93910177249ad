"""Images inside one file: Parquet and npz, the order of their rows, and the cache of a column."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.data import load_with_problems
from vitrail.data.decoding.payload import read_payloads
from vitrail.data.records import ParquetImage, Record
from vitrail.errors import DataError

KEY = rng.derive_server_key(1)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "the cache"))


def encoded(value, size=(16, 16)):
    buffer = io.BytesIO()
    Image.new("L", size, value).save(buffer, "PNG")
    return buffer.getvalue()


def read(root, **options):
    return load_with_problems(Data(path=str(root), **options), root.parent, KEY)


def parquet(path, count=10, **columns):
    images = [{"bytes": encoded(i % 256), "path": f"{i}.png"} for i in range(count)]
    table = {"image": images, "label": [f"c{i % 2}" for i in range(count)], **columns}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path, row_group_size=4)
    return path


def test_parquet_with_images_inside(tmp_path):
    parts = [[[8.0, 8.0], None, [2.0, 4.0]]] * 10
    boxes = [[0.0, 4.0, 8.0, 16.0]] * 9 + [None]
    path = parquet(tmp_path / "p.parquet", box=boxes, parts=parts, patient=list(range(10)))
    images, problems = read(path, source="parquet", image_size=8)
    assert problems == [] and images.images[:, 0, 0, 0].tolist() == list(range(10))
    assert images.names[3] == "3.png" and images.patients[9] == "9"
    assert images.boxes[0].tolist() == [0, 2, 4, 8] and np.isnan(images.boxes[9]).all()
    assert images.extra["parts"].shape == (10, 3, 2)
    assert images.extra["parts"][0, 2].tolist() == [1, 2]
    assert np.isnan(images.extra["parts"][0, 1]).all()


def test_parquet_plain_bytes_shards_and_names_of_integers(tmp_path):
    for part in ("train-0", "train-1", "test-0"):
        names = {"info": {"features": {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}}}
        table = pa.table({"image": [encoded(1), encoded(2)], "label": [1, 0]})
        table = table.replace_schema_metadata({"huggingface": json.dumps(names)})
        (tmp_path / "d").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "d" / f"{part}.parquet")
    images, _ = read(tmp_path / "d", source="parquet")
    assert images.classes == ("no", "yes") and images.labels.tolist() == [1, 0] * 3
    assert images.splits.tolist() == ["test"] * 2 + ["train"] * 4


def test_parquet_that_is_wrong(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "x.parquet", source="parquet")
    pq.write_table(pa.table({"image": ["a.png"], "label": ["b"]}), tmp_path / "y.parquet")
    with pytest.raises(DataError, match=r"not encoded images.*manifest"):
        read(tmp_path / "y.parquet", source="parquet")
    path = parquet(tmp_path / "z.parquet", label=[["A"], [], ["A", "B"], None] + [["B"]] * 6)
    with pytest.raises(DataError, match="without a usable label"):
        read(path, source="parquet", positive="A")
    assert len(read(path, source="parquet", positive="A", broken="skip")[0]) == 9
    with pytest.raises(DataError, match="lists of findings"):
        read(path, source="parquet", broken="skip")


def test_parquet_rows_are_streamed_in_the_order_asked_for(tmp_path):
    path = parquet(tmp_path / "p.parquet", 300)
    wanted = [3, 7, 250, 299, 0, 5, 5, 1]
    rows = [Record(str(i), ParquetImage(path, i, "image"), "x") for i in wanted]
    assert list(read_payloads(rows)) == [encoded(i % 256) for i in wanted]


def test_npz_in_both_shapes(tmp_path):
    rng_ = np.random.default_rng(0)
    x = rng_.integers(0, 256, (6, 9, 9, 3), np.uint8)
    y = np.array([0, 1, 0, 1, 0, 1])
    names = np.array(["no", "yes"])
    np.savez(
        tmp_path / "a.npz", x_train=x[:4], y_train=y[:4], x_test=x[4:], y_test=y[4:], classes=names
    )
    images, _ = read(tmp_path / "a.npz", source="npz")
    assert (images.images == x).all() and images.classes == ("no", "yes")
    assert images.splits.tolist() == ["train"] * 4 + ["test"] * 2
    np.savez(tmp_path / "b.npz", x=x[..., 0] / 255, y=y, site=np.array(list("uvuvuv")))
    images, _ = read(tmp_path / "b.npz", source="npz")
    assert (images.images[..., 0] == x[..., 0]).all() and images.sites.tolist() == list("uvuvuv")
    np.savez(
        tmp_path / "c.npz", train_images=x, train_labels=y[:, None], val_images=x, val_labels=y
    )
    images, _ = read(tmp_path / "c.npz", source="npz")
    assert (images.splits == "test").sum() == 6 and len(images) == 12
    np.savez(tmp_path / "d.npz", pixels=x, truth=y)
    assert len(read(tmp_path / "d.npz", source="npz", image="pixels", label="truth")[0]) == 6
    resized, _ = read(
        tmp_path / "d.npz", source="npz", image="pixels", label="truth", image_size=16
    )
    assert resized.images.shape == (6, 16, 16, 3)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": np.zeros((2, 3, 8, 8), np.uint8), "y": [0, 1]}, "channels last"),
        ({"x": np.zeros((2, 8), np.uint8), "y": [0, 1]}, "has the shape"),
        ({"x": np.full((2, 8, 8), 7.0), "y": [0, 1]}, "outside of [0, 1]"),
        ({"x": np.full((2, 8, 8), np.nan), "y": [0, 1]}, "outside of [0, 1]"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0, 1, 2]}, "but there are 2 images"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0, -1]}, "row 1 (x[1]) has -1"),
        ({"x": np.zeros((2, 8, 8), np.uint8), "y": [0, 5], "classes": ["a", "b"]}, "has 5"),
        ({"x": np.zeros((2, 8, 8), np.uint8)}, "no 'y'"),
        ({"z": np.zeros(2)}, "no arrays x and y"),
        ({"x": np.array([{}, {}]), "y": [0, 1]}, "Python objects"),
        ({"x": np.zeros((0, 8, 8), np.uint8), "y": []}, "no images"),
    ],
)  # fmt: skip
def test_npz_that_is_wrong(tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError) as err:
        read(tmp_path / "a.npz", source="npz")
    assert said in str(err.value)
    (tmp_path / "b.npz").write_bytes(b"PK no")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "b.npz", source="npz")


def test_two_columns_of_one_file_are_not_taken_for_each_other_in_the_cache(tmp_path):
    path = tmp_path / "p.parquet"
    columns = {"front": [encoded(10), encoded(11)], "side": [encoded(20), encoded(21)]}
    pq.write_table(pa.table({**columns, "label": ["a", "b"]}), path)
    options = {"source": "parquet", "image_size": 8, "cache": "disk"}
    for _ in range(2):  # the second time from the cache
        for column, values in (("front", [10, 11]), ("side", [20, 21])):
            images, _ = read(path, image=column, **options)
            assert images.images[:, 0, 0, 0].tolist() == values
    assert len(list((tmp_path / "the cache").glob("*.pixels"))) == 2
