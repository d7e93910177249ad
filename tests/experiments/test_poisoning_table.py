"""The table of rules against hostile sites: what a run comes to, and how it is written."""

from __future__ import annotations

import json

import experiments.tables.poisoning as poisoning
import pytest

from vitrail.config.load import parse

GRID = {
    "data": {"image_size": 16, "aviary": {"images": 200, "classes": 3}},
    "partition": {"sites": 5},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 1},
}


def result(rule, attack, accuracy, success=None, hostile=("a",), seed=1):
    return poisoning.PoisonedRun(rule, attack, hostile, "iid 0.5", seed, accuracy, success, {})


def test_cells_are_means_over_seeds():
    rows = [
        result("mean", "none", 0.8, hostile=()),
        result("mean", "backdoor", 0.5, 0.9),
        result("mean", "backdoor", 0.7, 0.7, seed=2),
        result("median", "none", 0.75, hostile=()),
    ]
    text = poisoning.format_results(rows)
    assert "| mean | 0.800 | 0.600 (0.80) |" in text
    assert "| median | 0.750 | - |" in text and "mean of 2 seeds" in text


@pytest.mark.slow
def test_a_grid_plays_measures_and_resumes(tmp_path, monkeypatch):
    tree = {**GRID, "sweep": {"table": "poisoning", "seeds": [1]}}
    tree["sweep"]["hostile"] = [[], [{"attack": "backdoor", "share": 1.0, "strength": 3.0}]]
    grid = parse(tree, tmp_path, "grid.toml")
    monkeypatch.setattr(poisoning, "load_federation", _with_test_images(poisoning.load_federation))
    text = poisoning.build_table(grid, tmp_path / "out", lambda *_: None)
    assert "backdoor" in text
    rows = json.loads((tmp_path / "out" / "poisoning.json").read_text())
    assert [row["attack"] for row in rows] == ["none", "backdoor"]
    assert rows[0]["success"] is None and 0 <= rows[1]["success"] <= 1
    assert poisoning.build_table(grid, tmp_path / "out", lambda *_: None) == text


def _with_test_images(load):
    """Embedded birds have no test images of the server's own: the last site's stand for them."""
    from dataclasses import replace

    def loaded(config):
        federation = load(config)
        return replace(federation, server_test=list(federation.sites.values())[-1].test)

    return loaded
