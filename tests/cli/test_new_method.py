import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.errors import ConfigError, RunError
from vitrail.plugin_templates import KINDS, write_template
from vitrail.report.plugin_sections import SECTIONS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One thing of every kind, written by the command into one folder."""
    path = tmp_path_factory.mktemp("own") / "new"
    for kind in KINDS:
        words = ["new-method", f"own-{kind}", "--folder", str(path), "--kind", kind]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.exception
    yield path
    SECTIONS._items.pop("own-section", None)  # else it stands in the reports of other tests


@pytest.mark.very_slow
def test_the_written_tests_pass_in_a_process_of_their_own(folder):
    assert len(list(folder.glob("*.py"))) == 2 * len(KINDS)
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "."]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout
    for kind in KINDS:
        assert f"test_own_{kind.replace('-', '_')}.py" in ran.stdout


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_written_file_runs(kind, folder, tmp_path):
    small = ("run.rounds=1", "data.aviary.images=60", "data.image_size=24", "model.width=4")
    file = folder / f"own_{kind.replace('-', '_')}.toml"
    run = vitrail.run(file, tmp_path / "run", overrides=small)
    assert run.finished
    assert str(file.with_suffix(".py")) in run.config.run.plugins


def test_the_method_is_short_and_carries_its_names(tmp_path):
    module, _, config = write_template("warm_sun", tmp_path)
    text = module.read_text()
    assert len(text.splitlines()) <= 48
    assert 'METHODS.register("warm_sun")' in text and "class WarmSun(Method)" in text
    assert 'plugins = ["warm_sun.py"]' in config.read_text()


@pytest.mark.parametrize("name", ["", "1st", "-", "a b", "class", "../evil", "é", "a.py", "_"])
def test_names_that_are_no_python_files(name, tmp_path):
    with pytest.raises(ConfigError):
        write_template(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_better_name_is_proposed(tmp_path):
    with pytest.raises(ConfigError, match="my_method"):
        write_template("my method", tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("method", "fedavg"),
        ("backbone", "small_cnn"),
        ("backbone", "small-cnn"),
        ("defense", "none"),
        ("rule", "trimmed_mean"),
        ("server-method", "scaffold"),
        ("source", "embedded"),
    ],
)
def test_names_that_exist(kind, name, tmp_path):
    with pytest.raises(ConfigError, match="already has"):
        write_template(name, tmp_path, kind)


def test_unknown_kinds_and_existing_files(tmp_path):
    with pytest.raises(ConfigError, match="method"):
        write_template("mine", tmp_path, "methods")
    (tmp_path / "mine.toml").write_text("precious")
    with pytest.raises(RunError, match="exists"):
        write_template("mine", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.toml"]
    assert (tmp_path / "mine.toml").read_text() == "precious"
