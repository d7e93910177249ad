"""A federation of real sites comes to the same bits as the simulation of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vitrail.engine.federation import SERVER
from vitrail.engine.run import start
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.coordinator.remote_sites import RemoteSites
from vitrail.methods import METHODS, RunSetup
from vitrail.rng import Key, derive_site_key
from vitrail.runs.opened_run import Run

PARTS = {"per_class": 2, "depth": 8}
REMEDIES = {
    "leave-out": ("fedavg", {}),
    "mix": ("myth-gm", {"prototypes": PARTS}),
    "mask": ("myth-gm", {"prototypes": PARTS}),
}
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


def hidden(seed: int) -> Key:
    return derive_site_key(seed, SERVER)


def final(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(sorted((run / "server" / "checkpoints").glob("*"))[-1])[0]


@pytest.mark.parametrize("method", CASES)
def test_same_bits_as_the_simulation(method: str, birds, tmp_path, monkeypatch) -> None:
    """With secrets that follow from the seed, the server's too; it has one of its own else."""
    monkeypatch.setattr(RemoteSites, "secret", lambda _, plan, folder: hidden(plan.config.run.seed))
    case = {"method": {}, **CASES[method]}
    sections = {name: {**birds.terms.get(name, {}), **case[name]} for name in case}
    sections["method"]["name"] = method
    compare(birds, tmp_path, sections)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_same_bits_with_a_remedy(remedy: str, birds, tmp_path) -> None:
    """Refuted by a remedy that does nothing over a link: then the two differ."""
    method, model = REMEDIES[remedy]
    finding = {"site": "east", "label": birds.terms["data"]["classes"][0], "prototypes": [1]}
    sections = {
        "method": {"name": method},
        "model": {**birds.terms["model"], **model},
        "debias": {"remedies": [remedy], "findings": [finding], "epochs": 1},
        "run": {**birds.terms["run"], "local_reference": False},
    }
    loop = compare(birds, tmp_path, sections, sites=2 if remedy == "leave-out" else 3)
    asked = {name for name, _ in loop.asked}
    assert ("east" in asked) is (remedy != "leave-out")
    log = (tmp_path / "real" / "log.txt").read_text()
    assert ("site east is left out" in log) is (remedy == "leave-out")


def test_a_site_that_nobody_knows_cannot_be_suspected(birds, tmp_path) -> None:
    finding = {"site": "eats", "label": birds.terms["data"]["classes"][0]}
    config = birds.coordinator(debias={"remedies": ["weigh"], "findings": [finding]})
    with pytest.raises(ConfigError, match=r"no site 'eats'.*Did you mean 'east'"):
        run_federation(birds.loop(tmp_path), config, tmp_path / "real", sites=3)


def test_a_method_checks_what_the_coordinator_knows_and_what_each_site_knows(
    birds, tmp_path, monkeypatch
) -> None:
    setups: list[RunSetup] = []
    monkeypatch.setattr(METHODS["fedavg"], "check_run", lambda _, setup: setups.append(setup))
    run_federation(birds.loop(tmp_path), birds.coordinator(), tmp_path / "real", sites=3)
    assert [s.examples for s in setups if s.image == (32, 32, 3)] == [None]
    known = [s for s in setups if s.examples is not None]
    assert {name for s in known for name in s.examples} == {"east", "north", "west"}
    assert all(len(s.examples) == 1 and not s.every_site for s in known)


def test_a_site_refuses_what_its_own_images_are_too_few_for(birds, tmp_path) -> None:
    """The coordinator cannot know how many images a site has."""
    method = {"name": "fedxds", "warmup": 0, "protection": "local-dp", "delta": 0.04}
    config = birds.coordinator(method=method)
    with pytest.raises(RunError, match="the terms and the site's own file do not go together"):
        run_federation(birds.loop(tmp_path), config, tmp_path / "real", sites=3)
    log = (tmp_path / "at-east" / "log.txt").read_text()
    assert "method.delta: delta 0.04 is not below 1/29" in log


def compare(birds, tmp_path: Path, sections: dict[str, Any], sites: int = 3) -> Any:
    """Simulate a federation and play it over a link: the same weights and the same figures."""
    start(birds.simulated(**sections), tmp_path / "simulated")
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(**sections), tmp_path / "real", sites)
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
    return loop


def test_the_server_keeps_a_secret_that_no_site_can_repeat(birds, tmp_path) -> None:
    """The order of shared images and the noise of sums follow from it, not from `run.seed`."""
    sections = {
        "method": {"name": "fedxds", "warmup": 1},
        "run": {**birds.terms["run"], "rounds": 3},
    }
    run_federation(birds.loop(tmp_path), birds.coordinator(**sections), tmp_path / "real", sites=3)
    start(birds.simulated(**sections), tmp_path / "simulated")
    file = tmp_path / "real" / "server" / "secret"
    assert len(file.read_bytes()) == 32 and file.stat().st_mode & 0o077 == 0
    shared = [
        next((tmp_path / run / "server" / "assets").iterdir()) for run in ("real", "simulated")
    ]
    targets = [read_tensors(path)[0]["targets"] for path in shared]
    assert torch.equal(*(t.sort().values for t in targets)) and not torch.equal(*targets)
