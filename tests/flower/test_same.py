"""A federation of real sites comes to the same bits as the simulation of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vitrail.engine.loaded import Run
from vitrail.engine.run import start
from vitrail.files import read_tensors
from vitrail.flower.coordinator import coordinate

PARTS = {"per_class": 2, "depth": 8}
PUBLIC = {"aviary": {"images": 20, "classes": 3, "seed": 11}}  # the coordinator's alone
CASES = {
    "fedavg": {},
    "feddf": {"method": {"steps": 3}, "data": {"public": PUBLIC}},
    "fedgen": {"method": {"steps": 3}},
    "fedftg": {"method": {"steps": 1, "model_steps": 1}},
    "fedaux": {
        "method": {"steps": 3, "negatives": 5},
        "data": {"public": PUBLIC},
        "run": {"rounds": 3},
    },
    "fedfed": {"run": {"rounds": 3}},
    "scaffold": {},
    "myth-pm": {"model": {"backbone": "small-cnn", "width": 4, "prototypes": PARTS}},
    "fedxds": {},
    "fedgrasp": {
        "model": {
            "backbone": "small-cnn",
            "width": 4,
            "subspaces": {"dimension": 2, "depth": 8, "hidden": 8, "top": 2},
        }
    },
}


def final(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(sorted((run / "server" / "checkpoints").glob("*"))[-1])[0]


@pytest.mark.parametrize("method", CASES)
def test_same_bits_as_the_simulation(method: str, birds, tmp_path) -> None:
    case = {"method": {}, **CASES[method]}
    sections = {name: {**birds.terms.get(name, {}), **case[name]} for name in case}
    sections["method"]["name"] = method
    start(birds.simulated(**sections), tmp_path / "simulated")
    coordinate(birds.loop(tmp_path), birds.coordinator(**sections), tmp_path / "real", sites=3)
    ours, theirs = final(tmp_path / "real"), final(tmp_path / "simulated")
    assert set(ours) == set(theirs)
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    same = ("accuracy", "loss", "train_loss", "examples", "steps", "image_steps", "bytes_up")
    rows = [
        [[row.get(n) for n in ("round", "site", *same)] for row in Run(tmp_path / r).rows()]
        for r in ("real", "simulated")
    ]
    assert rows[0] == rows[1]
