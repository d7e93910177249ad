import csv
import io
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.data.aviary.birds import derive_aviary_key, draw_birds
from vitrail.data.decoding.resize import resize_image
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.runs.predict_images import Predictions, escape_cell, predict

CONFIG = {
    "data": {"image_size": 24, "aviary": {"images": 60, "classes": 3}},
    "partition": {"sites": 2},
    "model": {"backbone": "resnet8", "width": 8},
    "run": {"rounds": 2, "batch_size": 16},
}


def config(**sections):
    return {**CONFIG, **sections}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VITRAIL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield vitrail.run(CONFIG, tmp_path_factory.mktemp("runs") / "fedavg")


@pytest.fixture(scope="module")
def birds():
    return draw_birds(5, 3, derive_aviary_key(3), 24)


@pytest.fixture
def folder(tmp_path, birds):
    """Two images at the top, one deeper, one broken, one that is no image."""
    (tmp_path / "new" / "deep").mkdir(parents=True)
    for i, name in enumerate(("a.png", "b.PNG", "deep/c.png")):
        Image.fromarray(birds.images[i]).save(tmp_path / "new" / name, "PNG")
    (tmp_path / "new" / "broken.jpg").write_bytes(b"not an image")
    (tmp_path / "new" / "notes.txt").write_text("hello")
    return tmp_path / "new"


def by_hand(run, pixels, site=None):
    """One image at a time through the plain module."""
    model = run.model(site)
    rows = [model.probabilities(torch.tensor(x).permute(2, 0, 1)[None]) for x in pixels]
    return torch.cat(rows).numpy()


def test_a_folder_gives_one_row_per_image_and_broken_ones_an_error(run, folder, birds):
    found = predict(run, folder)
    assert found.names == ("a.png", "b.PNG", "broken.jpg", "deep/c.png")
    np.testing.assert_allclose(
        found.probabilities[[0, 1, 3]], by_hand(run, birds.images[:3]), atol=1e-6
    )
    assert np.isnan(found.probabilities[2]).all()
    assert found.failed == 1 and found.errors[2]
    assert found.labels[2] is None
    best = [run.classes[i] for i in by_hand(run, birds.images[:3]).argmax(axis=1)]
    assert [found.labels[i] for i in (0, 1, 3)] == best
    assert [p.path for p in found.problems] == ["notes.txt"]


def test_more_images_than_one_batch(run, tmp_path):
    many = draw_birds(130, 3, derive_aviary_key(4), 24)
    np.savez(tmp_path / "many.npz", x=many.images, y=many.labels)
    found = predict(run, tmp_path / "many.npz")
    assert len(found) == 130 and found.failed == 0
    rows = [0, 63, 64, 127, 128, 129]
    np.testing.assert_allclose(
        found.probabilities[rows], by_hand(run, many.images[rows]), atol=1e-5
    )


def test_other_sizes_and_color_modes_are_brought_to_the_run(run, tmp_path, birds):
    picture = Image.fromarray(birds.images[0]).resize((70, 50))
    modes = {"rgb": picture, "grey": picture.convert("L"), "alpha": picture.convert("RGBA")}
    modes["palette"] = picture.convert("P")
    for name, image in modes.items():
        image.save(tmp_path / f"{name}.png")
        found = predict(run, tmp_path / f"{name}.png")
        rgb = Image.open(tmp_path / f"{name}.png").convert("RGB")
        wanted = by_hand(run, [np.asarray(resize_image(rgb, 24, "crop"))])
        np.testing.assert_allclose(found.probabilities, wanted, atol=1e-5)


def test_a_grey_run_takes_color_images(tmp_path, birds):
    grey = config(data={**CONFIG["data"], "channels": 1}, run={"rounds": 1, "batch_size": 16})
    run = vitrail.run(grey, tmp_path / "run")
    Image.fromarray(birds.images[0]).save(tmp_path / "a.png")
    found = predict(run, tmp_path / "a.png")
    wanted = np.asarray(Image.fromarray(birds.images[0]).convert("L"))[..., None]
    np.testing.assert_allclose(found.probabilities, by_hand(run, [wanted]), atol=1e-5)


