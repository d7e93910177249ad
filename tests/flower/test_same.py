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
METHODS = {
    "fedavg": {},
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


@pytest.mark.parametrize("method", METHODS)
def test_same_bits_as_the_simulation(method: str, birds, tmp_path) -> None:
    sections = {"method": {"name": method}, **METHODS[method]}
    start(birds.simulated(**sections), tmp_path / "simulated")
    coordinate(birds.loop(tmp_path), birds.coordinator(**sections), tmp_path / "real", sites=3)
    ours, theirs = final(tmp_path / "real"), final(tmp_path / "simulated")
    assert set(ours) == set(theirs)
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    same = ("accuracy", "loss", "train_loss", "examples", "steps", "bytes_up")
    rows = [
        [[row.get(n) for n in ("round", "site", *same)] for row in Run(tmp_path / r).rows()]
        for r in ("real", "simulated")
    ]
    assert rows[0] == rows[1]
