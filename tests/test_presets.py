"""Every method has a preset that runs, and every reproduction a small and a paper scale."""

from dataclasses import replace

import pytest

import vitrail.cli.sweep  # noqa: F401  (it knows every table)
from vitrail.attack.assault import chosen_attacks
from vitrail.attack.leakage import load_leakage
from vitrail.config import load
from vitrail.engine.plan import make_plan
from vitrail.engine.run import start
from vitrail.engine.settle import settled
from vitrail.engine.sweep import cells, load_grid
from vitrail.errors import ConfigError
from vitrail.methods import METHODS
from vitrail.report.presets import FOLDER, preset, reproduction
from vitrail.report.tables import TABLES

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
    start(load(preset(name), SMALL), tmp_path / "run")
    assert (tmp_path / "run" / "server" / "finished").exists()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_method_says_what_it_does_and_where_it_comes_from(name):
    assert METHODS[name].summary and METHODS[name].paper


@pytest.mark.parametrize("file", sorted(p.name for p in (FOLDER / "reproduce").glob("*.toml")))
def test_a_reproduction_is_a_grid_of_at_least_three_seeds_or_folds(file):
    loaded = load_grid(FOLDER / "reproduce" / file)
    found = [cell.loaded.config for cell in cells(loaded)]
    assert len({(config.run.seed, config.partition.fold) for config in found}) >= 3
    assert loaded.sweep.get("table", "exam") in TABLES
    name, scale, _ = file.rsplit(".", 2)
    assert scale in ("hour", "small", "paper")
    for other in ("small", "paper"):
        assert (FOLDER / "reproduce" / f"{name}.{other}.toml").exists()


@pytest.mark.parametrize(
    "file", sorted(p.name for p in (FOLDER / "reproduce").glob("*.small.toml"))
)
def test_every_cell_of_a_reproduction_can_be_planned(file):
    """A method that a grid gives a defense it has nothing for is noticed here, not after hours."""
    planned = set()
    for cell in cells(load_grid(FOLDER / "reproduce" / file)):
        config = cell.loaded.config
        kind = (config.method, config.model, config.release, config.run.rounds, config.aggregate)
        if repr(kind) not in planned:
            planned.add(repr(kind))
            loaded = replace(cell.loaded, config=settled(cell.loaded))
            make_plan(loaded, tuple("abcdefghij"), 3)


def test_unknown_names_and_missing_images():
    with pytest.raises(ConfigError, match="baselines"):
        reproduction("baseline", "small", None)
    with pytest.raises(ConfigError, match="--data"):
        reproduction("baselines", "small", None)
    with pytest.raises(ConfigError, match="no scale 'hour'"):
        reproduction("baselines", "hour", None)


def test_a_grid_over_several_files_wants_their_folder(tmp_path):
    (tmp_path / "a.npz").touch()
    for data in (None, tmp_path / "a.npz"):
        with pytest.raises(ConfigError, match="--data FOLDER"):
            reproduction("audit-quiet", "small", data)
    file, overrides = reproduction("audit-quiet", "small", tmp_path)
    grid = cells(load_grid(file, overrides, tmp_path))
    assert overrides == () and {cell.loaded.base for cell in grid} == {tmp_path.resolve()}
    assert {cell.loaded.config.data.path for cell in grid} > {None, "cifar10.npz"}


@pytest.mark.parametrize("file", sorted(p.name for p in (FOLDER / "leakage").glob("*.toml")))
def test_a_table_of_attacks_can_be_read_at_both_scales(file):
    plan = load_leakage(FOLDER / "leakage" / file, ("data.path='x'",))
    assert next(iter(plan.rows)) == "none" and len(plan.rows) > 2
    for attack in chosen_attacks(plan.options.attacks, plan.options.attack):
        assert attack.summary
    name, scale, _ = file.rsplit(".", 2)
    other = {"small": "paper", "paper": "small"}[scale]
    assert (FOLDER / "leakage" / f"{name}.{other}.toml").exists()
    with pytest.raises(ConfigError, match="--data"):
        reproduction(name, scale, None)
