"""Five attacks that worked: each was run against the code of before, and won there.

They use nothing but what a site is asked and answers, so that they run on any version.
"""

from __future__ import annotations

import csv
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.engine.tasks import MissingReply
from vitrail.engine.workers.pool import InProcessPool
from vitrail.errors import RunError, VitrailError
from vitrail.files import read_tensors, write_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import unseal
from vitrail.flower.site.site_config import SiteConfig
from vitrail.flower.site.site_server import SiteServer
from vitrail.release.image_protection import Protection, protect
from vitrail.rng import derive_server_key

from .conftest import SITES, Loop

DELTA = 1e-3
CLIENT = {"defenses": ["client-dp"], "client-dp": {"noise": 5.0, "delta": DELTA}}
STEPS = {"defenses": ["dp-sgd"], "dp-sgd": {"noise": 5.0, "delta": DELTA}}
SECURE = {"secure_sum": True}


class Stop(Exception):
    """A coordinator that was killed."""


def make_sites(birds, folder, root=None):
    """Sites with secrets of their own, and how to start their processes again."""
    own = type(birds)(root or birds.root, birds.terms)
    configs = {s: own.home(s, folder) for s in SITES}
    return own, configs, Loop({s: SiteServer(configs[s]) for s in SITES})


def play(birds, loop, out, release, after=None, **run):
    """A federation, killed `after` some rounds."""

    def stop(progress):
        if after is not None and progress.round >= after and not progress.note:
            raise Stop

    model = {**birds.terms["model"], "norm": "group"}
    more = {"run": {**birds.terms["run"], **run}, "model": model}
    loaded = birds.coordinator(release=release, **more)
    run_federation(loop, loaded, out, len(SITES), patience=1.0, on_round=stop)


def subtract(one, other):
    return {name: tensor - other.tensors[name] for name, tensor in one.tensors.items()}


def flatten(tensors):
    return torch.cat([t.double().ravel() for _, t in sorted(tensors.items())])


@pytest.mark.parametrize("release", [CLIENT, STEPS, SECURE], ids=["client-dp", "dp-sgd", "sum"])
def test_a_replay_after_an_image_changed_does_not_take_the_noise_off(release, birds, tmp_path):
    """The same message after one image was blacked out: the noise, or the masks, of both answers
    were the same, so their difference was what the image does."""
    root = tmp_path / "images"
    shutil.copytree(birds.root, root)
    own, configs, loop = make_sites(birds, tmp_path / "homes", root)
    with pytest.raises(Stop):
        after = 2 if release is SECURE else 1  # it keeps the update of the last round
        play(own, loop, tmp_path / "run", release, after, rounds=3)
    turn = next(raw for s, raw in loop.asked if s == "east" and unseal(raw).kind == "turn")
    first = next(r for r in map(unseal, loop.heard) if r.site == "east" and r.kind == "turn")
    rows = csv.DictReader((root / "east.csv").open())
    path = root / next(r["path"] for r in rows if r["split"] == "train")
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(path)
    again = unseal(SiteServer(configs["east"]).answer(turn))
    if again.kind != "turn":
        return  # refused
    received = unseal(turn).tensors
    one, other = flatten(first.tensors), flatten(again.tensors)
    if release is SECURE:  # words modulo 2^64, of which masks make any number
        one, other, noise = torch.zeros(1), flatten(subtract(again, first)), 2.0**60
    else:
        noise = float((one - flatten({n: received[n] for n in first.tensors})).norm())
    difference = float((other - one).norm())
    print(f"noise {noise:.4g}, difference of both answers {difference:.4g}")
    assert difference == 0 or difference > 0.5 * noise


def test_a_resume_does_not_add_up_a_round_twice_under_the_same_noise(birds, tmp_path):
    """A coordinator that is trusted with the noise was killed before its checkpoint and went on
    while a site was away: the same noise on two sums, whose difference was that site's update."""
    release = {**CLIENT, "client-dp": {**CLIENT["client-dp"], "where": "sum"}}
    _, _, loop = make_sites(birds, tmp_path / "homes")
    more = {"rounds": 4, "checkpoint_every": 4}
    with pytest.raises(Stop):
        play(birds, loop, tmp_path / "run", release, after=2, **more)
    ask, spoil = loop.ask, {"west": lambda raw, reply: MissingReply("away")}

    def away_in_round_one(sites, make_message, patience):
        for name, reply in ask(sites, make_message, patience):
            raw = loop.asked[-1][1]
            letter = unseal(raw)
            lost = letter.kind == "turn" and name == "west" and letter.body["task"]["round"] == 1
            yield name, spoil["west"](raw, reply) if lost else reply

    loop.ask = away_in_round_one
    play(birds, loop, tmp_path / "run", release, **more)
    turns = [unseal(raw) for s, raw in loop.asked if s == "east" and unseal(raw).kind == "turn"]
    seen = [flatten(t.tensors) for t in turns if t.body["task"]["round"] == 2]
    start = next(flatten(t.tensors) for t in turns if t.body["task"]["round"] == 1)
    sent = next(r for r in map(unseal, loop.heard) if r.site == "west" and r.kind == "turn")
    update = flatten(sent.tensors) - start
    noise = seen[0] - start
    errors = [
        float((3 * (one - start) - 2 * (other - start) - update).norm())
        for one in seen
        for other in seen
        if not torch.equal(one, other)
    ]
    for error in errors:
        print(f"update {update.norm():.4g}, noise {noise.norm():.4g}, error {error:.4g}")
    assert all(error > 0.1 * float(update.norm()) for error in errors)


