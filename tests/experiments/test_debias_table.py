"""The table of remedies: recalls, means over seeds, and a grid that is not played twice."""

import json

import numpy as np
import pytest
from experiments.tables.debias_table import (
    BEFORE,
    CLEAN,
    RemedyOutcome,
    compute_recalls,
    format_outcomes,
    measure_remedies,
    read_outcomes,
)

from vitrail.config import parse
from vitrail.sweep.cells import make_cells


def test_recall_by_class():
    said, labels = np.array([0, 1, 1, 2, 0]), np.array([0, 1, 0, 2, 0])
    assert compute_recalls(said, labels, 4)[:3] == pytest.approx([2 / 3, 1.0, 1.0])
    assert np.isnan(compute_recalls(said, labels, 4)[3])


def test_the_change_is_taken_seed_by_seed():
    found = [
        RemedyOutcome(BEFORE, 1, 0.2, 0.5), RemedyOutcome(BEFORE, 2, 0.6, 0.5),
        RemedyOutcome("weigh", 1, 0.4, 0.5), RemedyOutcome("weigh", 2, 0.8, 0.5),
        RemedyOutcome(CLEAN, 1, 0.9, 0.5),
    ]  # fmt: skip
    lines = [line.strip("| ").split(" | ") for line in format_outcomes(found).splitlines()]
    assert ["weigh", "0.600 ± 0.283", "+0.200 ± 0.000", "0.500 ± 0.000", "2"] in lines
    assert ["mask", "-", "-", "-", "0"] in lines


def test_a_federation_is_played_before_and_after(tmp_path, tiny_config):
    changes = {
        "data": {"image_size": 16, "aviary": {"images": 160, "classes": 2}},
        "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        "model": {"prototypes": {"per_class": 2, "depth": 8}},
        "partition": {"kind": "iid", "sites": 2, "test_fraction": 0.2},
        "run": {"rounds": 1, "local_epochs": 1},
        "bias": [{"kind": "patch", "size": 0.5}],
        "sweep": {"seeds": [1]},
    }
    (cell,) = make_cells(parse(tiny_config(**changes)))
    told = []
    assert read_outcomes(tmp_path, cell) is None
    found = measure_remedies(cell, tmp_path, told.append)
    assert found[0].remedy == BEFORE and found[-1].remedy == CLEAN
    assert [one.split(": ")[1] for one in told][:1] == ["before"]
    audit = json.loads((tmp_path / cell.name / "audit.json").read_text())
    biased = any(c["verdict"] == "biased" for s in audit["sites"] for c in s["classes"])
    assert {"weigh", "leave-out"} <= {one.remedy for one in found} or not biased
    again = read_outcomes(tmp_path, cell)
    assert [one.remedy for one in again] == [one.remedy for one in found]
