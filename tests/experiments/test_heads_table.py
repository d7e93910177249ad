"""The heads table on a small federation: every image once, paired rows, resumed from its lines."""

import json

import numpy as np
import pytest
from experiments.tables import heads_table
from experiments.tables.heads_results import HeadsResults, gather_answers
from experiments.tables.heads_text import compare_keys

from vitrail.config import parse
from vitrail.engine.federation import load_federation

TREE = {
    "data": {"image_size": 16, "aviary": {"images": 60, "classes": 2}},
    "partition": {"sites": 2, "folds": 2, "validation": 0.25},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 1, "batch_size": 16, "local_reference": False},
    "sweep": {"table": "heads", "partition.fold": [0, 1]},
    "tune": {
        "settings": 2,
        "finalists": 1,
        "partitions": [{"run.seed": 11}],
        "rows": {
            "linear": {"method.name": "fedavg"},
            "subspaces": {"method": {"name": "fedgrasp", "personal_epochs": 0}},
            "pooled": {"method.name": "centralized"},
            "alone": {"method.name": "local"},
        },
        "search": {"linear": {"optimizer.lr": {"low": 0.01, "high": 1.0}}},
    },
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    text = heads_table.build_heads_table(parse(TREE), folder, lambda *_: None)
    return folder, text


@pytest.mark.slow
def test_every_image_outside_the_validation_share_is_answered_once_by_every_row(table):
    folder, text = table
    answered = gather_answers(HeadsResults.open(folder / "results.jsonl"), "iid")
    wanted = {(r, v) for r in ("linear", "subspaces") for v in ("global", "prior", "head")}
    wanted |= {("prior only", "own"), ("pooled", "own"), ("alone", "own")}
    assert set(answered) == wanted
    images = [line for line in map(json.loads, (folder / "results.jsonl").open()) if "rows" in line]
    rows = np.concatenate([line["rows"] for line in images])
    assert len(rows) == len(set(rows.tolist())) == 44
    labels = load_federation(parse(TREE)).images.labels
    for line in images:
        assert line["labels"] == labels[line["rows"]].tolist()
    for by_data in answered.values():
        assert [len(found.hits) for found in by_data.values()] == [44]
    found = compare_keys(answered, ("subspaces", "global"), ("linear", "global"))
    assert found.count == 44
    for name in ("linear", "subspaces", "pooled", "alone", "prior only"):
        assert f"| {name} |" in text
    assert "**chosen**" in text and "level within 3" in text


@pytest.mark.slow
def test_rows_that_are_there_are_not_played_again(table):
    folder, text = table
    before = (folder / "results.jsonl").read_text()
    played = []
    again = heads_table.build_heads_table(parse(TREE), folder, lambda *a: played.append(a))
    assert again == text and not played
    assert (folder / "results.jsonl").read_text() == before