def test_a_run_of_an_older_version_is_not_resumed_under_fresh_noise(birds, tmp_path):
    """It had sent rounds after its checkpoint; each would be added up again with other noise, and
    the mean of both hides less."""
    release = {**CLIENT, "client-dp": {**CLIENT["client-dp"], "where": "sum"}}
    _, _, loop = make_sites(birds, tmp_path / "homes")
    more = {"rounds": 4, "checkpoint_every": 4}
    with pytest.raises(Stop):
        play(birds, loop, tmp_path / "run", release, after=2, **more)
    for file in (tmp_path / "run" / "server" / "checkpoints").glob("*.safetensors"):
        tensors, meta = read_tensors(file)
        meta.pop("sums", None)  # what older versions did not write
        write_tensors(file, tensors, meta)
    with pytest.raises(RunError, match="begun by an older version"):
        play(birds, loop, tmp_path / "run", release, **more)


def test_a_shared_image_is_not_told_from_a_blank_one_by_its_last_bits():
    """Which float32 numbers noise alone can reach told blank from not blank every time, at an
    epsilon that allows 62 of 100 right guesses (Mironov 2012)."""
    how = Protection("local-dp", epsilon=0.5, delta=1e-5, clip=2.0, epsilon_label=1.0)
    image = torch.rand(1, 12, 12, 1, generator=torch.Generator().manual_seed(5))
    image = image * (how.clip / float(image.norm()))
    key, right, trials = derive_server_key(3).at("last bits"), 0, 60
    scale = np.float32(how.deviation)
    for trial in range(trials):
        there = bool(trial % 2)
        pixels = protect(image * there, torch.tensor([0]), 2, how, key.at(trial)).pixels.numpy()
        wanted = pixels.astype(np.float32).ravel()
        factor = (wanted / scale).view(np.int32)
        reached = np.zeros(len(wanted), np.bool_)
        for beside in (-2, -1, 0, 1, 2):
            reached |= scale * (factor + np.int32(beside)).view(np.float32) == wanted
        right += bool(reached.mean() < 1.0) is there
    print(f"{right} of {trials} guesses right")
    bound = (math.exp(0.5) + 1e-5) / (1 + math.exp(0.5))
    assert right <= trials * bound + 3 * math.sqrt(trials * bound * (1 - bound))


def test_runs_add_up_and_a_site_may_bound_them(birds, tmp_path):
    """Ten runs of epsilon 8 each were ten times allowed: nothing added them up."""
    _, configs, _ = make_sites(birds, tmp_path / "homes")
    release = {"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 8.0, "delta": 1e-5}}
    east = configs["east"]
    east.file.write_text(east.file.read_text() + "[policy]\nlifetime_epsilon = 12.0\n")
    played = 0
    for number in range(3):
        opened = {**configs, "east": SiteConfig.open(east.file)}
        object.__setattr__(opened["east"], "wait", lambda run, terms, lines, patience: True)
        loop = Loop({s: SiteServer(opened[s]) for s in SITES})
        try:
            play(birds, loop, tmp_path / f"run-{number}", release)
            played += 1
        except VitrailError as err:
            print(f"run {number}: {err}")
            assert "lifetime_epsilon" in str(err)
    assert played == 2  # 10.2 over two runs, 12.3 over three


@pytest.mark.slow
def test_a_hundred_sites_that_lose_two_percent_a_turn_add_up(tiny, monkeypatch):
    """Everybody answers with a chance of 0.13, and an attempt needed everybody."""
    draw = np.random.Generator(np.random.PCG64(11))
    turns, lost = InProcessPool.turns, []

    def lose(self, tasks, down):
        for task, reply in zip(tasks, turns(self, tasks, down), strict=True):
            gone = not task.closing and draw.random() < 0.02
            lost.append(gone)
            yield MissingReply("lost") if gone else reply

    monkeypatch.setattr(InProcessPool, "turns", lose)
    run = tiny(
        data={"aviary": {"images": 700, "classes": 3}},
        partition={"kind": "iid", "sites": 100, "alpha": 1.0, "minimum": 2},
        model={"backbone": "small-cnn", "width": 4},
        release=SECURE,
        run={"rounds": 5, "local_reference": False},
    )
    log = (run.path / "log.txt").read_text()
    void = sum(f"round {number}: void" in log for number in range(1, 6))
    print(f"{void} of 5 rounds void, {sum(lost)} turns lost")
    assert void == 0 and sum(lost) > 0
