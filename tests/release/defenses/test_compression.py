"""Pruned and quantized updates: what is left out comes later, and bytes are told honestly."""

import json
import math

import numpy as np
import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.release import DEFENSES


def make(name, **options):
    return DEFENSES[name](name, options)


def change_of(desk, tensors):
    """The change of the trained tensors, in the order of the update, as one vector."""
    received = desk.site.model.layout.views(desk.site.received)
    trained = {f"model/{s.name}" for s in desk.site.model.layout.specs if s.trainable}
    return torch.cat([(t - received[n[6:]]).flatten() for n, t in tensors.items() if n in trained])


@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_the_largest_changes_leave_and_the_rest_is_kept(desk, share):
    d = desk()
    whole = change_of(d, d.update.tensors)
    found, figures = d.passed(make("prune", share=share))
    sent = change_of(d, found)
    order = np.argsort(-whole.abs().numpy())[: max(1, int(share * len(whole)))]
    expected = torch.zeros_like(whole)
    expected[order] = whole[order]
    torch.testing.assert_close(sent, expected, rtol=0, atol=1e-7)
    assert figures["kept"] == len(order)
    memory = d.site.state["release/prune"]
    torch.testing.assert_close(memory + sent, whole, rtol=0, atol=1e-7)
    assert figures["error_l2"] == pytest.approx(float(memory.double().norm()))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("prune", {"share": 0.2}),
        ("prune", {"share": 0.2, "select": "random"}),
        ("quantize", {"bits": 3, "rounding": "nearest"}),
        ("quantize", {"bits": 2}),
    ],
)
def test_with_feedback_nothing_is_lost(desk, name, options):
    """What left in three rounds and what is still kept add up to three changes."""
    d, total = desk(), 0.0
    for round_ in (1, 2, 3):
        d.site.key = d.site.key.at(round_)
        found, _ = d.passed(make(name, **options))
        total = total + change_of(d, found).double()
    whole = change_of(d, d.update.tensors).double()
    kept = d.site.state[f"release/{name}"].double()
    torch.testing.assert_close(total + kept, 3 * whole, rtol=0, atol=1e-5)
    d.site.state.clear()
    d.passed(make(name, feedback=False, **options))
    assert not d.site.state


def test_random_entries_without_feedback_have_no_bias(desk):
    d = desk(model={"backbone": "small-cnn", "width": 8})
    whole, total, repeats = change_of(d, d.update.tensors), 0.0, 400
    prune = make("prune", share=0.25, select="random", feedback=False)
    for at in range(repeats):
        d.site.key = d.site.key.at(at)
        total = total + change_of(d, d.passed(prune)[0]).double()
    error = (total / repeats - whole) / whole.abs().clamp_min(1e-9)
    # an entry is x/0.25 a quarter of the time: SD sqrt(3) |x|, so the mean error has SD 1/sqrt(N)
    assert abs(float(error.mean())) < 4 * math.sqrt(3 / repeats / len(whole))


def test_eight_bits_against_the_formula_and_rounding_without_bias(desk):
    d = desk(model={"backbone": "small-cnn", "width": 8})
    nearest, figures = d.passed(make("quantize", rounding="nearest", feedback=False))
    received = d.site.model.layout.views(d.site.received)
    for name, tensor in nearest.items():
        change = (d.update.tensors[name] - received[name[6:]]).double().numpy()
        step = np.abs(change).max() / 127
        slow = received[name[6:]].double().numpy() + np.round(change / step) * step
        np.testing.assert_allclose(tensor.double().numpy(), slow, atol=1e-7)
        assert len(np.unique(np.round(change / step))) <= 255
    numbers = sum(t.numel() for t in nearest.values())
    assert figures["coded_bytes"] == numbers + 4 * len(nearest)
    total, repeats = 0.0, 300
    loose = make("quantize", bits=3, feedback=False)
    for at in range(repeats):
        d.site.key = d.site.key.at(at)
        total = total + d.passed(loose)[0]["model/head.weight"].double()
    name = "model/head.weight"
    step = float((d.update.tensors[name] - received["head.weight"]).abs().max()) / 3
    error = total / repeats - d.update.tensors[name].double()
    # a rounding error has SD of at most step/2
    assert float(error.abs().max()) < 5 * step / 2 / math.sqrt(repeats)
    _, once = d.passed(make("quantize", bits=2, rounding="nearest"))
    assert once["coded_bytes"] == (2 * numbers + 7) // 8 + 4 * len(nearest)


@pytest.mark.parametrize("name", ["prune", "quantize"])
def test_statistics_frames_and_zeros_stay_as_they_are(desk, name):
    d = desk()
    found, figures = d.passed(make(name))
    whole = [n for n in found if "running" in n]
    assert whole and all(torch.equal(found[n], d.update.tensors[n]) for n in whole)
    assert figures["coded_bytes"] < sum(4 * t.numel() for t in found.values())
    received = d.site.model.layout.views(d.site.received)
    zeros = {n: received[n[6:]].clone() for n in d.update.tensors}
    d.site.state.clear()
    found, figures = d.passed(make(name), zeros)
    assert all(torch.equal(found[n], zeros[n]) for n in zeros) and figures["kept"] == 0
    json.dumps(figures, allow_nan=False)
    bent = desk(method={"name": "fedgrasp"}, model={"frozen": False})
    found, _ = bent.passed(make(name))
    frames = [f.name for f in bent.plan.stages[-1].schema.up if f.geometry == "grassmann"]
    assert frames and all(torch.equal(found[n], bent.update.tensors[n]) for n in frames)
    assert not set(frames) & set(make(name).touches(bent.plan.setting))


@pytest.mark.parametrize("name", ["prune", "quantize"])
def test_an_update_that_is_not_finite_is_withheld_and_not_remembered(desk, name):
    d = desk()
    bad = {**d.update.tensors, "model/head.bias": torch.full((3,), float("inf"))}
    found, figures = d.passed(make(name), bad)
    assert all(t.isnan().all() for t in found.values()) and figures == {"withheld": 1.0}
    assert not d.site.state


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("prune", {"share": 0.0}),
        ("prune", {"share": 1.5}),
        ("prune", {"share": float("nan")}),
        ("prune", {"select": "best"}),
        ("quantize", {"bits": 1}),
        ("quantize", {"bits": 8.5}),
    ],
)
def test_bad_options_are_refused(name, options):
    with pytest.raises(ConfigError, match=f"release.{name}.{next(iter(options))}"):
        make(name, **options)
