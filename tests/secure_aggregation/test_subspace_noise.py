"""Distributed noise on subspaces: the sum is as private as the ledger says, and nothing else is."""

from __future__ import annotations

import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vitrail
from vitrail.aggregate.rule import Group
from vitrail.aggregate.subspace_tangent import GrassmannTangent
from vitrail.config import parse
from vitrail.config.schema import Aggregate
from vitrail.engine.plan import make_plan
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.geometry import canonicalize
from vitrail.geometry.frames import draw_frames
from vitrail.geometry.subspace_step import compute_step
from vitrail.release.accounting.accountant import Event, calibrate_noise, compute_epsilon
from vitrail.release.accounting.distinguishing_game import play
from vitrail.release.defenses.clipped_steps import clip_steps, follow_steps
from vitrail.release.defenses.subspace_dp import TANGENT, SubspaceDp
from vitrail.release.message import Field
from vitrail.release.update import Update
from vitrail.rng import Key, derive_site_key
from vitrail.secure_aggregation.fixed_point import BITS, from_fixed, to_fixed
from vitrail.secure_aggregation.graph import compute_threshold
from vitrail.secure_aggregation.shared_noise import SharedNoise

pytest.importorskip("cryptography")

KEY = Key(b"s" * 32)
EPSILON, DELTA, CLIP = 2.0, 1e-5, 0.7
NAME, SHAPE = "model/head.frames", (4, 5, 2)
NUMBERS = math.prod(SHAPE)


def compute_delta(p, q, epsilon):
    """The definition: sum of max(0, p - e^eps q)."""
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


@pytest.mark.parametrize("sites, threshold, colluding", [(4, 3, 0), (9, 7, 0), (9, 7, 4)])
def test_the_loss_of_the_sum_over_a_worst_case_pair_is_below_the_accounted_one(
    sites, threshold, colluding
):
    """The distribution of the sum of exactly the noise that nobody knows, number by number, and
    the same moved by the clip: the hockey-stick divergence at the accounted epsilon, added up."""
    del sites
    noise = calibrate_noise(EPSILON, DELTA, (Event(1.0),), "rdp")
    honest = threshold - colluding
    steps = 128.0  # of the grid, in a site's share
    shift = round(steps * math.sqrt(honest) / noise)  # the clip, in steps: the sum's deviation / z
    reach = np.arange(-int(10 * steps), int(10 * steps) + 1)
    one = np.exp(-(reach**2) / (2 * steps**2))
    one /= one.sum()
    total = one
    for _ in range(honest - 1):
        total = np.convolve(total, one)
    pad = np.zeros(shift)
    p, q = np.concatenate([total, pad]), np.concatenate([pad, total])
    assert compute_delta(p, q, EPSILON) <= DELTA and compute_delta(q, p, EPSILON) <= DELTA
    quarter = np.concatenate([total, np.zeros(4 * shift)])
    assert compute_delta(quarter, np.roll(quarter, 4 * shift), EPSILON) > 100 * DELTA
    assert compute_epsilon([Event(noise)], DELTA, "rdp") <= EPSILON * (1 + 1e-6)


def make_release(factor, colluding=0):
    """A round of 4 sites as it is played, but for masks: one site turns all its classes as far as
    it can, or sends back what it received; the others are still. Scores are along its direction."""
    received = draw_frames(SHAPE, KEY.at("received"))
    goal = draw_frames(SHAPE, KEY.at("goal"))
    group = Group((Field(NAME, SHAPE, "grassmann-tangent", geometry="grassmann"),))
    rule, packed = GrassmannTangent(group, Aggregate()), group.pack({NAME: received})
    base = {NAME: received.double()}
    noise = factor * calibrate_noise(EPSILON, DELTA, (Event(1.0),), "rdp")
    threshold = compute_threshold(4)

    def lift(frames):
        steps, _ = clip_steps({NAME: frames}, base, CLIP)
        sent = follow_steps(steps, base, {NAME: frames})
        return to_fixed(rule.lift(Update("s", 1, "train", sent), 1.0, packed), 4)

    there, still = lift(goal), lift(received)
    direction = from_fixed(there) / from_fixed(there).norm()
    assert float(from_fixed(there).norm()) == pytest.approx(CLIP, rel=1e-4)

    def mechanism(present, key):
        total = np.zeros_like(still)
        for site in range(threshold - colluding):  # whose noise nobody knows
            share = SharedNoise(CLIP * noise, colluding, [(0, NUMBERS)], key.at(site), CLIP)
            total += share.add(there if present and site == 0 else still, threshold)
        return float(from_fixed(total) @ direction)

    return mechanism


