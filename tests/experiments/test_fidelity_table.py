"""A grid over defenses: readable names, one table, fidelity beside the undefended run."""

import numpy as np
import pytest
from experiments.tables.fidelity_table import (
    compute_fidelity_rows,
    format_rows,
    make_fidelity_table,
    read_energies,
)

from vitrail.config.load import parse
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import make_cells, name_release, run_sweep
from vitrail.sweep.compare_runs import compare_runs

RELEASES = [
    {},
    {"defenses": ["tip"], "energy": 0.5},
    {"defenses": ["prune"], "prune": {"share": 0.2}},
]


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """The grid and its folder, played."""
    model = {"backbone": "small-cnn", "width": 8}
    config = tiny_config(model=model, run={"rounds": 1})
    loaded = parse({**config, "sweep": {"seeds": [1, 2], "release": RELEASES}})
    assert [c.name for c in make_cells(loaded)][:3] == [
        "none_seed-1",
        "tip@0.5_seed-1",
        "prune_seed-1",
    ]
    folder = tmp_path_factory.mktemp("grid")
    return loaded, folder, run_sweep(loaded, folder, lambda *_: None)


@pytest.fixture(scope="module")
def grid(made):
    return made[2]


def test_a_grid_can_end_in_this_table(made):
    loaded, folder, _ = made
    text = make_fidelity_table(loaded, folder, lambda *_: None)
    assert "fedavg tip@0.5" in text and "| `none, next seed` |" in text
    assert (folder / "figures" / "fidelity.md").read_text().startswith(text[:100])
    assert list((folder / "figures").glob("*.png"))


def test_names_of_releases():
    assert name_release({}) == name_release({"defenses": []}) == "none"
    assert name_release({"defenses": ["a", "b"], "energy": 2.0}) == "a+b@2"


def test_defenses_are_rows_of_one_table(grid):
    (table,) = compare_runs(grid)
    assert [row.name for row in table.rows] == ["fedavg none", "fedavg tip@0.5", "fedavg prune"]
    assert all(row.n == 2 for row in table.rows)


def test_every_defense_stands_beside_the_undefended_run_of_its_seed(grid):
    rows = {row.name: row for row in compute_fidelity_rows(grid, images=6)}
    assert set(rows) == {"none", "tip@0.5", "prune", "none, next seed"}
    assert rows["tip@0.5"].energy == pytest.approx(0.5, rel=1e-3)
    assert rows["prune"].energy is None and rows["none"].energy is None
    assert np.mean(rows["none"].values["agreement"]) == 1.0
    for name in ("tip@0.5", "none, next seed"):
        assert rows[name].images == 12 and len(rows[name].values["mse"]) == 2
    text = format_rows(list(rows.values()))
    assert "| `tip@0.5` | 0.50 |" in text and len(text.splitlines()) == 6


def test_a_grid_without_defenses_has_no_such_table(grid):
    assert compute_fidelity_rows([path for path in grid if "none" in path.name]) == []
    assert len(read_energies(Run(next(p for p in grid if "tip" in p.name)))) == 4
