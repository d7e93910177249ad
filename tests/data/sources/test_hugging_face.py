"""Folders as `datasets.save_to_disk` writes them, made here by hand, and MedMNIST files."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from vitrail.config.schema import Data
from vitrail.data.inspect.guess import guess_data
from vitrail.data.load_images import load
from vitrail.errors import DataError
from vitrail.rng import derive_server_key

KEY = derive_server_key(1)
KIND = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def encode(value):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (value, 2 * value, 3 * value)).save(file, "PNG")
    return file.getvalue()


def write_part(folder, labels, first=0, names=("cat", "dog"), files=1):
    """What `save_to_disk` leaves: Arrow streams, state.json and dataset_info.json."""
    folder.mkdir(parents=True)
    cells = [{"bytes": encode(first + i), "path": f"{i}.png"} for i in range(len(labels))]
    parts = np.array_split(np.arange(len(labels)), files)
    listed = []
    for number, rows in enumerate(parts):
        file = f"data-{number:05d}-of-{files:05d}.arrow"
        table = pa.table(
            {
                "image": pa.array([cells[i] for i in rows], KIND),
                "label": pa.array([labels[i] for i in rows], pa.int64()),
                "hospital": pa.array([f"h{i % 2}" for i in rows]),
            }
        )
        with (folder / file).open("wb") as handle, pa.ipc.new_stream(handle, table.schema) as out:
            out.write_table(table)
        listed.append({"filename": file})
    (folder / "state.json").write_text(json.dumps({"_data_files": listed}))
    label = {"names": list(names), "_type": "ClassLabel"}
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"label": label}}))


def test_one_data_set_with_class_names_and_columns(tmp_path):
    write_part(tmp_path / "set", [0, 1, 1, 0, 1], files=2)
    data = guess_data(tmp_path / "set")
    assert data.source == "hugging-face"
    images = load(data.model_copy(update={"site": "hospital"}), tmp_path, KEY)
    assert images.classes == ("cat", "dog") and images.labels.tolist() == [0, 1, 1, 0, 1]
    assert images.images[:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert images.sites.tolist() == ["h0", "h1", "h0", "h1", "h0"]


def test_parts_of_a_dictionary_are_the_splits(tmp_path):
    write_part(tmp_path / "set" / "train", [0, 1, 1])
    write_part(tmp_path / "set" / "test", [1, 0], first=10)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    images = load(guess_data(tmp_path / "set"), tmp_path, KEY)
    assert images.splits.tolist() == ["train"] * 3 + ["test"] * 2
    assert images.images[:, 0, 0, 0].tolist() == [0, 1, 2, 10, 11]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "state.json").unlink(), "no state.json"),
        (lambda f: (f / "state.json").write_text("[1]"), "holds no table"),
        (lambda f: (f / "state.json").write_text("{"), "cannot be read"),
        (
            lambda f: (f / "state.json").write_text('{"_data_files": [{"filename": "../x"}]}'),
            "outside of its folder",
        ),
        (lambda f: (f / "data-00000-of-00001.arrow").write_bytes(b"no"), "Arrow file"),
        (lambda f: (f / "data-00000-of-00001.arrow").unlink(), "Arrow file"),
    ],
)
def test_what_is_wrong_is_said(spoil, words, tmp_path):
    write_part(tmp_path / "set", [0, 1])
    spoil(tmp_path / "set")
    with pytest.raises(DataError, match=words):
        load(Data(source="hugging-face", path=str(tmp_path / "set")), tmp_path, KEY)


def write_medmnist(file, count=12, classes=9):
    parts = {}
    for part in ("train", "val", "test"):
        parts[f"{part}_images"] = np.full((count, 28, 28, 3), 7, np.uint8)
        parts[f"{part}_labels"] = (np.arange(count) % classes)[:, None].astype(np.uint8)
    np.savez(file, **parts)


@pytest.mark.parametrize("name", ["pathmnist.npz", "PathMNIST_224.npz"])
def test_medmnist_files_have_their_class_names(name, tmp_path):
    write_medmnist(tmp_path / name)
    images = load(guess_data(tmp_path / name), tmp_path, KEY)
    assert len(images.classes) == 9 and images.classes[3] == "lymphocytes"
    assert images.labels[:9].tolist() == list(range(9))


def test_another_file_of_that_name_keeps_its_numbers(tmp_path):
    write_medmnist(tmp_path / "pneumoniamnist.npz", classes=3)
    assert load(guess_data(tmp_path / "pneumoniamnist.npz"), tmp_path, KEY).classes == (
        "0",
        "1",
        "2",
    )
