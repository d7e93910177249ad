"""Whole runs with a rule that compares updates with trusted images at the server."""

from __future__ import annotations

import copy

import pytest
import torch

import vitrail
from vitrail.errors import ConfigError, VitrailError

PUBLIC = {"source": "embedded", "aviary": {"images": 30, "classes": 3, "seed": 9}}
BASE = {
    "data": {
        "image_size": 16,
        "aviary": {"images": 150, "classes": 3, "seed": 9},
        "public": PUBLIC,
    },
    "partition": {"sites": 5},
    "model": {"backbone": "small-cnn", "width": 4},
    "method": {"name": "fedavg"},
    "optimizer": {"lr": 0.1},
    "aggregate": {"rule": "fltrust"},
    "run": {"rounds": 2, "batch_size": 16, "seed": 3},
}


def play(path, **sections):
    config = copy.deepcopy(BASE)
    for name, keys in sections.items():
        config[name] = keys if name == "hostile" else {**config.get(name, {}), **keys}
    return vitrail.run(config, path)


def values(run):
    return torch.cat([t.double().reshape(-1) for t in run.model().state_dict().values()])


def test_it_plays_repeats_and_resumes(tmp_path):
    whole = values(play(tmp_path / "whole"))
    assert torch.isfinite(whole).all()
    assert torch.equal(values(play(tmp_path / "workers", run={"workers": 2})), whole)

    def stop(progress):
        if progress.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vitrail.run(copy.deepcopy(BASE), tmp_path / "cut", stop)
    assert torch.equal(values(vitrail.resume(tmp_path / "cut")), whole)


def test_three_hostile_sites_of_five_turn_the_mean_around_and_not_this_rule(tmp_path):
    hostile = [{"attack": "sign-flip", "sites": [0, 1, 2], "strength": 8.0}]
    start = values(play(tmp_path / "start", run={"rounds": 0}))
    right = values(play(tmp_path / "right", aggregate={"rule": "mean"})) - start
    mean = values(play(tmp_path / "mean", aggregate={"rule": "mean"}, hostile=hostile)) - start
    run = values(play(tmp_path / "run", hostile=hostile)) - start
    assert torch.cosine_similarity(mean, right, 0) < 0 < torch.cosine_similarity(run, right, 0)


def test_frozen_stages_are_computed_once_and_give_the_same(tmp_path):
    frozen = {"backbone": "resnet8", "width": 4, "frozen": True, "runtime": "torch"}
    assert play(tmp_path / "frozen", model=frozen).finished


@pytest.mark.parametrize(
    ("public", "word"),
    [
        (None, "trusted images at the server"),
        ({"source": "embedded", "aviary": {"images": 30, "classes": 5}}, "that the sites do not"),
    ],
)
def test_without_trusted_images_of_the_sites_classes_it_is_refused(public, word, tmp_path):
    data = {k: v for k, v in BASE["data"].items() if k != "public"}
    config = {**copy.deepcopy(BASE), "data": {**data, **({"public": public} if public else {})}}
    with pytest.raises(ConfigError, match=word):
        vitrail.run(config, tmp_path / "run")


def test_masked_sums_refuse_it(tmp_path):
    with pytest.raises(VitrailError, match="fltrust"):
        play(tmp_path / "run", release={"secure_sum": True})
