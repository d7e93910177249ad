"""Stages: what a table freezes stays, and what an earlier stage learned is not forgotten."""

import numpy as np
import pytest
import torch

import vitrail
from vitrail.files import read_tensors
from vitrail.methods.base.method import METHODS, Method
from vitrail.methods.base.stage import Stage

SHARED = dict(Method.table)
SWITCHES = {"frozen": {**SHARED, "head": "frozen"}, "home": {**SHARED, "head": "home"}}


class HeadFrozen(Method):
    """The head never changes."""

    table = {**SHARED, "head": "frozen", "norm": "frozen", "statistic": "frozen"}


def two_stages(answer):
    class Switch(Method):
        """Two rounds of FedAvg, then one in which the head is frozen or stays home."""

        def stages(self, run):
            return (Stage("first", 2), Stage("second", table=SWITCHES[answer]))

    return Switch


@pytest.fixture
def registered(monkeypatch):
    def add(name, method):
        monkeypatch.setitem(METHODS._items, name, method)
        return {"name": name}

    return add


def sent(run, round_, name="sent"):
    return read_tensors(
        run.path / "server" / "transcript" / f"round-{round_:05d}" / f"{name}.safetensors"
    )


def test_what_a_table_freezes_does_not_move_even_at_the_site(tiny, registered):
    run = tiny(method=registered("head-frozen", HeadFrozen), run={"record_updates": True})
    start = tiny("start", method={"name": "head-frozen"}, run={"rounds": 0}).model().state_dict()
    end = run.model().state_dict()
    moved = {name for name in end if not torch.equal(end[name], start[name])}
    assert moved and not any("head." in name or "bn" in name for name in moved)
    tensors, _ = sent(run, 1)
    assert not any("head." in name or "bn" in name for name in tensors)


@pytest.mark.parametrize("answer", SWITCHES)
def test_a_later_stage_starts_from_what_the_earlier_one_learned(tiny, registered, answer):
    method = registered(f"switch-{answer}", two_stages(answer))
    whole = tiny("whole", method=method, run={"rounds": 3, "record_updates": True})
    early = tiny("early", method=method, run={"rounds": 2}).model().state_dict()
    down, _ = sent(whole, 3)
    assert torch.equal(down["model/head.weight"], early["network.head.weight"])
    up, meta = sent(whole, 3, "updates/site-00")
    assert "model/head.weight" not in up and meta["refused"] is None
    if answer == "frozen":
        end = whole.model().state_dict()
        assert torch.equal(end["network.head.weight"], early["network.head.weight"])
    else:
        own = [whole.model(site).state_dict()["network.head.weight"] for site in whole.sites[:2]]
        assert not torch.equal(own[0], own[1])
        assert not torch.equal(own[0], early["network.head.weight"])


def test_the_transcript_holds_all_that_went_down_and_up(tiny):
    run = tiny(method={"name": "scaffold"}, run={"record_updates": True, "rounds": 2})
    down, _ = sent(run, 2)
    up, meta = sent(run, 2, "updates/site-01")
    assert "control/server" in down and "control/change" in up
    assert meta["metrics"]["train_loss"] > 0 and meta["weight"] == meta["counts"]["examples"]


@pytest.mark.slow
def test_large_answers_of_workers_do_not_meet_large_questions(tmp_path):
    """Many classes and more chunks than workers: both ends once waited for each other."""
    copies = {"conflicts": "allow", "duplicates": "ignore"}  # all images are black
    config = {
        "data": {"source": "npz", "path": str(tmp_path / "x.npz")} | copies,
        "partition": {"sites": 2, "minimum": 1},
        "model": {"backbone": "small-cnn", "width": 8},
        "run": {"rounds": 1, "workers": 2},
    }
    labels = np.arange(2000) % 1000
    pixels = np.zeros((2000, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "x.npz", x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    run = vitrail.run(config, tmp_path / "run")
    assert run.curve("accuracy", "server")[-1][0] == 1