def encoded(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_tables_need_no_label_column(run, tmp_path, birds, folder):
    cells = [encoded(x) for x in birds.images]
    table = pa.table({"picture": cells, "id": list("abcde")})
    pq.write_table(table, tmp_path / "new.parquet")
    found = predict(run, tmp_path / "new.parquet")
    np.testing.assert_allclose(found.probabilities, by_hand(run, birds.images), atol=1e-5)
    (folder / "list.csv").write_text("path,age\na.png,4\ngone.png,5\n")
    listed = predict(run, folder / "list.csv")
    assert listed.names == ("a.png", "gone.png")
    assert listed.errors == ("", "there is no such file")


def test_a_table_without_images_is_one_sentence(run, tmp_path):
    (tmp_path / "odd.csv").write_text("age,weight\n1,2\n")
    with pytest.raises(DataError, match="no column looks like images"):
        predict(run, tmp_path / "odd.csv")


def test_torn_tables_are_sentences(run, tmp_path):
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(DataError, match="cannot be read"):
        predict(run, tmp_path / "torn.parquet")
    (tmp_path / "torn.npz").write_bytes(b"PK no more")
    with pytest.raises(DataError, match="cannot be read"):
        predict(run, tmp_path / "torn.npz")


def test_loose_dicom_files(run, tmp_path, birds):
    pydicom = pytest.importorskip("pydicom")
    grey = np.asarray(Image.fromarray(birds.images[0]).convert("L"))
    scan = pydicom.dataset.Dataset()
    scan.file_meta = pydicom.dataset.FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    scan.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    scan.SOPInstanceUID = pydicom.uid.generate_uid()
    scan.set_pixel_data(grey, "MONOCHROME2", 8)
    (tmp_path / "scans").mkdir()
    scan.save_as(tmp_path / "scans" / "a.dcm", enforce_file_format=True)
    (tmp_path / "scans" / "b.dcm").write_bytes(b"no scan")
    found = predict(run, tmp_path / "scans")
    assert found.names == ("a.dcm", "b.dcm") and found.errors[1] and not found.errors[0]
    alone = predict(run, tmp_path / "scans" / "a.dcm")
    np.testing.assert_allclose(alone.probabilities[0], found.probabilities[0], atol=1e-6)


def test_a_site_has_its_own_model(tmp_path, birds):
    run = vitrail.run(config(method={"name": "fedper"}), tmp_path / "run")
    Image.fromarray(birds.images[0]).save(tmp_path / "a.png")
    with pytest.raises(RunError, match=r"no global model.*site-00"):
        predict(run, tmp_path / "a.png")
    first, second = (predict(run, tmp_path / "a.png", site) for site in ("site-00", "site-01"))
    assert not np.array_equal(first.probabilities, second.probabilities)
    np.testing.assert_allclose(
        second.probabilities, by_hand(run, birds.images[:1], "site-01"), atol=1e-6
    )
    with pytest.raises(RunError, match="no site 'site-07'"):
        predict(run, tmp_path / "a.png", "site-07")


def test_a_local_run_needs_a_site(tmp_path, birds):
    run = vitrail.run(config(method={"name": "local"}, run={"rounds": 1}), tmp_path / "run")
    Image.fromarray(birds.images[0]).save(tmp_path / "a.png")
    with pytest.raises(RunError, match="Name a site"):
        predict(run, tmp_path / "a.png")
    assert predict(run, tmp_path / "a.png", "site-01").failed == 0


def test_text_that_a_spreadsheet_would_compute_gets_a_quote():
    nasty = ("=cmd()", 'a,b\n"c"', "path")
    found = Predictions(
        ("-1+1.png", "ok.png"),
        np.array([[0.9, 0.05, 0.05], [np.nan] * 3], np.float32),
        nasty,
        ("", "@broken"),
    )
    head, first, second = csv.reader(io.StringIO(found.csv()))
    assert head == ["path", "prediction", "'=cmd()", 'a,b\n"c"', "class path", "error"]
    assert first == ["'-1+1.png", "'=cmd()", "0.900000", "0.050000", "0.050000", ""]
    assert second == ["ok.png", "", "", "", "", "'@broken"]
    assert escape_cell("plain = text") == "plain = text"


def command(*words):
    return CliRunner().invoke(app, ["predict", *map(str, words)])


def test_the_command_writes_a_table_and_never_overwrites(run, folder, tmp_path):
    out = tmp_path / "out.csv"
    done = command(run.path, folder, "--out", out)
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(out.open()))
    assert [row["path"] for row in rows] == ["a.png", "b.PNG", "broken.jpg", "deep/c.png"]
    assert rows[2]["error"] and not rows[2]["prediction"]
    assert sum(float(rows[0][name]) for name in run.classes) == pytest.approx(1, abs=1e-5)
    before = out.read_bytes()
    again = command(run.path, folder / "a.png", "--out", out)
    assert isinstance(again.exception, RunError) and out.read_bytes() == before
    assert command(run.path, folder / "a.png", "--out", out, "--force").exit_code == 0
    assert len(out.read_text().splitlines()) == 2


def test_the_command_fails_only_if_nothing_could_be_read(run, folder, tmp_path):
    failed = command(run.path, folder / "broken.jpg", "--out", tmp_path / "x.csv")
    assert isinstance(failed.exception, DataError)
    assert not (tmp_path / "x.csv").exists()


@pytest.mark.parametrize("path", ["gone", "empty"])
def test_nothing_there_is_one_sentence(run, tmp_path, path):
    (tmp_path / "empty").mkdir()
    failed = command(run.path, tmp_path / path, "--out", tmp_path / "x.csv")
    assert isinstance(failed.exception, DataError), failed.exception


def test_a_folder_that_is_no_run(tmp_path, folder):
    failed = command(tmp_path, folder, "--out", tmp_path / "x.csv")
    assert isinstance(failed.exception, RunError)
    assert "not a run folder" in str(failed.exception)


def test_an_unfinished_run_is_usable_and_says_its_round(run, folder, tmp_path):
    shutil.copytree(run.path, tmp_path / "half")
    (tmp_path / "half" / "server" / "finished").unlink()
    (tmp_path / "half" / "server" / "checkpoints" / "round-00002.safetensors").unlink()
    done = command(tmp_path / "half", folder, "--out", tmp_path / "x.csv")
    assert done.exit_code == 0
    assert "after round 1 of 2" in done.stderr


def test_overrides_other_than_data_are_refused(run, folder):
    with pytest.raises(ConfigError, match=r"data\.key=value"):
        predict(run, folder, overrides=["run.rounds=3"])
