"""Every method has a preset that runs."""

import hashlib
import json
from pathlib import Path

import pytest

from vitrail.config import load
from vitrail.config.extends import read_tree
from vitrail.engine.run import start
from vitrail.errors import ConfigError
from vitrail.methods import METHODS
from vitrail.sweep.presets import FOLDER, find_preset

SMALL = (
    "run.rounds=3",
    "run.workers=1",
    "data.image_size=16",
    "data.aviary.images=60",
    "partition.sites=3",
    "model.width=8",
)
SHIPPED = [name for name in METHODS if METHODS[name].__module__.startswith("vitrail.")]


@pytest.mark.parametrize("name", SHIPPED)
def test_the_preset_of_a_method_runs(name, tmp_path):
    start(load(find_preset(name), SMALL), tmp_path / "run")
    assert (tmp_path / "run" / "server" / "finished").exists()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_method_says_what_it_does_and_where_it_comes_from(name):
    assert METHODS[name].summary and METHODS[name].paper


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match=r"no preset 'fedavgg'.*Did you mean 'fedavg'"):
        find_preset("fedavgg")


def test_a_preset_is_what_it_was_whatever_it_extends():
    stored = json.loads(Path(__file__).with_name("presets.json").read_text())
    trees = {path.stem: read_tree(path) for path in (FOLDER / "methods").glob("*.toml")}
    for name, tree in trees.items():
        text = json.dumps(tree, sort_keys=True)
        assert stored.pop(name) == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert not stored