@pytest.mark.slow
@pytest.mark.parametrize("colluding", [0, 1])
def test_the_game_is_lost_at_the_accounted_epsilon_and_won_with_a_quarter_of_the_noise(colluding):
    honest = play(make_release(1.0, colluding), 1500, DELTA, KEY.at("game", colluding))
    lying = play(make_release(0.25, colluding), 1500, DELTA, KEY.at("game", colluding))
    assert honest.epsilon <= EPSILON < lying.epsilon


def make_site_release(factor):
    """`where = "site"`, through the defense and the rounding of the door: whoever sees the frame
    of a site takes the step to it, and looks along the direction of the worst case."""
    received = draw_frames(SHAPE, KEY.at("received"))
    goal = draw_frames(SHAPE, KEY.at("goal"))
    options = {"level": "site", "clip": CLIP, "epsilon": EPSILON, "delta": DELTA}
    defense = SubspaceDp("subspace-dp", options)
    field = Field(NAME, SHAPE, TANGENT, geometry="grassmann")
    stage = SimpleNamespace(schema=SimpleNamespace(up=(field,)))
    defense.setting = SimpleNamespace(rounds=1, stages=(stage,))
    defense.noise_at = lambda site, ctx: factor * defense.multiplier(site.name, 0)
    layout = SimpleNamespace(views=lambda _: {"head.frames": received})
    steps, _ = clip_steps({NAME: goal}, {NAME: received.double()}, CLIP)
    direction = steps[NAME] / steps[NAME].norm()

    def mechanism(present, key):
        model = SimpleNamespace(layout=layout)
        site = SimpleNamespace(name="a", model=model, received=torch.zeros(1), noise=key)
        update = Update("a", 1, "train", {NAME: goal if present else received.clone()})
        sent, _ = defense.apply(update, site, SimpleNamespace(round=1))
        frames = canonicalize(sent.tensors[NAME], like=received)
        return float((compute_step(received, frames) * direction).sum())

    return mechanism


@pytest.mark.slow
def test_the_game_is_lost_where_the_noise_is_the_site_s_own():
    honest = play(make_site_release(1.0), 1500, DELTA, KEY.at("site"))
    lying = play(make_site_release(0.25), 1500, DELTA, KEY.at("site"))
    assert honest.epsilon <= EPSILON < lying.epsilon


def norm_of(words, limit_span):
    """The exact norm of some words, in whole numbers."""
    return math.isqrt(sum(int(x) ** 2 for x in words[:limit_span].view(np.int64)))


@pytest.mark.parametrize("limit", [1e-3, 1.0, 300.0])
@pytest.mark.parametrize("case", ["huge", "at the limit", "one number", "rounded up", "nothing"])
def test_whatever_is_masked_is_no_longer_than_the_limit(limit, case):
    """A site whose update slipped past the clip, or was rounded up by the grid, is cut in the
    words themselves; refuted if the norm over all spans is over the limit by a single step."""
    values = {
        "huge": torch.full((300,), 1e6),
        "at the limit": torch.full((300,), limit / math.sqrt(300), dtype=torch.float64),
        "one number": torch.tensor([2 * limit] + [0.0] * 299, dtype=torch.float64),
        "rounded up": torch.full(
            (300,), (math.floor(limit / math.sqrt(300) * 2**BITS) + 0.5) / 2**BITS
        ).double(),
        "nothing": torch.zeros(300),
    }[case]
    words = np.concatenate([to_fixed(values, 4), to_fixed(torch.ones(1), 4)])
    noise = SharedNoise(0.5, 0, [(0, 100), (100, 300)], derive_site_key(1, "s"), limit)
    cut = noise._clip(words)
    assert norm_of(cut, 300) <= limit * 2.0**BITS
    assert cut[-1] == words[-1]  # the word that counts sites is none of its business
    if case == "nothing":
        assert not cut[:-1].any()
    if case == "huge":
        assert norm_of(cut, 300) > 0.999 * limit * 2.0**BITS


