"""The exam of a federation's models, and the tables made of their answers."""

import numpy as np
import pytest
import torch
from experiments.tables.exam import (
    CENTRAL,
    GLOBAL,
    LOCAL,
    PERSONAL,
    ModelPredictions,
    RunPredictions,
    collect_predictions,
)
from experiments.tables.exam_table import (
    PooledPredictions,
    group_predictions,
    list_mark_metrics,
    list_metrics,
    pool_predictions,
)
from experiments.tables.markdown import format_interval, to_markdown

from vitrail.config import parse
from vitrail.data.bias.marks import stamp
from vitrail.engine.federation import assemble
from vitrail.errors import ConfigError
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import make_cells, run_sweep
from vitrail.sweep.tables import TABLES

MARK = {"kind": "patch", "sites": [1], "classes": [2], "size": 0.4}


@pytest.fixture(scope="module")
def grid(tiny_config):
    tree = tiny_config(
        data={"aviary": {"images": 90}},
        partition={"kind": "iid", "sites": 2, "folds": 3},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "local_epochs": 1},
    )
    methods = ["centralized", "myth-gm", "myth-pm"]
    quick = {"method": {"warm_epochs": 1, "last_epochs": 1}}
    extra = {name: dict(quick) for name in methods}
    extra["centralized"] = {"method": {"model": "protopnet"}}
    return parse(
        {**tree, "sweep": {"table": "exam", "bias": [[], [MARK]], "seeds": [5], "methods": methods,
                           "with": extra}}
    )  # fmt: skip


