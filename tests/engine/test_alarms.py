"""Alarms over the rounds of a run: who is named, who is left out, and what a resume makes of it."""

from __future__ import annotations

import copy

import pytest
import torch

import vitrail
from vitrail.aggregate.update_watch import LARGEST, Oddness
from vitrail.config.schema import Aggregate
from vitrail.engine.alarms import ALLOWANCE, THRESHOLD, Alarms, read_alarms

BASE = {
    "data": {"image_size": 16, "aviary": {"images": 240, "classes": 3}},
    "partition": {"sites": 6},
    "model": {"backbone": "small-cnn", "width": 4},
    "method": {"name": "fedavg"},
    "optimizer": {"lr": 0.05},
    "run": {"rounds": 5, "batch_size": 16, "seed": 3},
}


def config(hostile=True, **aggregate):
    tree = copy.deepcopy(BASE)
    if hostile:
        tree["hostile"] = [{"attack": "sign-flip", "sites": [2], "strength": 6.0}]
    tree["aggregate"] = aggregate
    return tree


def values(run):
    return torch.cat([t.double().reshape(-1) for t in run.model().state_dict().values()])


def odd(score, length=1.0):
    return Oddness(score, 0.0, 0.0, 0.0, length)


def test_sums_grow_by_what_is_over_the_allowance_and_never_fall_below_zero(tmp_path):
    alarms = Alarms(tmp_path, Aggregate())
    scores = [9.0, 0.0, 9.0, 9.0, 9.0, 1.0]
    wanted, total = [], 0.0
    for round_, score in enumerate(scores, 1):
        total = max(0.0, total + score - ALLOWANCE)
        fresh = alarms.record(round_, {"a": odd(score), "b": odd(0.0)})
        wanted.append(total)
        assert alarms.sums["a"] == pytest.approx(total) and alarms.sums["b"] == 0
        assert fresh == (["a"] if total >= THRESHOLD > (wanted[-2] if round_ > 1 else 0) else [])
    again = Alarms(tmp_path, Aggregate())
    again.restore(4)
    assert again.sums["a"] == pytest.approx(wanted[3])
    assert [line["round"] for line in read_alarms(again.path)] == [1, 2, 3, 4]


def test_a_change_far_over_that_of_past_rounds_is_as_odd_as_can_be(tmp_path):
    alarms = Alarms(tmp_path, Aggregate())
    assert alarms.compute_norm_bound() is None
    for round_ in (1, 2, 3):
        alarms.record(round_, {s: odd(0.0, 2.0) for s in "abcd"})
    assert alarms.compute_norm_bound() == pytest.approx(10.0)
    alarms.record(4, {"a": odd(0.0, 10.1), "b": odd(0.0, 9.9)})
    assert alarms.sums == {"a": LARGEST - ALLOWANCE, "b": 0, "c": 0, "d": 0}


def test_a_site_that_turns_its_updates_around_is_named_and_nobody_else(tmp_path):
    run = vitrail.run(config(), tmp_path / "run")
    log = (run.path / "log.txt").read_text()
    named = [line for line in log.splitlines() if "alarm:" in line]
    assert len(named) == 1 and "site-02" in named[0]
    calm = vitrail.run(config(hostile=False), tmp_path / "calm")
    assert "alarm:" not in (calm.path / "log.txt").read_text()


def test_watching_changes_no_result(tmp_path):
    watched = vitrail.run(config(), tmp_path / "watched")
    blind = vitrail.run(config(alarms=False), tmp_path / "blind")
    assert torch.equal(values(watched), values(blind))
    assert not (blind.path / "server" / "alarms.jsonl").exists()


def test_quarantine_leaves_a_site_out_and_a_resume_too(tmp_path):
    whole = vitrail.run(config(quarantine=2), tmp_path / "whole")
    log = (whole.path / "log.txt").read_text()
    assert "without site-02: in quarantine" in log

    def stop(progress):
        if progress.round == 3:
            raise KeyboardInterrupt

    tree = config(quarantine=2)
    tree["run"]["checkpoint_every"] = 2  # round 3 is played again
    with pytest.raises(KeyboardInterrupt):
        vitrail.run(tree, tmp_path / "cut", stop)
    resumed = vitrail.resume(tmp_path / "cut")
    assert torch.equal(values(resumed), values(whole))
    alarms = [read_alarms(r.path / "server" / "alarms.jsonl") for r in (resumed, whole)]
    assert alarms[0] == alarms[1]


def test_a_bound_learned_from_past_rounds_refuses(tmp_path):
    tree = config(norm_bound="refuse")
    tree["hostile"][0] |= {"strength": 50.0, "start": 4}
    run = vitrail.run(tree, tmp_path / "run")
    assert "refused site-02: it changes the model by" in (run.path / "log.txt").read_text()


def test_sums_under_masks_show_no_single_update(tmp_path):
    tree = config(hostile=False)
    tree["release"] = {"secure_sum": True}
    run = vitrail.run(tree, tmp_path / "run")
    assert not (run.path / "server" / "alarms.jsonl").exists()
