"""Hostile sites in whole runs: what they do to a model, and what is refused."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import vitrail
from vitrail.config.hostile_section import Hostile
from vitrail.config.schema import Config
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError, VitrailError
from vitrail.poisoning import POISONINGS
from vitrail.poisoning.poison_images import flip_labels, poison_images
from vitrail.rng import derive_server_key

BASE = {
    "data": {"image_size": 16, "aviary": {"images": 150, "classes": 3}},
    "partition": {"sites": 5},
    "model": {"backbone": "small-cnn", "width": 4},
    "method": {"name": "fedavg"},
    "optimizer": {"lr": 0.1},
    "run": {"rounds": 2, "batch_size": 16, "seed": 3},
}
PARTS = {"myth-gm": "prototype-theft", "fedgrasp": "prototype-trigger"}


def play(path, hostile=(), **sections):
    config = copy.deepcopy(BASE)
    for name, keys in sections.items():
        config[name] = {**config.get(name, {}), **keys}
    config["hostile"] = list(hostile)
    return vitrail.run(config, path)


def values(run):
    return torch.cat([t.double().reshape(-1) for t in run.model().state_dict().values()])


@pytest.mark.parametrize("attack", [n for n in POISONINGS if not n.startswith("prototype")])
def test_every_attack_plays_repeats_and_changes_the_model(attack, tmp_path):
    plain = values(play(tmp_path / "plain"))
    run = play(tmp_path / "run", [{"attack": attack, "sites": [1], "target": 2}])
    assert torch.isfinite(values(run)).all() and not torch.equal(values(run), plain)
    again = play(
        tmp_path / "again", [{"attack": attack, "sites": [1], "target": 2}], run={"workers": 2}
    )
    assert torch.equal(values(again), values(run))


@pytest.mark.parametrize("method", PARTS)
def test_attacks_on_parts_play(method, tmp_path):
    hostile = [{"attack": PARTS[method], "sites": [0]}]
    config = {**copy.deepcopy(BASE), "hostile": hostile, "method": {"name": method}}
    del config["optimizer"]
    run = vitrail.run(config, tmp_path / "run")
    assert run.finished


def test_an_attack_begins_when_it_is_told_to(tmp_path):
    plain = play(tmp_path / "plain", run={"rounds": 1})
    late = play(tmp_path / "late", [{"attack": "sign-flip", "start": 2}], run={"rounds": 1})
    assert torch.equal(values(plain), values(late))


def test_a_resumed_attack_goes_on(tmp_path):
    hostile = [{"attack": "min-max", "sites": [0, 1]}]
    whole = play(tmp_path / "whole", hostile)

    def stop(progress):
        if progress.round == 1:
            raise KeyboardInterrupt

    config = {**copy.deepcopy(BASE), "hostile": hostile}
    with pytest.raises(KeyboardInterrupt):
        vitrail.run(config, tmp_path / "cut", stop)
    assert torch.equal(values(vitrail.resume(tmp_path / "cut")), values(whole))


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        ({"attack": "nonsense"}, "no attack of hostile sites called 'nonsense'"),
        ({"attack": "sign-flip", "sites": [9]}, "no site 9"),
        ({"attack": "backdoor", "target": "swan"}, "no class 'swan'"),
        ({"attack": "backdoor", "start": 2}, "from the first round"),
        ({"attack": "sign-flip", "sites": [0, 1, 2, 3, 4]}, "every site would be hostile"),
        ({"attack": "label-flip", "source": 0, "target": 0}, "the same class"),
        ({"attack": "prototype-theft"}, "none travels here"),
    ],
)
def test_what_cannot_be_meant_is_refused(hostile, said, tmp_path):
    with pytest.raises(VitrailError, match=said):
        play(tmp_path / "run", [hostile])


def test_hostile_sites_are_not_played_under_masks_or_in_a_real_federation(tmp_path):
    with pytest.raises(ConfigError, match="seen one by one"):
        play(tmp_path / "run", [{"attack": "sign-flip"}], release={"secure_sum": True})
    from vitrail.flower.run_terms import make_terms

    tree = {**BASE, "hostile": [{"attack": "sign-flip"}]}
    tree["data"] = {"image_size": 16, "classes": ["a", "b"], "channels": 3}
    with pytest.raises(ConfigError, match="simulations only"):
        make_terms(Config.model_validate(tree))
    tree["hostile"] = []
    tree["release"] = {"defenses": ["dp-sgd"], "dp-sgd": {"canaries": 1000}}
    with pytest.raises(ConfigError, match="canaries are for simulations"):
        make_terms(Config.model_validate(tree))


def test_labels_turn_around_or_go_from_one_class_to_another():
    labels, classes = np.array([0, 1, 2, 2]), ("a", "b", "c")
    assert flip_labels(labels, Hostile(attack="label-flip"), classes).tolist() == [2, 1, 0, 0]
    one = Hostile(attack="label-flip", source="c", target=1)
    assert flip_labels(labels, one, classes).tolist() == [0, 1, 1, 1]


def test_only_training_images_of_hostile_sites_are_touched():
    pixels = np.zeros((12, 16, 16, 3), np.uint8)
    labels = np.array([0, 1, 2] * 4)
    images = ImageSet(pixels, labels, ("a", "b", "c"), tuple("abcdefghijkl"))
    rows = [np.arange(i, i + 4) for i in (0, 4, 8)]
    sites = {f"s{i}": SiteRows(f"s{i}", r[:3], r[3:]) for i, r in enumerate(rows)}
    hostile = [Hostile(attack="backdoor", sites=("s1",), share=1.0, target="a")]
    after = poison_images(images, sites, hostile, derive_server_key(1))
    touched = np.flatnonzero(after.images.any(axis=(1, 2, 3)))
    assert touched.tolist() == [4, 5, 6] and (after.labels[touched] == 0).all()
    others = np.setdiff1d(np.arange(12), touched)
    assert (after.labels[others] == labels[others]).all() and not pixels.any()
