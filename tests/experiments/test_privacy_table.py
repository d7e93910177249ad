"""Accuracy against epsilon: the table of a tiny grid, its figure, and rows without a guarantee."""

import pytest
from experiments.tables.privacy_table import PrivacyRow, collect_lines, make_privacy_table

from vitrail.config.load import parse
from vitrail.sweep.cells import make_cells, name_release


def grid(tiny_config):
    config = tiny_config(model={"backbone": "small-cnn", "norm": "group"}, run={"rounds": 1})
    budgets = [
        {"defenses": ["client-dp"], "client-dp": {"epsilon": e, "delta": 1e-3}} for e in (2.0, 8.0)
    ]
    config["sweep"] = {"seeds": [1, 2], "release": [{}, *budgets]}
    return parse(config)


def test_cells_of_different_budgets_have_different_names(tiny_config):
    names = [cell.name for cell in make_cells(grid(tiny_config))]
    assert len(set(names)) == len(names) == 6
    assert name_release({"defenses": ["tip"]}) == "tip"
    assert name_release({"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 8.0}}) == "dp-sgd-eps8"


@pytest.mark.slow
def test_a_grid_ends_in_a_table_and_figures(tmp_path, tiny_config):
    text = make_privacy_table(grid(tiny_config), tmp_path, lambda *_: None)
    lines = text.splitlines()
    assert len(lines) == 2 + 3
    assert "| - |" in lines[2] and "`none`" in lines[2]
    spent = [float(line.split("|")[4]) for line in lines[3:]]
    assert spent == [pytest.approx(2.0, rel=0.02), pytest.approx(8.0, rel=0.02)]
    assert all("a whole site" in line for line in lines[3:])
    assert (tmp_path / "figures" / "accuracy-by-epsilon.png").stat().st_size > 1000
    assert (tmp_path / "figures" / "privacy.md").read_text().strip() == text


def test_a_line_goes_through_the_budgets_of_one_mechanism():
    def row(epsilon, *accuracy):
        name = "none" if epsilon is None else f"dp-sgd-eps{epsilon:g}"
        return PrivacyRow("fedavg", None, name, epsilon, "one image", accuracy, ())

    rows = [row(8.0, 0.5, 0.6), row(None, 0.9, 0.9), row(2.0, 0.3, float("nan"))]
    found = collect_lines(rows, "accuracy")
    assert found == {"fedavg, dp-sgd": {0: [(2, 0.3), (8, 0.5)], 1: [(8, 0.6)]}}
    assert collect_lines(rows, "ssim") == {}
