"""The search for a row's settings: equal for all, on images that are never tested, resumable."""

import json
import shutil

import numpy as np
import pytest

from vitrail.config import parse
from vitrail.engine.federation import load_federation
from vitrail.errors import ConfigError, RunError
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.sweep.tune import (
    Range,
    draw_settings,
    format_search,
    make_row_config,
    read_tune_config,
    score_validation,
    tune_rows,
)

TREE = {
    "data": {"image_size": 16, "aviary": {"images": 60, "classes": 2}},
    "partition": {"sites": 2, "folds": 5, "validation": 0.25},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 1, "batch_size": 16},
}
TUNE = {
    "settings": 3,
    "finalists": 2,
    "partitions": [{"run.seed": 11}, {"run.seed": 12}],
    "rows": {
        "plain": {"method.name": "fedavg"},
        "near": {"method": {"name": "fedprox", "mu": 0.1}},
        "alone": {"method": {"name": "local"}},
    },
    "search": {
        "plain": {"optimizer.lr": {"low": 0.01, "high": 1.0}},
        "near": {"optimizer.lr": [0.01, 0.1], "optimizer.momentum": [0.0, 0.9]},
    },
}


def grid(**changes):
    return parse({**TREE, "tune": {**TUNE, **changes}})


def silent(number, count, name):
    del number, count, name


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    return folder, tune_rows(grid(), folder, silent)


def test_every_row_has_the_same_search(searched):
    _, rows = searched
    for name in ("plain", "near"):
        trials = rows[name].trials
        assert len(trials) == 3
        assert sorted(len(trial.scores) for trial in trials) == [1, 2, 2]
        finalists = [trial for trial in trials if len(trial.scores) == 2]
        dropped = [trial for trial in trials if len(trial.scores) == 1]
        assert min(t.scores[0] for t in finalists) >= max(t.scores[0] for t in dropped)
        assert trials[rows[name].chosen].mean == max(t.mean for t in finalists)
    assert [trial.setting for trial in rows["alone"].trials] == [{}]


def test_nothing_that_is_tested_was_validated_on(searched):
    folder, rows = searched
    trial = Run(folder / "search" / "plain" / f"setting-{rows['plain'].chosen}_partition-0")
    assert trial.config.partition.validate_only
    validated = {int(row) for s in load_federation(trial.loaded).sites.values() for row in s.test}
    assert validated
    for fold in range(5):
        layers = (TUNE["rows"]["plain"], rows["plain"].setting, {"partition.fold": fold})
        tested = load_federation(make_row_config(grid(), *layers)).sites.values()
        assert not validated & {int(row) for site in tested for row in site.test}


def test_a_score_is_the_accuracy_over_all_sites_validation_images(searched):
    folder, rows = searched
    run = Run(folder / "search" / "plain" / "setting-0_partition-0")
    model, federation = run.model(), load_federation(run.loaded)
    right = []
    for site in federation.sites.values():
        images = federation.images.images[site.test].transpose(0, 3, 1, 2)
        import torch

        logits = model(torch.from_numpy(np.ascontiguousarray(images))).detach().numpy()
        right += (logits.argmax(1) == federation.images.labels[site.test]).tolist()
    assert score_validation(run) == pytest.approx(np.mean(right))
    assert rows["plain"].trials[0].scores[0] == score_validation(run)


def test_a_search_goes_on_and_what_is_frozen_stays(searched, tmp_path):
    folder, rows = searched
    played = []
    again = tune_rows(grid(), folder, lambda n, c, name: played.append(name))
    assert again == rows and not played
    frozen = json.loads((folder / "tuned.json").read_text())
    del frozen["near"]
    (folder / "tuned.json").write_text(json.dumps(frozen))
    assert tune_rows(grid(), folder, lambda n, c, name: played.append(name)) == rows
    assert not played  # its trials were there
    with pytest.raises(RunError, match="row 'plain' was tuned by another search"):
        tune_rows(grid(settings=4), folder, silent)


def test_the_search_is_printed_with_every_setting(searched):
    _, rows = searched
    text = format_search(rows)
    assert text.count("\n") == 1 + 3 + 3 + 1 and text.count("**chosen**") == 3
    assert "optimizer.lr = " in text and "as it is" in text


def test_draws_stay_in_their_range_and_depend_on_the_key_alone():
    search = {"a": Range(low=1e-4, high=1.0), "b": Range(low=2.0, high=3.0, log=False), "c": [1, 2]}
    key = derive_server_key(3).at("x")
    settings = draw_settings(search, 200, key)
    assert settings == draw_settings(search, 200, key)
    a = np.array([s["a"] for s in settings])
    assert a.min() >= 1e-4 and a.max() <= 1 and 0.3 < (a < 1e-2).mean() < 0.7
    assert all(2 <= s["b"] <= 3 and s["c"] in (1, 2) for s in settings)


def test_a_row_may_have_more_looks_and_the_others_stay_as_they_were(searched, tmp_path):
    folder, rows = searched
    shutil.copy(folder / "tuned.json", tmp_path)
    more = {**TUNE, "rows": {**TUNE["rows"], "long": TUNE["rows"]["plain"]}}
    more["search"] = {**TUNE["search"], "long": TUNE["search"]["plain"]}
    longer = tune_rows(parse({**TREE, "tune": {**more, "more": {"long": 5}}}), tmp_path, silent)
    assert len(longer["long"].trials) == 5
    assert {name: longer[name] for name in rows} == rows
    with pytest.raises(RunError, match="'long' was tuned by another search"):
        tune_rows(parse({**TREE, "tune": more}), tmp_path, silent)
    with pytest.raises(ConfigError, match="no row 'lonng'"):
        read_tune_config(parse({**TREE, "tune": {**more, "more": {"lonng": 5}}}))


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(ConfigError, match=r"no \[tune\] section"):
        read_tune_config(parse(TREE))
    with pytest.raises(ConfigError, match="no row 'other'"):
        read_tune_config(grid(search={"other": {"optimizer.lr": [1.0]}}))
    with pytest.raises(ConfigError, match="tune"):
        read_tune_config(grid(settings=0))