def test_wrapping_around_costs_accuracy_and_no_error():
    """Sums that pass 2^63 come out as other numbers; nothing is refused by what they hold."""
    words = np.full(8, np.uint64(2**63 - 1))
    noise = SharedNoise(1e5, 0, [(0, 8)], derive_site_key(1, "s"), 1.0)
    assert bool(torch.isfinite(from_fixed(noise.add(words, 3) + words)).all())


STEPS = {
    "method": {"name": "fedgrasp", "personal_epochs": 0, "consensus": "tangent"},
    "model": {"backbone": "small-cnn", "width": 4, "subspaces": {"depth": 8, "hidden": 8}},
}
SUBSPACE_DP = {
    "level": "site",
    "where": "distributed",
    "clip": 0.5,
    "epsilon": 8.0,
    "delta": 1e-3,
}


def sections(rounds=2, **options):
    release = {"defenses": ["subspace-dp"], "subspace-dp": {**SUBSPACE_DP, **options}}
    return copy.deepcopy(
        {**STEPS, "release": {**release, "secure_sum": True}, "run": {"rounds": rounds}}
    )


def read_frames(run, at):
    path = sorted((run.path / "server" / "checkpoints").glob("*"))[at]
    return read_tensors(path)[0]["model/head.frames"]


def test_a_run_has_the_noise_in_its_sum_and_the_ledger_says_unit_and_adversary(tiny):
    """With a step too small to see, the mean step is noise alone: of four shares, each of a
    variance of 1 / (3 - 1) of the promised one. Refuted if it is half or twice as large."""
    changed = sections(rounds=1, clip=1e-2, colluding=1)
    run = tiny("noisy", **changed, data={"aviary": {"classes": 6}})
    lines = [
        json.loads(line)
        for line in (run.path / "sites" / "site-01" / "ledger.jsonl").read_text().splitlines()
    ]
    budget = next(line for line in lines if line["kind"] == "budget")
    release = next(line for line in lines if line["kind"] == "release")
    spend = release["spends"][0]
    assert (
        budget["sites_for_a_step"] > 1 and "a whole site, moving or still" in release["guarantee"]
    )
    assert "the server with 1 of the sites" in release["guarantee"]
    assert spend["accountant"] == "rdp" and spend["epsilon"] <= 8.0 * (1 + 1e-6)
    assert release["defenses"][0]["figures"]["noise_l2"] == 0.0  # none of it is the site's alone
    before, after = read_frames(run, 0), read_frames(run, -1)
    step = compute_step(before, after)
    share = 1e-2 * spend["events"][0][0] / math.sqrt(compute_threshold(4) - 1)
    classes, n, p = before.shape
    free = classes * (n - p) * p
    wanted = share * math.sqrt(4) / 4 * math.sqrt(free)
    assert abs(float(step.norm()) / wanted - 1) < 0.35


def test_same_bits_for_one_and_two_workers_and_resumed(tiny, same_bits, tmp_path):
    one = tiny("one", **sections())
    two = tiny("two", **{**sections(), "run": {"rounds": 2, "workers": 2}})
    assert same_bits(one.path, two.path)

    def stop(progress):
        if progress.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny("three", on_round=stop, **sections())
    vitrail.resume(tmp_path / "three")
    assert same_bits(one.path, tmp_path / "three")


