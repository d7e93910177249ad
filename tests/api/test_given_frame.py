"""A pandas frame stands for the images of a run, and the run can be resumed without it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import vitrail
from vitrail.errors import DataError

pandas = pytest.importorskip("pandas")
CONFIG = {
    "data": {"image_size": 8},
    "partition": {"kind": "column", "column": "site"},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 1},
}


@pytest.fixture
def frame(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = []
    for number in range(24):
        label = "dark" if number % 2 else "light"
        pixels = np.full((8, 8, 3), 40 if number % 2 else 200, np.uint8) + number
        Image.fromarray(pixels.astype(np.uint8)).save(f"{number}.png")
        rows.append({"path": f"{number}.png", "label": label, "site": f"s{number % 3}"})
    return pandas.DataFrame(rows, index=range(100, 124))


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_a_frame_is_trained_on_and_kept(kind, frame, tmp_path):
    given = frame if kind == "pandas" else pa.Table.from_pandas(frame, preserve_index=False)
    run = vitrail.run(CONFIG, tmp_path / "out" / "run", data=given)
    assert run.finished and set(run.card["classes"]) == {"dark", "light"}
    assert sorted(run.card["sites"]) == ["s0", "s1", "s2"]
    assert (tmp_path / "out" / "run-images.parquet").exists()
    assert len(vitrail.load(tmp_path / "out" / "run").evaluate(str(tmp_path / "out")).rows()) > 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: f.drop(columns="path"), "names the image files"),
        (lambda f: f.to_dict(), "no table of images"),
        (lambda f: f.iloc[:0], "no rows"),
        (lambda f: f.drop(columns="label"), "label"),
    ],
)
def test_what_is_wrong_is_said(spoil, words, frame, tmp_path):
    with pytest.raises(DataError, match=words):
        vitrail.run(CONFIG, tmp_path / "run", data=spoil(frame))


def test_an_existing_run_is_not_touched(frame, tmp_path):
    vitrail.run(CONFIG, tmp_path / "run", data=frame)
    before = (tmp_path / "run-images.parquet").read_bytes()
    with pytest.raises(vitrail.errors.VitrailError, match="not empty"):
        vitrail.run(CONFIG, tmp_path / "run", data=frame.iloc[:12])
    assert (tmp_path / "run-images.parquet").read_bytes() == before
