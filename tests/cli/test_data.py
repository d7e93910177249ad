import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.data.aviary.birds import derive_aviary_key, draw_birds
from vitrail.errors import ConfigError, DataError, RunError


def command(*words):
    return CliRunner().invoke(app, ["data", *map(str, words)])


@pytest.fixture
def images(tmp_path):
    birds = draw_birds(12, 3, derive_aviary_key(1), 32)
    for i, (pixels, label) in enumerate(zip(birds.images, birds.labels)):
        folder = tmp_path / "birds" / ("a", "b", "c")[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "birds"


def test_good_images_are_counted_and_the_exit_is_zero(images, tmp_path):
    sheet, file = tmp_path / "sheet.png", tmp_path / "check.json"
    done = command("check", images, "--contact-sheet", sheet, "--json", file)
    assert done.exit_code == 0, done.output
    assert "images: 12" in done.stdout and "32 x 32" in done.stdout
    found = json.loads(file.read_text())
    assert found["classes"] == {"a": 4, "b": 4, "c": 4}
    assert found["sizes"] == [[32, 32, 12]] and found["ok"] is True
    assert Image.open(sheet).size[1] > 3 * 96


def test_a_broken_image_is_listed_and_the_exit_is_one(images, tmp_path):
    (images / "a" / "bad.png").write_bytes(b"\x89PNG torn")
    done = command(
        "check", images, "--json", tmp_path / "c.json", "--contact-sheet", tmp_path / "s.png"
    )
    assert done.exit_code == 1
    assert "a/bad.png" in done.stdout
    found = json.loads((tmp_path / "c.json").read_text())
    assert found["ok"] is False and found["problem_counts"]["broken"] == 1
    assert (tmp_path / "s.png").exists()


def test_what_cannot_be_guessed_can_be_said(images, tmp_path):
    rows = [f"birds/{p.relative_to(images)},{p.parent.name}" for p in sorted(images.rglob("*.png"))]
    (tmp_path / "list.csv").write_text("\n".join(["path,kind of bird", *rows]))
    assert isinstance(command("check", tmp_path / "list.csv").exception, DataError)
    said = ["--set", "data.source=manifest", "--set", "data.label=kind of bird"]
    done = command("check", tmp_path / "list.csv", *said)
    assert done.exit_code == 0, done.output
    assert "classes: 3" in done.stdout


def test_bad_words_are_sentences(images, tmp_path):
    assert isinstance(command("check", tmp_path / "gone").exception, DataError)
    failed = command("check", images, "--set", "run.rounds=3")
    assert isinstance(failed.exception, ConfigError)
    (tmp_path / "there.json").write_text("mine")
    failed = command("check", images, "--json", tmp_path / "there.json")
    assert isinstance(failed.exception, RunError)
    assert (tmp_path / "there.json").read_text() == "mine"


def test_a_partition_is_drawn_and_printed(images, tmp_path):
    (tmp_path / "f.toml").write_text(
        '[data]\nsource = "folder"\npath = "birds"\n[partition]\nsites = 2\ntest_fraction = 0.25\n'
    )
    done = command("partition", tmp_path / "f.toml", "--out", tmp_path / "p.png")
    assert done.exit_code == 0, done.exception
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert lines["site"] == ["a", "b", "c", "train", "test"]
    sites = [list(map(int, lines[name])) for name in ("site-00", "site-01")]
    assert sum(site[3] + site[4] for site in sites) == 12
    assert all(sum(site[:3]) == site[3] for site in sites)
    assert Image.open(tmp_path / "p.png").format == "PNG"
    again = command("partition", tmp_path / "f.toml", "--out", tmp_path / "p.png")
    assert isinstance(again.exception, RunError)
