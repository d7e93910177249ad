"""What hostile sites send, against the formulas of the papers written out slowly in float64."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch

from vitrail.config.hostile_section import Hostile
from vitrail.config.schema import Aggregate
from vitrail.geometry import deviation
from vitrail.geometry.frames import draw_frames
from vitrail.poisoning import POISONINGS, HostileView
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

KEY = derive_server_key(3)
SHAPES = {"model/a": (4, 3), "model/running_var": (3,), "model/b": (5,)}
C, N, P = 3, 8, 2
FRAMES = "model/head.frames"


def draw(*at, scale=0.1):
    generator = KEY.at(*at).torch()
    return {n: scale * torch.randn(s, generator=generator) for n, s in SHAPES.items()}


SENT = draw("sent", scale=1.0)


def make_view(attack, honest=7, hostile=2, rule="mean", **keys):
    def update(i):
        tensors = {n: SENT[n] + t for n, t in draw("site", i).items()}
        return Update(f"s{i}", 4, "train", tensors, {"examples": 10}, {"loss": 1.0})

    updates = [update(i) for i in range(honest + hostile)]
    fields = tuple(Field(n, s, rule) for n, s in SHAPES.items())
    return HostileView(
        options=Hostile(attack=attack, **keys),
        sent=SENT,
        honest=updates[:honest],
        trained=updates[honest:],
        schema=Schema(fields, fields, ("examples",), ("loss",)),
        aggregate=Aggregate(rule=rule, max_norm=1e6),
        weights={f"s{i}": 1.0 + i for i in range(honest + hostile)},
        statistics=frozenset({"model/running_var"}),
        classes=C,
        target=0,
        source=None,
        key=KEY,
    )


def change(update):
    """What an attack moves of an update, number by number."""
    pairs = [(update.tensors[n], SENT[n]) for n in ("model/a", "model/b")]
    return [float(x) - float(y) for a, b in pairs for x, y in zip(a.reshape(-1), b.reshape(-1))]


def columns(updates):
    return list(zip(*[change(u) for u in updates]))


def mean(values):
    return sum(values) / len(values)


def std(values):
    return math.sqrt(mean([(v - mean(values)) ** 2 for v in values]))


def send(view):
    return POISONINGS[view.options.attack]().craft(view)


def close(found, wanted):
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_sign_flip():
    view = make_view("sign-flip", strength=3.0)
    for sent, trained in zip(send(view), view.trained):
        close(change(sent), [-3 * x for x in change(trained)])


def test_model_replacement_makes_the_mean_the_hostile_model():
    view = make_view("model-replacement", hostile=1)
    crafted = send(view)
    total = sum(view.weights.values())
    for at, column in enumerate(columns([*view.honest, *crafted])):
        mixed = sum(view.weights[f"s{i}"] * x for i, x in enumerate(column)) / total
        honest = sum(view.weights[u.site] * change(u)[at] for u in view.honest) / total
        assert mixed == pytest.approx(honest + change(view.trained[0])[at], rel=1e-3, abs=1e-5)


def test_little_is_enough():
    view = make_view("little-is-enough", honest=8, hostile=2)
    z = NormalDist().inv_cdf((10 - 2 - (10 // 2 + 1 - 2)) / (10 - 2))
    close(change(send(view)[0]), [mean(c) - z * std(c) for c in columns(view.honest)])


def test_inner_product():
    view = make_view("inner-product", strength=2.0)
    close(change(send(view)[1]), [-2 * mean(c) for c in columns(view.honest)])


@pytest.mark.parametrize("attack", ["min-max", "min-sum"])
def test_hidden_attacks_go_as_far_as_they_may(attack):
    view = make_view(attack)
    honest, crafted = [change(u) for u in view.honest], change(send(view)[0])

    def square(a, b):
        return sum((x - y) ** 2 for x, y in zip(a, b))

    away = [square(crafted, h) for h in honest]
    between = [[square(a, b) for b in honest] for a in honest]
    if attack == "min-max":
        assert max(away) == pytest.approx(max(map(max, between)), rel=1e-4)
    else:
        assert sum(away) == pytest.approx(max(map(sum, between)), rel=1e-4)
    moved = [x - mean(c) for x, c in zip(crafted, columns(view.honest))]
    ratio = {round(m / std(c), 3) for m, c in zip(moved, columns(view.honest))}
    assert len(ratio) == 1 and ratio.pop() < 0  # one step along minus the deviations


@pytest.mark.parametrize("rule", ["mean", "median", "multi-krum"])
def test_the_adaptive_attack_is_at_least_as_bad_as_staying_honest(rule):
    view = make_view("adaptive", rule=rule)
    honest = [mean(c) for c in columns(view.honest)]
    attack = POISONINGS["adaptive"]()
    forward = torch.tensor(honest, dtype=torch.float64)
    forward /= forward.norm()
    sent = torch.tensor(change(send(view)[0]), dtype=torch.float64)
    worse = attack._measure(view, sent, forward)
    assert worse < attack._measure(view, torch.tensor(honest, dtype=torch.float64), forward)
    if rule == "mean":
        assert worse < 0  # a plain mean is turned around


@pytest.mark.parametrize("attack", [n for n in POISONINGS if not n.startswith("prototype")])
def test_what_is_sent_still_looks_like_an_update(attack):
    view = make_view(attack)
    crafted = send(view)
    assert [u.site for u in crafted] == [u.site for u in view.trained]
    for sent, trained in zip(crafted, view.trained):
        assert (sent.round, sent.stage, sent.counts) == (4, "train", trained.counts)
        assert torch.equal(sent.tensors["model/running_var"], trained.tensors["model/running_var"])
        assert all(t.isfinite().all() and t.dtype == torch.float32 for t in sent.tensors.values())


@pytest.mark.parametrize("attack", ["min-max", "min-sum", "little-is-enough", "adaptive"])
@pytest.mark.parametrize(("honest", "hostile"), [(0, 2), (1, 1), (1, 3)])
def test_few_or_no_honest_sites_are_no_crash(attack, honest, hostile):
    for sent in send(make_view(attack, honest, hostile)):
        assert all(t.isfinite().all() for t in sent.tensors.values())


def part_view(attack, name, sent, embed=None, **keys):
    fields = (
        Field(
            name,
            tuple(sent.shape),
            "mean",
            geometry="grassmann" if sent.dim() == 3 else "euclidean",
        ),
    )
    moved = {name: sent.clone()}
    return HostileView(
        options=Hostile(attack=attack, **keys),
        sent={name: sent},
        honest=[Update("a", 1, "t", moved)],
        trained=[Update("b", 1, "t", moved)],
        schema=Schema(fields, fields, ()),
        aggregate=Aggregate(),
        weights={"a": 1.0, "b": 1.0},
        statistics=frozenset(),
        classes=C,
        target=1,
        source=None,
        key=KEY,
        embed=embed,
    )


def test_a_thief_takes_the_place_of_another_class():
    vectors = torch.rand(C * 4, 5, generator=KEY.at("v").torch())
    sent = send(part_view("prototype-theft", "model/head.vectors", vectors))[0]
    found = sent.tensors["model/head.vectors"]
    assert torch.equal(found[4:8], vectors[8:12]) and torch.equal(found[:4], vectors[:4])
    frames = draw_frames((C, N, P), KEY.at("f"))
    stolen = send(
        part_view(
            "prototype-theft",
            FRAMES,
            frames,
        )
    )[0].tensors[FRAMES]
    torch.testing.assert_close(stolen[1] @ stolen[1].T, frames[2] @ frames[2].T, rtol=0, atol=1e-5)
    torch.testing.assert_close(stolen[0], frames[0], rtol=0, atol=1e-5)


def test_prototypes_and_subspaces_move_onto_the_trigger():
    vectors, trigger = torch.rand(C * 4, 5, generator=KEY.at("v").torch()), torch.arange(5.0)
    view = part_view("prototype-trigger", "model/head.vectors", vectors, lambda: trigger)
    found = send(view)[0].tensors["model/head.vectors"]
    torch.testing.assert_close(found[4:8], trigger.expand(4, -1), rtol=0, atol=1e-6)
    frames, trigger = draw_frames((C, N, P), KEY.at("f")), torch.arange(1.0, N + 1)
    found = send(part_view("prototype-trigger", FRAMES, frames, lambda: trigger))[0].tensors[FRAMES]
    assert deviation(found).max() < 1e-5
    unit = trigger / trigger.norm()
    assert float((found[1].T @ unit).norm()) == pytest.approx(1.0, abs=1e-5)
