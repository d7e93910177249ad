import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.config import load as load_config
from vitrail.config.schema import Data
from vitrail.data.inspect.contact_sheet import draw_contact_sheet
from vitrail.data.inspect.guess import guess_data
from vitrail.data.load_images import load
from vitrail.errors import DataError
from vitrail.rng import derive_server_key

KEY = derive_server_key(0).at("folders-test")


def write_images(root, *folders, count=4):
    generator = np.random.default_rng(len(folders))
    for folder in folders:
        (root / folder).mkdir(parents=True)
        for i in range(count):
            pixels = generator.integers(0, 256, (24, 24, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{i}.png")
    return root


@pytest.fixture
def hospitals(tmp_path):
    places = (f"{site}/{name}" for site in ("north", "south") for name in ("benign", "malignant"))
    return write_images(tmp_path / "hospitals", *places)


def read(path, **keys):
    return load(Data(source="folder", path=str(path), **keys), path, KEY)


def test_hospitals_do_not_become_classes_in_silence(hospitals):
    with pytest.raises(DataError, match=r"north, south hold the same folders.*site/class"):
        read(hospitals)
    assert read(hospitals, folders="class").classes == ("north", "south")


def test_site_and_class_are_read_from_folders(hospitals):
    images = read(hospitals, folders="site/class")
    assert images.classes == ("benign", "malignant")
    assert images.sites.tolist() == ["north"] * 8 + ["south"] * 8
    assert images.labels.tolist() == ([0] * 4 + [1] * 4) * 2


def test_older_run_folders_keep_their_classes(hospitals, tmp_path):
    text = f'[data]\nsource = "folder"\npath = "{hospitals}"\n'
    (tmp_path / "config.toml").write_text(text)
    assert load_config(tmp_path / "config.toml", stored=True).config.data.folders == "class"


@pytest.mark.parametrize("order", ["{split}/{site}/{name}", "{site}/{split}/{name}"])
def test_a_split_lies_above_the_sites_or_below_them(tmp_path, order):
    places = [
        order.format(split=split, site=site, name=name)
        for site in ("north", "south")
        for split in ("train", "test")
        for name in ("benign", "malignant")
    ]
    root = write_images(tmp_path / "data", *places, count=2)
    assert guess_data(root).folders == "site/class"
    images = read(root, folders="site/class")
    assert images.classes == ("benign", "malignant")
    assert sorted(set(images.sites.tolist())) == ["north", "south"]
    assert sorted(images.splits.tolist()) == ["test"] * 8 + ["train"] * 8


@pytest.mark.parametrize(
    "places",
    [
        ("cat", "dog"),
        ("train/cat", "train/dog", "test/cat", "test/dog"),
        ("cat/patient-1", "cat/patient-2", "dog/patient-3", "dog/patient-4"),
        ("cat/train", "cat/test", "dog/train", "dog/test"),
    ],
)
def test_plain_class_folders_are_read_as_ever(tmp_path, places):
    root = write_images(tmp_path / "data", *places)
    assert guess_data(root).folders == "auto"
    assert read(root).classes == ("cat", "dog")


def test_the_check_and_the_first_configuration_read_sites_and_say_so(hospitals, tmp_path):
    done = CliRunner().invoke(app, ["data", "check", str(hospitals)])
    assert done.exit_code == 0, done.output
    assert "read as site/class" in done.output and 'data.folders = "class"' in done.output
    assert "benign" in done.output and "sites: 2" in done.output
    file = tmp_path / "first.toml"
    assert CliRunner().invoke(app, ["init", str(hospitals), "--out", str(file)]).exit_code == 0
    run = vitrail.run(
        file, tmp_path / "run", overrides=["run.rounds=1", "model.backbone=small-cnn"]
    )
    assert run.classes == ("benign", "malignant") and run.sites == ("north", "south")


def test_every_class_is_listed_and_drawn(tmp_path):
    names = [f"class-{i:02d}" for i in range(70)]
    root = write_images(tmp_path / "data", *names, count=1)
    done = CliRunner().invoke(app, ["data", "check", str(root)])
    assert all(name in done.output for name in names)
    images = read(root)
    draw_contact_sheet(images, tmp_path / "sheet.png")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png").convert("RGB")).astype(int)
    colorful = np.ptp(sheet, axis=2) > 40  # noise, and neither text nor paper
    rows = colorful.reshape(14, -1, sheet.shape[1]).any(1)
    cells = rows.reshape(14, 5, -1).any(2)
    assert cells.sum() == 70
