"""A real site whose folder changes during a run: new images wait, changed ones are refused."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import unseal
from vitrail.flower.site.site_server import SiteServer

from .conftest import SITES, Loop

PRIVATE = {"defenses": ["client-dp"], "client-dp": {"epsilon": 8.0, "delta": 1e-3}}


@pytest.fixture
def played(birds, tmp_path):
    """A run with sites that have secrets of their own, on a copy of the images."""
    root = tmp_path / "images"
    shutil.copytree(birds.root, root)
    own = type(birds)(root, birds.terms)
    configs = {s: own.home(s, tmp_path / "homes") for s in SITES}
    loop = Loop({s: SiteServer(configs[s]) for s in SITES})
    loaded = own.coordinator(release=PRIVATE, model={**birds.terms["model"], "norm": "group"})

    def stop(progress):  # after its closing turn a run asks for nothing more
        if progress.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_federation(loop, loaded, tmp_path / "out", len(SITES), on_round=stop)
    return root, configs, loop


def ask_again(configs, loop, site="east"):
    """The kind and the tensors of the reply of a fresh process to the first turn's message."""
    turns = [raw for name, raw in loop.asked if name == site and unseal(raw).kind == "turn"]
    reply = unseal(SiteServer(configs[site]).answer(turns[0]))
    return reply


def first_reply(loop, site="east"):
    replies = [unseal(raw) for raw in loop.heard]
    return next(r for r in replies if r.site == site and r.kind == "turn")


def test_a_folder_that_grows_changes_no_answer(played):
    root, configs, loop = played
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(root / "new.png")
    with (root / "east.csv").open("a", newline="") as handle:
        label = next(iter(csv.DictReader((root / "east.csv").open())))["label"]
        csv.writer(handle).writerow(["new.png", label, "east", "train"])
    reply, before = ask_again(configs, loop), first_reply(loop)
    assert reply.kind == "turn"
    assert all((reply.tensors[n] == t).all() for n, t in before.tensors.items())


def test_an_image_that_was_blacked_out_is_refused(played):
    root, configs, loop = played
    rows = list(csv.DictReader((root / "east.csv").open()))
    row = next(r for r in rows if r["split"] == "train")
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(root / row["path"])
    reply = ask_again(configs, loop)
    assert reply.kind == "error" and not reply.tensors
    assert row["path"] not in str(reply.body)  # names of files stay here
    log = "".join(p.read_text() for p in configs["east"].folder.rglob("log*"))
    assert "1 changed" in log
