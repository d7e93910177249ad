"""The same message asked again after the data changed, or a round played again: noise stays on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import vitrail
from vitrail.aggregate.sums import make_rules
from vitrail.config import parse
from vitrail.data.image_set import ImageSet
from vitrail.engine.data_pins import take_pinned, write_pins
from vitrail.engine.federation import load_federation
from vitrail.engine.resolve_config import resolve_config
from vitrail.engine.round import _make_noise
from vitrail.engine.run import plan_run
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.tasks import RoundMessage, Task
from vitrail.engine.workers.make_pool import make_host
from vitrail.errors import DataError, RunError
from vitrail.methods.base.server import Server
from vitrail.rng import Key

SITE = "site-00"
SECRET = Key(b"s" * 32)
MECHANISMS = {
    "client-dp": {"epsilon": 8.0, "delta": 1e-3},
    "dp-sgd": {"epsilon": 8.0, "delta": 1e-3},
}


def make_real_host(tiny_config, folder, name, black):
    """A host with a secret of its own; `black` blanks the site's first training image."""
    tree = tiny_config(
        model={"norm": "group"}, release={"defenses": [name], name: MECHANISMS[name]}
    )
    loaded = parse(tree)
    loaded = replace(loaded, config=resolve_config(loaded))
    federation = load_federation(loaded)
    if black:
        pixels = np.array(federation.images.images)
        pixels[federation.sites[SITE].train[0]] = 0
        federation = replace(federation, images=replace(federation.images, images=pixels))
    plan, network = plan_run(loaded, federation)
    host = make_host(plan, network, federation, folder)
    host.root, host.run = SECRET, "a run"
    return host


def ask_round_one(host):
    """The update that answers one fixed message of round 1."""
    views = host.plan.layout.views(host.start)
    arrives = host.plan.stage_at(1).arrives
    down = RoundMessage(1, {f"model/{n}": views[n].clone() for n in arrives}, "message 1")
    update = host.turn(Task(SITE, 1, 2, evaluate=False), down).update
    change = {n: t.double() - down.tensors[n].double() for n, t in update.tensors.items()}
    return torch.cat([t.flatten() for _, t in sorted(change.items())])


@pytest.mark.parametrize("name", MECHANISMS)
def test_other_images_get_other_noise(name, tiny_config, tmp_path):
    """Was red: the difference of both answers was 0.0125 at a noise of 21.5 for client-dp."""
    one = ask_round_one(make_real_host(tiny_config, tmp_path / "a", name, black=False))
    same = ask_round_one(make_real_host(tiny_config, tmp_path / "b", name, black=False))
    other = ask_round_one(make_real_host(tiny_config, tmp_path / "c", name, black=True))
    assert torch.equal(one, same)
    assert float((one - other).norm()) > 0.5 * float(one.norm())


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_message_that_comes_again_gets_the_bytes_that_left(name, tiny_config, tmp_path):
    one = ask_round_one(make_real_host(tiny_config, tmp_path, name, black=False))
    again = ask_round_one(make_real_host(tiny_config, tmp_path, name, black=True))
    assert torch.equal(one, again)
    for file in tmp_path.rglob("answers/*.safetensors"):
        file.unlink()
    with pytest.raises(RunError, match="no longer kept"):
        ask_round_one(make_real_host(tiny_config, tmp_path, name, black=True))


def make_images(names, pixels, labels=None, classes=("a", "b")):
    labels = [0, 1, 0, 1, 0][: len(names)] if labels is None else labels
    return ImageSet(pixels, np.array(labels), classes, np.array(names))


def test_new_images_wait_and_changed_or_missing_ones_are_refused(tmp_path):
    pixels = np.arange(5 * 12, dtype=np.uint8).reshape(5, 2, 2, 3)
    whole = make_images(list("pqrst"), pixels)
    assert take_pinned(whole, tmp_path, SECRET) is whole  # nothing is pinned yet
    first = whole.take(np.array([1, 2, 3]))
    write_pins(first, tmp_path, SECRET)
    taken = take_pinned(whole, tmp_path, SECRET)
    assert taken.names.tolist() == list("qrs") and np.array_equal(taken.images, first.images)
    grown = replace(whole, classes=("0", "a", "b"), labels=whole.labels + 1)  # a class came first
    taken = take_pinned(grown, tmp_path, SECRET)
    assert taken.classes == ("a", "b") and taken.labels.tolist() == first.labels.tolist()
    moved = whole.take(np.array([4, 3, 2, 1, 0]))
    assert take_pinned(moved, tmp_path, SECRET).names.tolist() == list("qrs")
    with pytest.raises(DataError, match=r"1 gone \(s\)"):
        take_pinned(whole.take(np.array([0, 1, 2])), tmp_path, SECRET)
    black = np.array(pixels)
    black[2] = 0
    with pytest.raises(DataError, match=r"1 changed \(r\)"):
        take_pinned(make_images(list("pqrst"), black), tmp_path, SECRET)
    with pytest.raises(DataError, match=r"1 changed \(q\)"):  # another label
        take_pinned(replace(whole, labels=np.array([0, 0, 0, 1, 0])), tmp_path, SECRET)
    assert b"p" not in (tmp_path / "pinned-images.json").read_bytes().split(b"images", 1)[1]


def test_pins_tell_nothing_without_the_secret(tmp_path):
    whole = make_images(list("pq"), np.zeros((2, 2, 2, 3), np.uint8))
    texts = []
    for key in (SECRET, Key(b"t" * 32)):
        write_pins(whole, tmp_path, key)
        texts.append((tmp_path / "pinned-images.json").read_text())
    assert texts[0] != texts[1]


SUM = {"defenses": ["client-dp"], "client-dp": {"epsilon": 8.0, "delta": 1e-3, "where": "sum"}}


def test_noise_of_a_sum_depends_on_the_sum(tiny_config, tmp_path):
    """Was red: a round played again without a site had the same noise, and told its update."""
    loaded = parse(tiny_config(model={"norm": "group"}, release=SUM))
    loaded = replace(loaded, config=resolve_config(loaded))
    plan, _ = plan_run(loaded, load_federation(loaded))
    stage = plan.stages[0]
    server = Server(plan.layout, stage.shared, stage.arrives, torch.zeros(plan.layout.size))
    server.secret = SECRET
    add = _make_noise(plan, server, plan.context(1, 3))
    rule, sent = next(make_rules(stage.schema, {}, plan.config.aggregate))
    total = torch.ones(len(sent), dtype=torch.float64)
    both, alone = add(rule, total), add(rule, 0.5 * total)
    noise = float((both - total).norm())
    assert torch.equal(both, add(rule, total.clone()))
    assert float((both - alone - 0.5 * total).norm()) > noise


class Stop(Exception):
    """Ends a run."""


def test_a_private_sum_is_checkpointed_before_it_is_sent(tiny_config, tmp_path):
    """Was red: with `checkpoint_every = 4`, rounds that were sent were added up anew."""
    config = tiny_config(model={"norm": "group"}, release=SUM)
    config["run"] |= {"rounds": 4, "checkpoint_every": 4, "local_reference": False}

    def stop(progress):
        if progress.round == 2:
            raise Stop

    with pytest.raises(Stop):
        vitrail.run(config, tmp_path / "run", on_round=stop)
    assert Checkpoints(tmp_path / "run" / "server").newest() == 2