def test_a_sum_of_too_few_is_void_and_one_of_enough_is_not(tiny):
    """Half of the sites drop out: where fewer than t are left there is no sum, and so none with
    less noise than promised; nobody pays for a round that it was not in."""
    changed = sections(rounds=6, colluding=2)
    changed["run"]["dropout"] = 0.5
    run = tiny("lost", **changed)
    log = (run.path / "log.txt").read_text()
    assert "and 3 must stay" in log
    void = log.count("void, 0 accepted")
    assert 0 < void < 6 and not torch.equal(read_frames(run, 0), read_frames(run, -1))
    for file in run.path.glob("sites/*/ledger.jsonl"):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        spent = [line for line in lines if line.get("spends")]
        away = log.count(f"without {file.parent.name}: dropped out")
        assert len(spent) <= 6 - away
        assert all(line["spends"][0]["epsilon"] <= 8.0 * (1 + 1e-6) for line in spent)
        assert all("no formal guarantee" not in json.dumps(line["masked"]) for line in spent)


def test_training_that_broke_is_no_refusal(tiny):
    """A rate that blows every number up: whoever watches who answers learns nothing of it."""
    changed = sections(rounds=1)
    changed["optimizer"] = {"lr": 1e30}
    run = tiny("broken", **changed)
    lines = (run.path / "log.txt").read_text()
    assert "void" not in lines and bool(torch.isfinite(read_frames(run, -1)).all())


CLIENT_DP = {"epsilon": 8.0, "delta": 1e-3, "clip": 0.5}


@pytest.mark.parametrize("where", ["sum", "distributed"])
@pytest.mark.parametrize("name", ["client-dp", "subspace-dp"])
def test_the_noise_that_is_added_is_the_one_accounted_in_every_round(
    name, where, tiny_config, tmp_path
):
    """Under a schedule; refuted by a round whose sum gets less than its line in the ledger says,
    or a thousandth more."""
    options = SUBSPACE_DP if name == "subspace-dp" else CLIENT_DP
    schedule = {**options, "where": where, "schedule": [1.0, 0.5, 2.0]}
    release = {"defenses": [name], name: schedule, "secure_sum": where == "distributed"}
    model = {**STEPS["model"], "norm": "group"}
    method = STEPS["method"] if name == "subspace-dp" else {"name": "fedavg"}
    config = tiny_config(model=model, method=method, release=release)
    plan, _ = make_plan(parse(config, tmp_path), ("a", "b", "c"), 3)
    (defense,) = plan.defenses()
    rule = TANGENT if name == "subspace-dp" else "mean"
    site = SimpleNamespace(name="site-01", rows=SimpleNamespace(train=range(10)))
    for round_ in (1, 2, 3):
        ctx = plan.context(round_, 4)
        accounted = defense.noise_at(site, ctx)
        added = defense.shared_deviation(rule, ctx) or defense.deviation(rule, 4, ctx)
        assert accounted <= added / 0.5 <= accounted * 1.001


def test_too_many_colluders_are_refused(tiny):
    with pytest.raises(ConfigError, match="3 sites may collude"):
        tiny(**sections(colluding=3))


@pytest.mark.parametrize(
    "method, says",
    [
        ({"start": "patches", "consensus": "tangent"}, "random subspaces have no mean"),
        ({"weights": "class-counts", "consensus": "tangent"}, "class-counts"),
    ],
)
def test_steps_without_a_mean_are_refused(method, says, tiny):
    with pytest.raises(ConfigError, match=says):
        tiny(method={"name": "fedgrasp", **method}, model=STEPS["model"])


def test_the_rule_of_steps_learns_as_well_as_that_of_projectors_without_noise(tiny):
    """From the same start, with small steps: both means are the same to first order."""
    runs = {}
    for consensus in ("exact", "tangent"):
        method = {**STEPS["method"], "consensus": consensus}
        quiet = {**STEPS, "method": method, "run": {"rounds": 1}, "optimizer": {"lr": 1e-3}}
        runs[consensus] = read_frames(tiny(consensus, **quiet), -1)
    torch.testing.assert_close(runs["exact"], runs["tangent"], rtol=0, atol=1e-4)
