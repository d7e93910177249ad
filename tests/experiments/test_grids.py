"""The grid of every results table: at each scale what it always was, and possible to play."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import experiments.tables  # noqa: F401  (registers them)
import pytest
from experiments.tables.heads_results import HeadsResults, digest_cell
from experiments.tables.heads_table import RESULTS

from vitrail.attack.leakage_grid import load_leakage
from vitrail.attack.run_attacks import make_attacks
from vitrail.config.extends import read_tree
from vitrail.engine.plan import make_plan
from vitrail.engine.resolve_config import resolve_config
from vitrail.errors import ConfigError
from vitrail.sweep import checkout
from vitrail.sweep.cells import load_grid, make_cells
from vitrail.sweep.checkout import require_experiments
from vitrail.sweep.reproduction import find_reproduction
from vitrail.sweep.tables import TABLES
from vitrail.sweep.tune import FROZEN, _digest_search, make_row_config, read_tune_config

GRIDS = require_experiments() / "grids"
DIGESTS = json.loads(Path(__file__).with_name("grids.json").read_text())
SCALES = [(name, scale) for name in DIGESTS for scale in DIGESTS[name]]
LEAKAGE = ("attacks", "attacks-gifd")


def section(scale):
    return None if scale == "small" else scale


def digest(tree):
    """Of everything a grid says; its lists make the cells in the order in which they stand."""
    lists = {key: value for key, value in tree.get("sweep", {}).items() if key != "with"}
    text = json.dumps([json.dumps(tree, sort_keys=True), json.dumps(lists)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "scale"), SCALES)
def test_a_grid_says_what_it_said_when_its_table_was_made(name, scale):
    assert digest(read_tree(GRIDS / f"{name}.toml", section(scale))) == DIGESTS[name][scale]


def test_every_grid_is_recorded_and_has_the_paper_scale():
    assert set(DIGESTS) == {path.stem for path in GRIDS.glob("*.toml")}
    assert all({"small", "paper"} <= set(scales) for scales in DIGESTS.values())


@pytest.mark.parametrize(("name", "scale"), [pair for pair in SCALES if pair[0] not in LEAKAGE])
def test_a_reproduction_is_a_grid_of_at_least_three_seeds_or_folds(name, scale):
    loaded = load_grid(GRIDS / f"{name}.toml", scale=section(scale))
    configs = [cell.loaded.config for cell in make_cells(loaded)]
    assert len({(config.run.seed, config.partition.fold) for config in configs}) >= 3
    assert loaded.sweep.get("table", "exam") in TABLES


@pytest.mark.parametrize("name", [name for name in DIGESTS if name not in LEAKAGE])
def test_every_cell_of_a_reproduction_can_be_planned(name):
    """A method that a grid gives a defense it has nothing for is noticed here, not after hours."""
    planned = set()
    for cell in make_cells(load_grid(GRIDS / f"{name}.toml")):
        config = cell.loaded.config
        kind = (config.method, config.model, config.release, config.run.rounds, config.aggregate)
        if repr(kind) not in planned:
            planned.add(repr(kind))
            loaded = replace(cell.loaded, config=resolve_config(cell.loaded))
            make_plan(loaded, tuple("abcdefghij"), 3)


def test_unknown_names_and_missing_images():
    with pytest.raises(ConfigError, match="baselines"):
        find_reproduction("baseline", "small", None)
    with pytest.raises(ConfigError, match="--data"):
        find_reproduction("baselines", "small", None)
    with pytest.raises(ConfigError, match="no scale 'hour'"):
        find_reproduction("baselines", "hour", None)


def test_a_scale_may_need_no_images(tmp_path):
    with pytest.raises(ConfigError, match="--data PATH"):
        find_reproduction("privacy", "small", None)
    table = find_reproduction("privacy", "paper", None)
    loaded = load_grid(table.file, table.overrides, table.base, table.scale)
    assert loaded.config.data.source == "embedded" and loaded.config.data.limit is None


def test_the_package_alone_says_where_the_grids_are(monkeypatch, tmp_path):
    monkeypatch.setattr(checkout, "_FOLDER", tmp_path / "experiments")
    with pytest.raises(ConfigError, match=r"not part of the installed package.*checkout"):
        find_reproduction("baselines", "small", None)


def test_a_grid_over_several_files_wants_their_folder(tmp_path):
    (tmp_path / "a.npz").touch()
    for data in (None, tmp_path / "a.npz"):
        with pytest.raises(ConfigError, match="--data FOLDER"):
            find_reproduction("audit-quiet", "small", data)
    table = find_reproduction("audit-quiet", "small", tmp_path)
    grid = make_cells(load_grid(table.file, table.overrides, table.base, table.scale))
    assert {cell.loaded.base for cell in grid} == {tmp_path.resolve()}
    assert {cell.loaded.config.data.path for cell in grid} > {None, "cifar10.npz"}


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", LEAKAGE)
def test_a_table_of_attacks_is_told_by_its_section_and_can_be_read_at_both_scales(
    name, scale, tmp_path
):
    table = find_reproduction(name, scale, tmp_path)
    plan = load_leakage(table.file, table.overrides, table.scale)
    assert table.is_leakage and not find_reproduction("truth", scale, None).is_leakage
    assert plan.loaded.config.data.path == str(tmp_path.resolve())
    assert next(iter(plan.rows)) == "none" and len(plan.rows) > 2
    for attack in make_attacks(plan.options.attacks, plan.options.attack):
        assert attack.summary
    with pytest.raises(ConfigError, match="--data"):
        find_reproduction(name, scale, None)


@pytest.mark.parametrize("name", ["fedxds-smiles", "audit-quiet", "price-real"])
def test_a_table_is_made_again_from_the_split_it_was_made_from(name, tmp_path):
    """Copies were not looked for then; three faces carry both labels."""
    (tmp_path / "images.parquet").touch()
    table = find_reproduction(name, "small", tmp_path)
    for cell in make_cells(load_grid(table.file, table.overrides, table.base, table.scale)):
        data = cell.loaded.config.data
        if data.source == "embedded":
            continue
        assert (data.duplicates, data.conflicts) == ("ignore", "allow")


def load_grids_of_results(name, folder):
    """The grids whose rows lie in one folder of results: the table's own, and those that go on."""
    files = [
        path
        for path in GRIDS.glob("*.toml")
        if read_tree(path).get("sweep", {}).get("results") == name
    ]
    tables = [find_reproduction(path.stem, "small", folder) for path in files]
    return [load_grid(table.file, table.overrides, table.base, table.scale) for table in tables]


@pytest.mark.parametrize(
    "name", ["heads", "heads-half", "heads-iid", "heads-personal", "pm-birds", "protopnet-birds"]
)
def test_committed_rows_belong_to_the_grid_that_is_reproduced(name, tmp_path):
    """What lies in `experiments/results` is gone on from, and not refused as another search."""
    folder = require_experiments() / "results" / name
    if not folder.is_dir():
        pytest.skip("no rows of this table were made")
    frozen = json.loads((folder / FROZEN).read_text())
    results = HeadsResults.open(folder / RESULTS)
    grids = load_grids_of_results(name, tmp_path)
    assert frozen
    for row in frozen:
        searched = [(grid, tune) for grid in grids if row in (tune := read_tune_config(grid)).rows]
        assert {_digest_search(grid, tune, row) for grid, tune in searched} == {
            frozen[row]["digest"]
        }
        setting = frozen[row]["trials"][frozen[row]["chosen"]]["setting"]
        digests = {
            digest_cell(make_row_config(cell.loaded, tune.rows[row], setting))
            for grid, tune in searched
            for cell in make_cells(grid)
        }
        lines = [line for line in results.lines if line.get("row") == row]
        assert {line["digest"] for line in lines} <= digests
