import io
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.config import load
from vitrail.data.aviary.birds import derive_aviary_key, draw_birds
from vitrail.data.inspect import advice
from vitrail.data.inspect import starter_config as starter
from vitrail.errors import DataError, RunError


def init(*words):
    return CliRunner().invoke(app, ["init", *map(str, words)])


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def save(birds, folder, names):
    for i, (pixels, label) in enumerate(zip(birds.images, birds.labels)):
        (folder / names[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / names[label] / f"{i}.png")
    return folder


def class_folders(tmp_path):
    return save(
        draw_birds(24, 2, derive_aviary_key(1), 32), tmp_path / "my birds", ["cœur = 1", "b # c"]
    )


def sites_in_a_manifest(tmp_path):
    folder = save(draw_birds(40, 2, derive_aviary_key(1), 48), tmp_path / "x", ["a", "b"])
    files = sorted(folder.rglob("*.png"))
    rows = [f"{p.relative_to(folder)},{p.parent.name},h{i % 2}" for i, p in enumerate(files)]
    (folder / "list.csv").write_text("\n".join(["file,class,site", *rows]))
    return folder / "list.csv"


def findings_in_parquet(tmp_path):
    birds = draw_birds(40, 2, derive_aviary_key(1), 32)
    lists = [
        ["Edema"] if i else ["Fracture", "Edema"][: 1 + k % 2] for k, i in enumerate(birds.labels)
    ]
    patients = [f"p{i // 2}" for i in range(40)]
    table = {"image": [png(x) for x in birds.images], "label": lists, "patient": patients}
    pq.write_table(pa.table(table), tmp_path / "scans.parquet")
    return tmp_path / "scans.parquet"


def arrays_with_a_split(tmp_path):
    birds = draw_birds(40, 4, derive_aviary_key(1), 28)
    x, y = birds.images.mean(axis=3).astype(np.uint8), birds.labels
    np.savez(tmp_path / "a.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])
    return tmp_path / "a.npz"


def broken_ones_among_them(tmp_path):
    folder = class_folders(tmp_path)
    (folder / "b # c" / "torn.png").write_bytes(b"\x89PNG")
    return folder


MAKERS = [
    class_folders,
    sites_in_a_manifest,
    findings_in_parquet,
    arrays_with_a_split,
    broken_ones_among_them,
]


@pytest.mark.parametrize("maker", MAKERS, ids=lambda f: f.__name__)
def test_the_written_file_loads_and_runs(maker, tmp_path):
    path = maker(tmp_path)
    (tmp_path / "configs").mkdir()
    file = tmp_path / "configs" / "first.toml"
    done = init(path, "--out", file)
    assert done.exit_code == 0, done.exception
    assert "images:" in done.stdout and str(file) in done.stdout
    config = load(file).config
    assert not config.data.path.startswith("/")
    assert file.read_text().count("#") > 8
    assert config.model.backbone in ("small-cnn", "resnet8")
    run = vitrail.run(file, tmp_path / "run", overrides=("run.rounds=1", "run.batch_size=8"))
    assert run.finished and run.rows()


def test_sites_patients_and_splits_are_found(tmp_path):
    def written(maker):
        folder = tmp_path / maker.__name__
        folder.mkdir()
        assert init(maker(folder), "--out", folder / "f.toml").exit_code == 0
        return tomllib.loads((folder / "f.toml").read_text()), (folder / "f.toml").read_text()

    by_site, _ = written(sites_in_a_manifest)
    assert by_site["partition"]["kind"] == "column" and by_site["model"]["backbone"] == "resnet8"
    lists, text = written(findings_in_parquet)
    assert lists["data"]["positive"] == "Edema"
    assert "most frequent finding" in text and "20 patients" in text
    split, _ = written(arrays_with_a_split)
    assert "test_fraction" not in split["partition"] and split["data"]["image_size"] == 28
    torn, text = written(broken_ones_among_them)
    assert torn["data"]["broken"] == "skip" and "1 images cannot be used" in text


@pytest.mark.parametrize("installed", [True, False])
def test_large_images_get_pretrained_features_if_they_can_be_had(tmp_path, monkeypatch, installed):
    monkeypatch.setattr(advice, "has_pretrained_weights", lambda: installed)
    for label in ("a", "b"):
        (tmp_path / "x" / label).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (300, 200 + i), (40 * i, 0, 9)).save(
                tmp_path / "x" / label / f"{i}.png"
            )
    config = tomllib.loads(starter.draft(tmp_path / "x", tmp_path / "f.toml").text)
    if installed:
        assert config["model"] == {
            "backbone": "efficientnet-lite0",
            "weights": "imagenet",
            "frozen": True,
        }
    else:
        assert config["model"] == {"backbone": "resnet18"}
    assert config["data"]["image_size"] == (224 if installed else 128)


def test_sites_that_cannot_be_used_are_said_in_a_comment(tmp_path):
    folder = save(draw_birds(12, 2, derive_aviary_key(1), 32), tmp_path / "x", ["a", "b"])
    files = sorted(folder.rglob("*.png"))
    rows = [f"{p.relative_to(folder)},{p.parent.name},h{min(i, 1)}" for i, p in enumerate(files)]
    (folder / "list.csv").write_text("\n".join(["file,class,site", *rows]))
    text = starter.draft(folder / "list.csv", tmp_path / "f.toml").text
    assert tomllib.loads(text)["partition"]["kind"] == "iid"
    assert "the sites of the data cannot be used" in text


def test_a_large_set_is_read_by_its_headers_only(tmp_path, monkeypatch):
    path = class_folders(tmp_path)
    full = starter.draft(path, tmp_path / "f.toml")
    monkeypatch.setattr(starter, "_FULL_CHECK", 5)
    monkeypatch.setattr(starter, "check", None)
    quick = starter.draft(path, tmp_path / "f.toml")
    assert quick.text == full.text and quick.check.classes == full.check.classes


def test_names_from_the_data_cannot_break_out_of_a_comment(tmp_path):
    birds = draw_birds(20, 2, derive_aviary_key(1), 32)
    names = ["plain", 'x"\n[run]\nrounds = 99\n#']
    lists = [[names[i]] if k % 3 else names for k, i in enumerate(birds.labels)]
    pq.write_table(
        pa.table({"image": [png(x) for x in birds.images], "label": lists}), tmp_path / "p.parquet"
    )
    config = tomllib.loads(starter.draft(tmp_path / "p.parquet", tmp_path / "f.toml").text)
    assert config["run"]["rounds"] == 20


def test_an_existing_file_is_never_overwritten(tmp_path):
    path = class_folders(tmp_path)
    (tmp_path / "f.toml").write_text("mine")
    failed = init(path, "--out", tmp_path / "f.toml")
    assert isinstance(failed.exception, RunError)
    assert (tmp_path / "f.toml").read_text() == "mine"


def test_what_cannot_run_is_not_written(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "one" / "only").mkdir(parents=True)
    Image.new("RGB", (20, 20)).save(tmp_path / "one" / "only" / "a.png")
    for path in ("gone", "empty", "one"):
        failed = init(tmp_path / path, "--out", tmp_path / "f.toml")
        assert isinstance(failed.exception, DataError), path
        assert not (tmp_path / "f.toml").exists()