@pytest.fixture(scope="module")
def sat(grid, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exam")
    found = make_cells(grid)
    run_sweep(grid, folder, lambda *_: None)
    return folder, found, collect_predictions(found, folder)


def test_every_model_answers_the_pooled_test_images_of_all_sites(sat):
    folder, grid, found = sat
    kinds = [[(sheet.model, sheet.site) for sheet in s.sheets] for s in found[:3]]
    assert kinds[0] == [(CENTRAL, None)]
    assert kinds[1] == [(GLOBAL, None), (LOCAL, "site-00"), (LOCAL, "site-01")]
    assert sorted(kinds[2]) == sorted(
        (kind, site) for kind in (PERSONAL, LOCAL) for site in ("site-00", "site-01")
    )
    for cell, sitting in zip(grid, found):
        clean = cell.loaded.config.model_copy(update={"bias": ()})
        federation = assemble(parse(clean.model_dump(mode="json", exclude_none=True)))
        rows = np.sort(np.concatenate([s.test for s in federation.sites.values()]))
        assert sitting.labels == federation.images.labels[rows].tolist()
        assert sitting.label == 2 and sitting.origin == (
            "site-01" if cell.loaded.config.bias else None
        )
        run = Run(folder / cell.name)
        pixels = np.array(federation.images.images[rows])
        key = derive_server_key(run.config.run.seed).at("exam")
        drawn = stamp(pixels, parse({"bias": MARK}).config.bias[0], key, rows)[0]
        assert not np.array_equal(pixels, drawn)
        for sheet in sitting.sheets:
            which = {LOCAL: "local"}.get(sheet.model)
            model = run.model("pooled" if sheet.model == CENTRAL else sheet.site, which)
            for given, images in ((sheet.plain, pixels), (sheet.drawn, drawn)):
                with torch.no_grad():
                    logits = model(torch.from_numpy(images).permute(0, 3, 1, 2))
                assert given == logits.argmax(1).tolist()  # pixels to classes, the long way


def test_answers_are_kept_and_read_back(sat, monkeypatch):
    from experiments.tables import exam

    folder, grid, found = sat
    monkeypatch.setattr(exam, "load_test_images", lambda *_: pytest.fail("asked again"))
    assert collect_predictions(grid, folder) == found


def test_the_table_says_what_was_asked(sat, grid):
    folder, *_ = sat
    told = TABLES["exam"](grid, folder, lambda *_: None)
    assert "embedded, bias: none (30 test images, 1 folds or seeds)" in told
    for row in ("CM", "GM", "LM, biased site", "LM, others", "PM, biased site", "PM, others"):
        assert f"| {row} |" in told
    with pytest.raises(ConfigError, match="Did you mean 'exam'"):
        TABLES["exams"]


def made(sheet, labels, patients, label=1, carries=None, origin="a"):
    return RunPredictions(
        "x", 1, 0, ["no", "yes"], "emoji", origin, label, labels, patients, carries, [sheet]
    )


def values(asked, count):
    return {name: float(f(np.ones((1, count)))[0]) for name, f in asked}


def test_two_classes_by_hand():
    """4 positives of which 2 are found, 3 with the mark; 2 negatives of which 1 is cleared."""
    sheet = ModelPredictions(PERSONAL, "a", [1, 1, 0, 0, 0, 1], [1, 1, 1, 0, 1, 1])
    answers = pool_predictions([(made(sheet, [1, 1, 1, 1, 0, 0], list("pqrstu")), sheet)])
    found = values(list_metrics(answers, two=True), 6)
    assert found["sensitivity, unbiased"] == 0.5 and found["sensitivity, biased"] == 0.75
    assert found["specificity"] == 0.5
    assert found["balanced accuracy, unbiased"] == 0.5
    assert found["balanced accuracy, biased"] == pytest.approx(0.625)  # negatives carry no mark
    drawn = values(list_mark_metrics(answers, two=True), 6)
    assert drawn["other classes, absent"] == 0.5 and drawn["other classes, drawn"] == 0.0


def test_a_device_is_carried_and_not_drawn():
    sheet = ModelPredictions(GLOBAL, None, [1, 1, 0, 0, 0], None)
    carries = [True, True, False, False, True]
    answers = pool_predictions(
        [(made(sheet, [1, 1, 1, 1, 0], list("ppqqr"), carries=carries), sheet)]
    )
    found = values(list_metrics(answers, two=True), 5)
    assert found["sensitivity, biased"] == 1.0 and found["sensitivity, unbiased"] == 0.0
    assert found["specificity"] == 1.0  # a negative with the finding is a negative


def test_many_classes_and_what_the_mark_does_to_others():
    sheet = ModelPredictions(GLOBAL, None, [0, 1, 2, 2], [0, 0, 0, 2])
    answers = pool_predictions([(made(sheet, [0, 1, 2, 1], list("pqrs"), label=0), sheet)])
    found = values([*list_metrics(answers, two=False), *list_mark_metrics(answers, two=False)], 4)
    assert found["all classes, unbiased"] == 0.75 and found["biased class, biased"] == 1.0
    assert found["others taken for it, absent"] == 0.0
    assert found["others taken for it, drawn"] == pytest.approx(2 / 3)


def test_sheets_of_the_biased_site_stand_apart_only_where_there_is_one():
    sheets = [ModelPredictions(LOCAL, "a", [0], [0]), ModelPredictions(LOCAL, "b", [1], [1])]
    base = made(sheets[0], [0], ["p"])
    biased = RunPredictions(**{**vars(base), "sheets": sheets})
    unbiased = RunPredictions(**{**vars(base), "sheets": sheets, "origin": None})
    assert list(group_predictions([biased])) == ["LM, biased site", "LM, others"]
    assert list(group_predictions([unbiased])) == ["LM"]
    mixed = pool_predictions(
        [(biased, sheets[0]), (biased, ModelPredictions(LOCAL, "b", [1], None))]
    )
    assert isinstance(mixed, PooledPredictions) and mixed.marked is None


def test_cells_of_text():
    assert format_interval(None, None, None) == "-" and format_interval(0.5, None, 1.0) == "0.500"
    assert format_interval(0.5, 0.4, 0.61) == "0.500 [0.40, 0.61]"
    assert to_markdown(["a", "b"], [["1", "2"]]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 |",
    ]
