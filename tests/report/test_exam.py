"""The exam of a federation's models, and the tables made of their answers."""

import numpy as np
import pytest
import torch

from vitrail.config import parse
from vitrail.data.marks import stamp
from vitrail.engine.federation import assemble
from vitrail.engine.loaded import Run
from vitrail.engine.sweep import cells, run_sweep
from vitrail.errors import ConfigError
from vitrail.report.exam import CENTRAL, GLOBAL, LOCAL, PERSONAL, Sheet, Sitting, sittings
from vitrail.report.exam_table import Answers, figures, gather, groups, marks
from vitrail.report.tables import TABLES, markdown, ranged
from vitrail.rng import server

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
    found = cells(grid)
    run_sweep(grid, folder, lambda *_: None)
    return folder, found, sittings(found, folder)


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
        key = server(run.config.run.seed).at("exam")
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
    from vitrail.report import exam

    folder, grid, found = sat
    monkeypatch.setattr(exam, "questions", lambda *_: pytest.fail("asked again"))
    assert sittings(grid, folder) == found


def test_the_table_says_what_was_asked(sat, grid):
    folder, *_ = sat
    told = TABLES["exam"](grid, folder, lambda *_: None)
    assert "embedded, bias: none (30 test images, 1 folds or seeds)" in told
    for row in ("CM", "GM", "LM, biased site", "LM, others", "PM, biased site", "PM, others"):
        assert f"| {row} |" in told
    with pytest.raises(ConfigError, match="Did you mean 'exam'"):
        TABLES["exams"]


def made(sheet, labels, patients, label=1, carries=None, origin="a"):
    return Sitting(
        "x", 1, 0, ["no", "yes"], "emoji", origin, label, labels, patients, carries, [sheet]
    )


def values(asked, count):
    return {name: float(f(np.ones((1, count)))[0]) for name, f in asked}


def test_two_classes_by_hand():
    """4 positives of which 2 are found, 3 with the mark; 2 negatives of which 1 is cleared."""
    sheet = Sheet(PERSONAL, "a", [1, 1, 0, 0, 0, 1], [1, 1, 1, 0, 1, 1])
    answers = gather([(made(sheet, [1, 1, 1, 1, 0, 0], list("pqrstu")), sheet)])
    found = values(figures(answers, two=True), 6)
    assert found["sensitivity, unbiased"] == 0.5 and found["sensitivity, biased"] == 0.75
    assert found["specificity"] == 0.5
    assert found["balanced accuracy, unbiased"] == 0.5
    assert found["balanced accuracy, biased"] == pytest.approx(0.625)  # negatives carry no mark
    drawn = values(marks(answers, two=True), 6)
    assert drawn["other classes, absent"] == 0.5 and drawn["other classes, drawn"] == 0.0


def test_a_device_is_carried_and_not_drawn():
    sheet = Sheet(GLOBAL, None, [1, 1, 0, 0, 0], None)
    carries = [True, True, False, False, True]
    answers = gather([(made(sheet, [1, 1, 1, 1, 0], list("ppqqr"), carries=carries), sheet)])
    found = values(figures(answers, two=True), 5)
    assert found["sensitivity, biased"] == 1.0 and found["sensitivity, unbiased"] == 0.0
    assert found["specificity"] == 1.0  # a negative with the finding is a negative


def test_many_classes_and_what_the_mark_does_to_others():
    sheet = Sheet(GLOBAL, None, [0, 1, 2, 2], [0, 0, 0, 2])
    answers = gather([(made(sheet, [0, 1, 2, 1], list("pqrs"), label=0), sheet)])
    found = values([*figures(answers, two=False), *marks(answers, two=False)], 4)
    assert found["all classes, unbiased"] == 0.75 and found["biased class, biased"] == 1.0
    assert found["others taken for it, absent"] == 0.0
    assert found["others taken for it, drawn"] == pytest.approx(2 / 3)


def test_sheets_of_the_biased_site_stand_apart_only_where_there_is_one():
    sheets = [Sheet(LOCAL, "a", [0], [0]), Sheet(LOCAL, "b", [1], [1])]
    base = made(sheets[0], [0], ["p"])
    biased = Sitting(**{**vars(base), "sheets": sheets})
    unbiased = Sitting(**{**vars(base), "sheets": sheets, "origin": None})
    assert list(groups([biased])) == ["LM, biased site", "LM, others"]
    assert list(groups([unbiased])) == ["LM"]
    mixed = gather([(biased, sheets[0]), (biased, Sheet(LOCAL, "b", [1], None))])
    assert isinstance(mixed, Answers) and mixed.marked is None


def test_cells_of_text():
    assert ranged(None, None, None) == "-" and ranged(0.5, None, 1.0) == "0.500"
    assert ranged(0.5, 0.4, 0.61) == "0.500 [0.40, 0.61]"
    assert markdown(["a", "b"], [["1", "2"]]).splitlines() == [
        "| a | b |",
        "| --- | --- |",
        "| 1 | 2 |",
    ]
