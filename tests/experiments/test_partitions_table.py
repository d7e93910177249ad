"""Draws of a partition: each told apart, and an interval over their differences."""

import copy

import numpy as np
import pytest
from experiments.tables.heads_results import HeadsResults, gather_answers
from experiments.tables.partitions_table import build_partitions_table, format_draws
from scipy import stats

from vitrail.config import parse

TREE = {
    "data": {"image_size": 16, "aviary": {"images": 60, "classes": 2}},
    "partition": {"sites": 2, "folds": 2, "validation": 0.25},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 1, "batch_size": 16, "local_reference": False},
    "sweep": {"table": "heads-partitions", "partition.fold": [0, 1], "seeds": [1, 2]},
    "tune": {
        "partitions": [{"run.seed": 11}],
        "rows": {
            "linear": {"method.name": "fedavg"},
            "subspaces": {"method": {"name": "fedgrasp", "personal_epochs": 0}},
        },
    },
}


@pytest.mark.slow
def test_every_draw_tests_every_image_once_and_is_compared_with_itself(tmp_path):
    text = build_partitions_table(parse(copy.deepcopy(TREE)), tmp_path, lambda *_: None)
    results = HeadsResults.open(tmp_path / "results.jsonl")
    names = {line["partition"] for line in results.lines}
    assert names == {"iid", "iid, draw 2"}
    for name in names:
        answers = gather_answers(results, name)["subspaces", "global"]
        assert [len(a.hits) for a in answers.values()] == [44]
    held = [
        {(line["fold"], tuple(line["rows"])) for line in results.lines if "rows" in line}
        & {(line["fold"], tuple(line["rows"])) for line in results.lines
           if "rows" in line and line["partition"] == name}
        for name in names
    ]  # fmt: skip
    assert not set.intersection(*held)  # two draws hold out different images
    assert text.count("| subspaces |") == 3


def test_the_interval_is_students():
    values = [-1.0, 0.5, 2.0, 1.5]
    low, high = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert format_draws(values)[1] == f"{np.mean(values):+.1f} [{low:+.1f}, {high:+.1f}]"
    assert format_draws([1.25]) == ["+1.2", "+1.2"]
