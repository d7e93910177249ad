"""Runs at the edge of what makes sense."""

import math

import numpy as np
import pytest
import torch

import vitrail


@pytest.fixture
def by_column(tmp_path, tiny_config):
    """A function: a configuration over (label, site, split) rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    def make(rows, **changes):
        draw = np.random.Generator(np.random.PCG64(1))
        table = []
        for i, (label, site, split) in enumerate(rows):
            pixels = draw.integers(0, 255, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / f"{i}.png")
            table.append({"path": f"{i}.png", "label": label, "hospital": site, "split": split})
        pq.write_table(pa.Table.from_pylist(table), tmp_path / "list.parquet")
        config = tiny_config(**changes)
        config["data"] = {
            "source": "manifest",
            "path": str(tmp_path / "list.parquet"),
            "image_size": 16,
            "split": "split",
            "site": "hospital",
        }
        config["partition"] = {"kind": "column", "column": "hospital", "minimum": 1}
        return config

    return make


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedbn"])
def test_one_image_no_test_images_and_two_classes(by_column, tmp_path, name, ending):
    rows = [("healthy", "one", "train")]
    rows += [(label, "untested", "train") for label in ("healthy", "ill")] * 3
    rows += [
        (label, "whole", split) for label in ("healthy", "ill") for split in ("train", "test")
    ] * 4
    config = by_column(rows, method={"name": name}, run={"rounds": 2, "batch_size": 4})
    run = vitrail.run(config, tmp_path / "run")
    found = {(row["round"], row["site"]): row for row in run.rows()}
    assert found[1, "one"]["examples"] == 1 and found[1, "one"]["steps"] == 1
    for site in ("one", "untested"):
        assert found[2, site]["test_examples"] == 0 and found[2, site]["accuracy"] is None
    whole = found[2, "whole"]
    assert whole["test_examples"] == 8
    both = (whole["sensitivity"] + whole["specificity"]) / 2
    assert both == pytest.approx(whole["balanced_accuracy"]) and 0 <= whole["auroc"] <= 1
    assert all(bool(torch.isfinite(t).all()) for t in ending(run.path).values())
    assert [r for r, _ in run.curve()] == [0, 1, 2]
    site = "whole" if name == "fedbn" else None
    shares = run.model(site).probabilities(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))
    assert shares.shape == (1, 2) and float(shares.sum()) == pytest.approx(1)


def test_batches_of_one(tiny, ending):
    run = tiny(run={"batch_size": 1, "rounds": 1})
    rows = [r for r in run.rows() if r["round"] == 1 and r["site"] != "*"]
    assert all(r["steps"] == r["examples"] for r in rows)
    assert all(bool(torch.isfinite(t).all()) for t in ending(run.path).values())


def test_a_last_batch_of_one_joins_the_one_before(tiny):
    run = tiny(run={"batch_size": 3, "rounds": 1})
    for row in run.rows():
        if row["round"] == 1 and row["site"] != "*":
            n = row["examples"]
            assert row["steps"] == math.ceil(n / 3) - (n % 3 == 1 and n > 3)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "local"])
def test_no_rounds_evaluate_the_first_model(tiny, name):
    run = tiny(method={"name": name}, run={"rounds": 0})
    assert run.finished and run.round == 0
    rows = run.rows()
    assert {row["round"] for row in rows} == {0} and all(
        row["accuracy"] is not None for row in rows
    )
    again = vitrail.resume(run.path)
    assert again.rows() == rows


def test_a_rate_that_is_too_high_is_refused_by_the_guard(tiny, ending):
    run = tiny("high", optimizer={"lr": 1e6}, run={"rounds": 2})
    start = tiny("start", run={"rounds": 0})
    log = (run.path / "log.txt").read_text()
    assert "refused" in log and "round 1: void" in log
    after, before = ending(run.path), ending(start.path)
    assert all(torch.equal(after[n], before[n]) for n in before)
