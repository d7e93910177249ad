"""The table of rules against hostile sites: what a run comes to, and how it is written."""

from __future__ import annotations

import json

import experiments.tables.poisoning as poisoning
import pytest
from experiments.tables.poisoned_run import PoisonedRun
from experiments.tables.poisoning_text import format_poisoning

from vitrail.config.load import parse

GRID = {
    "data": {"image_size": 16, "aviary": {"images": 200, "classes": 3}},
    "partition": {"sites": 5},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 1},
}


def result(rule, attack, accuracy, success=None, hostile=("a",), seed=1, alarmed=(), peaks=()):
    found = (accuracy, success, dict(alarmed), dict(peaks))
    return PoisonedRun("fedavg", rule, attack, hostile, "iid 0.5", seed, *found)


def test_cells_are_means_over_seeds():
    rows = [
        result("mean", "none", 0.8, hostile=()),
        result("mean", "backdoor", 0.5, 0.9),
        result("mean", "backdoor", 0.7, 0.7, seed=2),
        result("median", "none", 0.75, hostile=()),
    ]
    text = format_poisoning(rows)
    assert "| mean | 0.800 | 0.600 (0.80) |" in text
    assert "| median | 0.750 | - |" in text and "mean of 2 seeds" in text


def test_a_rule_fails_at_the_fewest_hostile_sites_that_cost_it_more_than_a_tenth():
    rows = [
        result("mean", "none", 0.80, hostile=()),
        result("mean", "sign-flip", 0.71),
        result("mean", "sign-flip", 0.69, hostile=("a", "b")),
        result("mean", "adaptive", 0.10),
        result("mean", "backdoor", 0.80, 0.4),
        result("mean", "backdoor", 0.80, 0.6, hostile=("a", "b")),
        result("median", "none", 0.79, hostile=()),
        result("median", "sign-flip", 0.79, hostile=("a", "b")),
        result("median", "adaptive", 0.71, hostile=("a", "b")),
        result("krum", "none", 0.50, hostile=()),
        result("krum", "adaptive", 0.50),
    ]
    text = format_poisoning(rows)
    assert "| mean | 2 (sign-flip) | 1 | 2 (backdoor) |" in text
    assert "| median | > 2 | > 2 | > 2 |" in text
    assert "| krum | 0 | 0 | > 1 |" in text


def test_alarms_are_scored_by_site_and_false_ones_by_run():
    rows = [
        result("mean", "sign-flip", 0.7, alarmed={"a": 3}, peaks={"a": 20.0, "b": 1.0, "c": 0.0}),
        result("mean", "sign-flip", 0.7, seed=2, peaks={"a": 0.5, "b": 1.0, "c": 0.0}),
        result("mean", "none", 0.8, hostile=(), alarmed={"b": 4, "c": 9}, peaks={"a": 0.0}),
        result("mean", "none", 0.8, hostile=(), seed=2, peaks={"a": 0.0}),
    ]
    text = format_poisoning(rows)
    # of 2 x 4 pairs of a hostile and an honest site 6 are in order
    assert "| sign-flip | 1 | 0.750 | 1 of 2 | 3 (at most 3) | 0 of 4 |" in text
    assert "| mean | iid 0.5 | 0.800 | 1 of 2 | 1.3 to 98.7 % |" in text


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
