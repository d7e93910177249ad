import json

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.config import load as load_config
from vitrail.config.schema import Data
from vitrail.data.inspect.image_check import check
from vitrail.data.load_images import load
from vitrail.errors import DataError
from vitrail.flower.run_terms import make_terms, merge_terms
from vitrail.rng import derive_server_key
from vitrail.runs.export_model import export
from vitrail.runs.predict_images import predict

KEY = derive_server_key(3).at("depth-test")
SIDE = 32


def make_pictures(count=24):
    """8-bit pictures of two classes, bright on the left or on the right."""
    generator = np.random.default_rng(5)
    pictures = generator.integers(0, 120, (count, SIDE, SIDE)).astype(np.uint8)
    for i in range(count):
        half = slice(0, SIDE // 2) if i % 2 else slice(SIDE // 2, SIDE)
        pictures[i, :, half] += 100
    pictures[:, 0, 0] = 255  # the depth is used to its end
    return pictures


def deepen(picture, bits):
    """The same picture with values up to 2^bits - 1, in 16 bits."""
    return np.rint(picture.astype(np.float64) * (2**bits - 1) / 255).astype(np.uint16)


def write_folder(folder, pictures, bits=8):
    for i, picture in enumerate(pictures):
        place = folder / ("left" if i % 2 else "right")
        place.mkdir(parents=True, exist_ok=True)
        values = picture if bits == 8 else deepen(picture, bits)
        Image.fromarray(values).save(place / f"{i:02d}.png")
    return folder


def read(path, **keys):
    return load(Data(source="folder", path=str(path), **keys), path, KEY)


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_a_set_is_read_by_the_bits_that_it_uses(tmp_path, bits):
    pictures = make_pictures()
    shallow = read(write_folder(tmp_path / "8", pictures))
    deep = read(write_folder(tmp_path / "deep", pictures, bits))
    assert deep.bits == bits and shallow.bits is None
    assert np.array_equal(deep.images, shallow.images)


def test_a_dark_image_of_a_deep_set_stays_dark(tmp_path):
    pictures = make_pictures()
    pictures[3] = pictures[3] // 8
    shallow = read(write_folder(tmp_path / "8", pictures))
    deep = read(write_folder(tmp_path / "deep", pictures, 12))
    assert np.array_equal(deep.images, shallow.images)


def test_the_user_has_the_last_word_and_16_is_what_older_runs_did(tmp_path):
    folder = write_folder(tmp_path / "deep", make_pictures(), 12)
    assert read(folder, bits=16).images.max() == 16
    with pytest.raises(DataError, match=r"values up to 4095, more than data\.bits = 10"):
        read(folder, bits=10)
    (tmp_path / "config.toml").write_text('[data]\nsource = "folder"\npath = "deep"\n')
    assert load_config(tmp_path / "config.toml").config.data.bits == "auto"
    assert load_config(tmp_path / "config.toml", stored=True).config.data.bits == 16


def test_the_cache_on_disk_remembers_the_depth(tmp_path, monkeypatch):
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    folder = write_folder(tmp_path / "deep", make_pictures(), 12)
    first, second = read(folder, cache="disk"), read(folder, cache="disk")
    assert first.bits == second.bits == 12
    assert np.array_equal(first.images, second.images)
    assert read(folder, cache="disk", bits=16).images.max() == 16


def test_arrays_of_12_bits_are_read_like_files(tmp_path):
    pictures, labels = make_pictures(), np.arange(24) % 2
    np.savez(tmp_path / "deep.npz", x=deepen(pictures, 12), y=labels)
    np.savez(tmp_path / "8.npz", x=pictures, y=labels)
    deep = load(Data(source="npz", path="deep.npz"), tmp_path, KEY)
    assert deep.bits == 12
    assert np.array_equal(deep.images, load(Data(source="npz", path="8.npz"), tmp_path, KEY).images)


def test_the_check_says_what_is_assumed_and_who_makes_the_others_dark(tmp_path):
    pictures = make_pictures(40)
    folder = write_folder(tmp_path / "deep", pictures, 12)
    done = CliRunner().invoke(app, ["data", "check", str(folder)])
    assert done.exit_code == 0
    assert "40 images have more than 8 bits, with values up to 4095: read as 12 bits" in done.output
    Image.fromarray(deepen(pictures[0], 16)).save(folder / "right" / "00.png")
    found = check(Data(source="folder", path=str(folder)), folder, KEY)
    assert found.depth.bits == 16
    assert any("1 of 40 deep images have values beyond 12 bits" in p.line() for p in found.problems)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs on the same pictures, of 8 bits and of 12 bits in 16-bit files."""
    folder = tmp_path_factory.mktemp("depth")
    runs = {}
    for bits in (8, 12):
        path = write_folder(folder / str(bits), make_pictures(), bits)
        config = {
            "data": {"source": "folder", "path": str(path)},
            "partition": {"sites": 2},
            "model": {"backbone": "small-cnn", "width": 4},
            "run": {"rounds": 1, "batch_size": 8},
        }
        runs[bits] = vitrail.run(config, folder / f"run-{bits}")
    return runs


def test_a_new_image_is_read_as_the_training_set_was(trained, tmp_path):
    dark = make_pictures()[1] // 8  # alone, its values would fit into 10 bits
    Image.fromarray(dark).save(tmp_path / "8.png")
    Image.fromarray(deepen(dark, 12)).save(tmp_path / "12.png")
    assert trained[12].card["bits"] == 12 and "bits" not in trained[8].card
    shallow = predict(trained[12], tmp_path / "8.png")
    deep = predict(trained[12], tmp_path / "12.png")
    assert np.array_equal(deep.probabilities, shallow.probabilities) and deep.note is None
    told = predict(trained[12], tmp_path / "12.png", overrides=["data.bits=16"])
    assert not np.array_equal(told.probabilities, deep.probabilities)


def test_a_run_that_saw_8_bits_only_says_how_it_reads_deeper_ones(trained, tmp_path):
    bright = make_pictures()[1]
    Image.fromarray(bright).save(tmp_path / "8.png")
    Image.fromarray(deepen(bright, 12)).save(tmp_path / "12.png")
    shallow, deep = (predict(trained[8], tmp_path / f"{bits}.png") for bits in (8, 12))
    assert np.array_equal(deep.probabilities, shallow.probabilities)
    assert "read as 12 bits" in deep.note and shallow.note is None


def test_the_export_says_how_deep_values_are_read(trained, tmp_path):
    _, card = export(trained[12], tmp_path / "model.safetensors")
    told = json.loads(card.read_text())["input"]
    assert told["bits"] == 12 and told["deep_values"] == "value / 4095"


def test_each_site_of_a_federation_decides_unless_all_have_agreed(tmp_path):
    agreed = {"classes": ["a", "b"], "image_size": 32, "channels": 1}
    own = {"source": "folder", "path": "x"}
    free = make_terms(vitrail.config.parse({"data": agreed}).config)
    assert "bits" not in free["data"]
    site = merge_terms(free, "north", {**own, "bits": 14}, {}, tmp_path, "site.toml")
    assert site.config.data.bits == 14
    assert merge_terms(free, "north", own, {}, tmp_path, "x").config.data.bits == "auto"
    fixed = make_terms(vitrail.config.parse({"data": {**agreed, "bits": 12}}).config)
    assert merge_terms(fixed, "north", own, {}, tmp_path, "x").config.data.bits == 12
    with pytest.raises(vitrail.errors.ConfigError, match="the federation fixes this key"):
        merge_terms(fixed, "north", {**own, "bits": 14}, {}, tmp_path, "site.toml")


def test_a_first_configuration_fixes_the_depth_that_was_found(tmp_path):
    folder = write_folder(tmp_path / "deep", make_pictures(), 12)
    done = CliRunner().invoke(app, ["init", str(folder), "--out", str(tmp_path / "first.toml")])
    assert done.exit_code == 0, done.output
    assert load_config(tmp_path / "first.toml").config.data.bits == 12
