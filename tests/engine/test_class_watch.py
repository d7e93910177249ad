"""A class that the received model has unlearned is told to the site, and to nobody else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from scipy.stats import fisher_exact
from sklearn.datasets import load_digits

import vitrail
from vitrail.engine.class_watch import LARGEST_CHANCE, is_sudden_drop, read_watch, watch_classes

CLASSES = ("finch", "swan")


@pytest.mark.parametrize("total", [0, 1, 5, 12, 30])
def test_a_drop_is_what_fishers_test_says_it_is(total):
    for before in range(total + 1):
        for now in range(total + 1):
            table = [[now, total - now], [before, total - before]]
            rare = total > 0 and fisher_exact(table, "less")[1] <= LARGEST_CHANCE
            assert is_sudden_drop(before, now, total) == (rare and before - now >= total / 4)


def test_the_class_is_named_once_and_the_file_outlives_a_torn_line(tmp_path):
    labels = np.array([0] * 20 + [1] * 20)
    fine, broken = labels.copy(), labels.copy()
    broken[:15] = 1
    for round_ in (1, 2, 3):
        assert watch_classes(tmp_path, round_, labels, fine, CLASSES) == []
    drops = watch_classes(tmp_path, 4, labels, broken, CLASSES)
    assert drops == ["finch: 20 of 20 right before, 5 now"]
    assert watch_classes(tmp_path, 5, labels, broken, CLASSES) == []
    with (tmp_path / "class-watch.jsonl").open("a") as handle:
        handle.write('{"round": 6, "ri')
    assert [line["round"] for line in read_watch(tmp_path)] == [1, 2, 3, 4, 5]
    assert watch_classes(tmp_path, 7, labels[:30], fine[:30], CLASSES) == []  # other images


def test_a_turned_model_is_noticed_at_an_honest_site(tmp_path):
    images, labels = load_digits(n_class=3, return_X_y=True)
    pixels = (images.reshape(-1, 8, 8, 1) * 15).astype(np.uint8)
    np.savez(tmp_path / "digits.npz", x=pixels, y=labels)
    tree = {
        "data": {"source": "npz", "path": str(tmp_path / "digits.npz"), "duplicates": "ignore"},
        "partition": {"sites": 4},
        "model": {"backbone": "small-cnn", "width": 8},
        "optimizer": {"lr": 0.05},
        "run": {"rounds": 8, "batch_size": 16},
    }
    calm = vitrail.run(copy.deepcopy(tree), tmp_path / "calm")
    tree["hostile"] = [{"attack": "sign-flip", "sites": [0], "strength": 60.0, "start": 8}]
    run = vitrail.run(tree, tmp_path / "run")
    seen = read_watch(run.path / "sites" / "site-01")
    assert seen[-2]["right"] == pytest.approx(seen[-2]["count"], rel=0.2)  # it had learned
    assert seen[-1]["drops"] and not any(line["drops"] for line in seen[:-1])
    quiet = read_watch(calm.path / "sites" / "site-01")
    assert not any(line["drops"] for line in quiet)
    assert not any("class-watch" in path.name for path in (run.path / "server").rglob("*"))
