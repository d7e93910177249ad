"""What a check says about images, what a guess makes of a path, and the contact sheet."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.data import load
from vitrail.data.inspect.image_check import check, draw_contact_sheet, guess_data
from vitrail.errors import DataError

KEY = rng.derive_server_key(1)


def noise(path, seed, size=(32, 32)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(path, "PNG")
    return path


@pytest.fixture
def folders(tmp_path):
    root = tmp_path / "s"
    for i in range(3):
        noise(root / "cat" / f"{i}.png", i)
        noise(root / "dog" / f"{i}.png", 10 + i)
    return root


def looked(root, **options):
    return check(Data(source="folder", path=str(root), **options), root, KEY)


def test_clean_images(folders):
    result = looked(folders)
    assert result.ok and result.problems == () and result.images == 6
    assert result.classes == {"cat": 3, "dog": 3} and result.sizes == {(32, 32): 6}
    assert result.modes == {"RGB": 6} and result.patients is None
    text = "\n".join(result.lines())
    assert "images: 6" in text and "32 x 32" in text and "problems: none" in text


def test_every_kind_of_problem(folders):
    (folders / "cat" / "text.png").write_text("x")
    whole = (folders / "cat" / "0.png").read_bytes()
    (folders / "cat" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folders / "cat" / "copy.png").write_bytes(whole)
    (folders / "dog" / "copy.png").write_bytes(whole)
    Image.new("RGB", (32, 32), (9, 9, 9)).save(folders / "dog" / "flat.png")
    noise(folders / "dog" / "tiny.png", 50, (8, 8))
    noise(folders / "dog" / "narrow.png", 51, (200, 20))
    result = looked(folders)
    assert not result.ok
    said = {(p.path, p.kind): p.sentence for p in result.problems}
    assert ("cat/text.png", "broken") in said and ("cat/cut.png", "broken") in said
    assert said["cat/copy.png", "duplicate"] == "is the same image as cat/0.png"
    assert "another label (dog, not cat)" in said["dog/copy.png", "conflict"]
    assert "same value" in said["dog/flat.png", "suspicious"]
    assert "tiny" in said["dog/tiny.png", "suspicious"]
    assert "narrow" in said["dog/narrow.png", "suspicious"]
    assert len(said) == 7
    assert "... and 5 more" in "\n".join(result.lines(shown=2))
    assert "broken" in result.lines()[-7]  # what stops a run comes first


def test_duplicates_across_patients_and_splits_and_no_names_of_patients(tmp_path):
    noise(tmp_path / "a.png", 1)
    noise(tmp_path / "b.png", 1)
    noise(tmp_path / "c.png", 2)
    rows = "a.png,x,SECRET1,train\nb.png,x,SECRET2,test\nc.png,y,SECRET1,train\n"
    rows += "none.png,y,SECRET1,train\n"
    (tmp_path / "m.csv").write_text("path,label,patient,split\n" + rows)
    result = check(guess_data(tmp_path / "m.csv"), tmp_path, KEY)
    assert result.patients == 2 and result.splits == {"train": 3, "test": 1}
    text = "\n".join(result.lines())
    assert "of another patient, in another split" in text and "missing: none.png" in text
    assert "SECRET" not in text


def test_labels_that_cannot_be_used_are_a_problem_not_a_crash(tmp_path):
    noise(tmp_path / "s" / "only" / "1.png", 1)
    result = looked(tmp_path / "s")
    assert not result.ok and "one class only" in result.problems[0].sentence
    assert result.classes == {"only": 1}


def test_arrays_and_embedded_images(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (4, 16, 16), np.uint8)
    x[3] = x[0]
    np.savez(tmp_path / "a.npz", x=x, y=[0, 1, 0, 1], site=["u", "u", "v", "v"])
    result = check(guess_data(tmp_path / "a.npz"), tmp_path, KEY)
    assert result.sites == {"u": 2, "v": 2} and "another label" in result.problems[0].sentence
    assert check(Data(), tmp_path, KEY).images == 1200


def test_guess_of_folders_tables_and_archives(folders, tmp_path):
    assert guess_data(folders).source == "folder"
    csv = tmp_path / "t" / "list.csv"
    csv.parent.mkdir()
    csv.write_text("id;Filename;Diagnosis\n1;a.png;x\n")
    found = guess_data(csv)
    assert (found.source, found.image, found.label) == ("manifest", "Filename", "Diagnosis")
    assert guess_data(csv.parent).path == str(csv)
    table = pa.table({"picture": [{"bytes": b"x", "path": "a"}], "target": [1]})
    pq.write_table(table, tmp_path / "p.parquet")
    found = guess_data(tmp_path / "p.parquet")
    assert (found.source, found.image, found.label) == ("parquet", "picture", "target")


def test_guess_that_cannot_be_made(folders, tmp_path):
    (folders / "labels.csv").write_text("path,label\ncat/0.png,cat\n")
    with pytest.raises(DataError, match=r"class folders here and also a table, labels.csv.*Choose"):
        guess_data(folders)
    (folders / "labels.csv").write_text("breed,weight\ncat,3\n")
    assert guess_data(folders).source == "folder"  # a table that lists no images is none of ours
    with pytest.raises(DataError, match="does not exist"):
        guess_data(tmp_path / "nowhere")
    void = tmp_path / "void"
    void.mkdir()
    with pytest.raises(DataError, match="there are no images here"):
        guess_data(void)
    noise(void / "1.png", 1)
    with pytest.raises(DataError, match="no class folders"):
        guess_data(void)
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"no column looks like images.*a, b"):
        guess_data(tmp_path / "x.csv")
    (tmp_path / "x.zip").write_bytes(b"")
    with pytest.raises(DataError, match="none of"):
        guess_data(tmp_path / "x.zip")


def test_the_contact_sheet_has_a_row_for_every_class(folders, tmp_path):
    noise(folders / ("w" * 200) / "1.png", 3)
    images = load(Data(source="folder", path=str(folders)), tmp_path, KEY)
    draw_contact_sheet(images, tmp_path / "out" / "sheet.png", per_class=2)
    with Image.open(tmp_path / "out" / "sheet.png") as sheet:
        pixels = np.asarray(sheet.convert("L"))
    rows = np.array_split(pixels, 3)
    for row in rows:
        assert (row[:20] < 128).any()  # a caption
        assert row[60:100, 10:90].std() > 20  # an image under it
    assert (pixels[:, -2:] == 255).all()  # nothing runs over the edge
