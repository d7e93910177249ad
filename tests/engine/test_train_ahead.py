"""Heads that train at once come to the bits of heads that train one by one; the card says so."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import vitrail
from vitrail.engine import site_turn
from vitrail.local.inputs import draw_epoch
from vitrail.local.phases.phase import Fit
from vitrail.local.stacked_heads import HeadJob, SgdRates, find_stack_obstacle, train_linear_heads

CHANNELS, CLASSES = 48, 10


def make_jobs(sizes, batch=16):
    draw = torch.Generator().manual_seed(3)
    return [
        HeadJob(
            torch.randn(size, CHANNELS, generator=draw),
            torch.randint(CLASSES, (size,), generator=draw),
            tuple(at for _ in range(2) for at in draw_epoch(size, batch, draw)),
        )
        for size in sizes
    ]


@pytest.mark.parametrize("rates", [(0.1, 0.0, 0.0), (0.05, 0.9, 1e-2)])
def test_stacked_heads_are_those_of_torch_sgd_to_the_bit(rates):
    assert find_stack_obstacle(16, CHANNELS, CLASSES) is None
    jobs = make_jobs([16, 40, 33, 5, 97])  # full, short and merged last batches
    start = torch.randn(CLASSES * CHANNELS + CLASSES) * 0.1
    lr, momentum, decay = rates
    stacked = train_linear_heads(start, CLASSES, jobs, SgdRates(lr, momentum, decay))
    for job, (values, result) in zip(jobs, stacked, strict=True):
        layer = torch.nn.Linear(CHANNELS, CLASSES)
        torch.nn.utils.vector_to_parameters(start.clone(), layer.parameters())
        steps = torch.optim.SGD(layer.parameters(), lr, momentum, weight_decay=decay)
        losses = []
        for at in job.batches:
            steps.zero_grad()
            loss = F.cross_entropy(layer(job.features[at]), job.labels[at])
            loss.backward()
            steps.step()
            losses.append(float(loss.detach() * len(at)))
        assert torch.equal(values, torch.nn.utils.parameters_to_vector(layer.parameters()))
        images = sum(len(at) for at in job.batches)
        assert (result.steps, result.images) == (len(job.batches), images)
        assert result.loss == sum(losses) / images


def make_setting(images, run=None, data=None, **sections):
    return {
        "data": {"source": "npz", "path": str(images), **(data or {})},
        "partition": {"sites": 5, "kind": "dirichlet", "alpha": 0.5},
        "model": {"backbone": "small-cnn", "frozen": True, "width": 32},
        "run": {"rounds": 2, "local_epochs": 2, "batch_size": 8, "workers": 1, **(run or {})},
        **sections,
    }


def read_card(run):
    return json.loads((run.path / "server" / "card.json").read_text())["training"]


def drop_seconds(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.rows()]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    draw = np.random.default_rng(5)
    y = np.repeat(np.arange(10), 17)
    x = (draw.normal(size=(10, 8, 8, 3))[y] * 30 + 128).clip(0, 255).astype("u1")
    np.savez(path := tmp_path_factory.mktemp("ahead") / "images.npz", x=x, y=y)
    return path


def test_a_run_is_the_same_whether_heads_train_at_once_or_not(
    tmp_path, images, monkeypatch, same_bits
):
    singly = []
    train = Fit._train
    monkeypatch.setattr(Fit, "_train", lambda *args: singly.append(args) or train(*args))
    stacked = vitrail.run(make_setting(images), tmp_path / "stacked")
    assert not singly
    assert read_card(stacked) == "linear heads of up to 32 sites at once"
    two = vitrail.run(make_setting(images, run={"workers": 2}), tmp_path / "two")
    monkeypatch.setattr(site_turn, "train_ahead", lambda *_: {})
    alone = vitrail.run(make_setting(images), tmp_path / "alone")
    assert len(singly) == 10  # 5 sites, 2 rounds
    for other in (two, alone):
        assert same_bits(stacked.path, other.path)
        assert drop_seconds(stacked) == drop_seconds(other)


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        ({"method": {"name": "fedprox"}}, "fedprox adds to plain training"),
        ({"data": {"views": ["identity", "flip"]}}, "images are varied in training"),
        ({"optimizer": {"name": "adam"}}, "the optimizer is adam"),
        ({"release": {"defenses": ["paper-dp"]}}, "a defense adds to plain training"),
        ({"method": {"name": "fedper"}}, "tensors stay at their site"),
    ],
)
def test_the_card_says_why_sites_train_one_at_a_time(tmp_path, images, sections, reason):
    run = vitrail.run(make_setting(images, run={"rounds": 1}, **sections), tmp_path / "run")
    assert read_card(run) == f"one site at a time: {reason}"
