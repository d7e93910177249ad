"""The table of where noise is added: its sums are those of the package, its noise what it says."""

from __future__ import annotations

import json
import math
import sys

import pytest
import torch
from experiments.figures.where_noise_figure import draw_figure
from experiments.tables import where_noise
from experiments.tables.noise_learners import Linear, Projectors, Steps, deal, load_digits

from vitrail.aggregate.rule import Group
from vitrail.aggregate.subspace_rules import Grassmann
from vitrail.aggregate.subspace_tangent import GrassmannTangent
from vitrail.config.schema import Aggregate
from vitrail.geometry import grassmann
from vitrail.geometry.retraction import polar
from vitrail.release.defenses.clipped_steps import clip_steps, follow_steps
from vitrail.release.message import Field
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

pytest.importorskip("sklearn")

KEY = derive_server_key(2)
NAME = "model/head.frames"


def add_up_by_rule(rule_class, rule, model, updates):
    """What the package's rule makes of sites' frames."""
    group = Group((Field(NAME, tuple(model.shape), rule, torch.float64, geometry="grassmann"),))
    added = rule_class(group, Aggregate())
    sent = group.pack({NAME: model})
    parts = [added.lift(Update("s", 1, "train", {NAME: u}), 1.0, sent) for u in updates]
    return sum(parts), added, sent


@pytest.mark.parametrize("clip", [0.05, 3.0])
def test_a_round_of_the_table_is_a_round_of_the_package(clip):
    """Sites' steps become frames, are clipped by the defense, lifted and averaged by the rule."""
    learner = Steps()
    x, y = deal(load_digits(1)[0], 8)
    model = learner.start(KEY)
    steps = learner.compute_steps(model, x, y, 0.5)
    frames = [polar(model, step) for step in steps]
    updates = []
    for one in frames:
        clipped, _ = clip_steps({NAME: one}, {NAME: model}, clip)
        updates.append(follow_steps(clipped, {NAME: model}, {NAME: one})[NAME])
    total, rule, sent = add_up_by_rule(GrassmannTangent, "grassmann-tangent", model, updates)
    torch.testing.assert_close(
        learner.add_up(model, x, y, 0.5, clip).reshape(-1), total, rtol=1e-6, atol=1e-8
    )
    wanted = rule.finish(total, 8.0, sent)[0][NAME]
    moved = learner.move(model, total.view(model.shape) / 8)
    assert grassmann.projection_distance(moved, wanted.double()).max() < 1e-6


def test_whole_projectors_are_those_of_the_exact_rule():
    learner = Projectors()
    x, y = deal(load_digits(1)[0], 8)
    model = learner.start(KEY)
    frames = polar(model, learner.compute_steps(model, x, y, 0.5))
    total, rule, sent = add_up_by_rule(Grassmann, "grassmann", model, list(frames))
    moved = learner.move(model, learner.add_up(model, x, y, 0.5, None) / 8)
    wanted = rule.finish(total, 8.0, sent)[0][NAME]
    assert grassmann.projection_distance(moved, wanted.double()).max() < 1e-6


@pytest.mark.parametrize(
    "where, factor", [("site", math.sqrt(32)), ("sum", 1.0), ("distributed", math.sqrt(32 / 22))]
)
def test_the_sum_has_the_noise_of_its_place(where, factor):
    """Of 32 sites 22 must stay, so shares are made for 22 and 32 of them add up."""
    zeros = torch.zeros(40_000, dtype=torch.float64)
    noisy = where_noise.disturb(zeros, 32, where, 0.7, KEY.at(where))
    assert float(noisy.std()) == pytest.approx(0.7 * factor, rel=0.02)
    assert where_noise.disturb(zeros, 32, "none", 0.7, KEY) is zeros


def test_clips_are_joint_and_both_models_learn_without_noise():
    parts = load_digits(1)
    for learner in (Linear(), Steps()):
        x, y = deal(parts[0], 12)
        model = learner.start(KEY)
        one = learner.add_up(model, x[:1], y[:1], 2.0, 0.2)
        assert float(one.norm()) == pytest.approx(0.2, rel=1e-9)
        trained = where_noise.train(learner, parts[0], 8, "none", 0.0, 1.0, 0.5, KEY)
        assert learner.score(trained, parts[2]) > 0.85


def test_a_table_that_was_stopped_goes_on_and_hides_what_is_near_chance(tmp_path, monkeypatch):
    cells = [("linear", 8, "none", 0.0), ("linear", 8, "sum", 16.0), ("linear", 8, "site", 1.0)]
    monkeypatch.setattr(where_noise, "list_cells", lambda: cells)
    monkeypatch.setattr(where_noise, "ROUNDS", 3)
    monkeypatch.setattr(where_noise, "SEEDS", (1, 2))
    monkeypatch.setattr(where_noise, "CLIPS", (0.3, 1.0))
    rows, out = tmp_path / "rows.jsonl", tmp_path / "figure.svg"
    monkeypatch.setattr(sys, "argv", ["where", "--out", str(out), "--rows", str(rows)])
    where_noise.main()
    first = rows.read_text()
    rows.write_text("".join(first.splitlines(True)[:1]))
    where_noise.main()
    assert rows.read_text() == first and out.stat().st_size > 1000
    told = [json.loads(line) for line in first.splitlines()]
    assert {row["where"] for row in told} == {"none", "sum", "site"}
    low = [{**row, "accuracy": 0.11} for row in told]
    draw_figure(low, tmp_path / "empty.svg")  # nothing to show is no error
