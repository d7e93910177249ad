"""Distributed noise: in the sum it is what was promised, at any one site a share of it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.release.accounting.discrete_sum import compute_effective_noise, compute_gap
from vitrail.release.masker import WithheldError
from vitrail.rng import derive_site_key
from vitrail.secure_aggregation.fixed_point import from_fixed
from vitrail.secure_aggregation.graph import compute_threshold
from vitrail.secure_aggregation.shared_noise import SharedNoise

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


def pmf(scale, span):
    """The definition of the discrete Gaussian, on -span .. span."""
    weights = np.exp(-(np.arange(-span, span + 1) ** 2) / (2 * scale**2))
    return weights / weights.sum()


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("order", [1.5, 2, 8])
def test_the_bound_of_the_sum_holds_for_the_exact_divergence(scale, count, order) -> None:
    """The Renyi divergence of the sum and its shift, added up over all whole numbers, against that
    of a Gaussian of the effective noise. Refuted if the gap is left out where it is large."""
    span = 60
    one = pmf(scale, span)
    total = one
    for _ in range(count - 1):
        total = np.convolve(total, one)
    p, q = total[1:], total[:-1]
    there = (p > 0) & (q > 0)  # what underflowed adds nothing that float64 could show
    terms = order * np.log(p[there]) + (1 - order) * np.log(q[there])
    exact = logsumexp(terms) / (order - 1)
    noise = compute_effective_noise(scale * math.sqrt(count), scale, count, 1)
    assert exact <= order / (2 * noise**2) * (1 + 1e-9) + 1e-12


def test_the_gap_is_that_of_the_paper_and_nothing_on_a_fine_grid() -> None:
    for scale, count in ((0.5, 4), (1.0, 10)):
        wanted = 10 * sum(
            math.exp(-2 * math.pi**2 * scale**2 * k / (k + 1)) for k in range(1, count)
        )
        assert wanted <= compute_gap(scale, count) <= wanted * count
    assert compute_gap(64.0, 10**6) == 0.0 and compute_gap(0.1, 1) == 0.0
    assert compute_effective_noise(2.0, 64.0, 100, 10**6) == 2.0
    assert compute_effective_noise(2.0, 0.5, 100, 10**6) < 0.1


def make_noise(site, deviation=0.5, colluding=0, size=20_000):
    key = derive_site_key(4, site).at("test")
    return SharedNoise(deviation, colluding, [(0, size)], key)


@pytest.mark.parametrize("colluding", [0, 3])
def test_the_noise_of_the_honest_sites_that_must_stay_is_the_one_promised(colluding) -> None:
    """Of 10 sites 7 must stay; without the colluders' shares the sum has the promised variance."""
    threshold = compute_threshold(10)
    zeros = np.zeros(20_001, np.uint64)
    shares = [
        make_noise(f"s{n}", colluding=colluding).add(zeros, threshold)
        for n in range(threshold - colluding)
    ]
    total = from_fixed(sum(shares, np.zeros_like(zeros)))
    assert float(total[-1]) == 0.0  # the word that counts sites has none
    measured = float(total[:-1].var())
    assert abs(measured / 0.25 - 1) < 5 * math.sqrt(2 / 20_000)
    assert abs(float(total[:-1].mean())) < 5 * 0.5 / math.sqrt(20_000)


def test_other_numbers_have_other_noise_and_the_same_the_same() -> None:
    noise, zeros = make_noise("s"), np.zeros(20_001, np.uint64)
    other = zeros.copy()
    other[0] = 1
    first = noise.add(zeros, 7)
    assert np.array_equal(noise.add(zeros, 7), first)
    assert np.mean(noise.add(other, 7)[1:-1] == first[1:-1]) < 1e-3
    assert np.mean(noise.add(zeros, 5)[:-1] == first[:-1]) < 1e-3


def test_noise_for_nobody_is_withheld() -> None:
    zeros = np.zeros(20_001, np.uint64)
    with pytest.raises(WithheldError, match="may collude"):
        make_noise("s", colluding=7).add(zeros, 7)
    with pytest.raises(WithheldError, match="grid"):
        make_noise("s", deviation=1e-9).add(zeros, 7)


DISTRIBUTED = {"epsilon": 8.0, "clip": 1.0, "where": "distributed"}


def sections(**options):
    release = {"defenses": ["client-dp"], "client-dp": {**DISTRIBUTED, **options}}
    small = {"backbone": "small-cnn", "width": 4}
    return {"model": small, "release": {**release, "secure_sum": True}, "run": {"rounds": 1}}


def final(run):
    return read_tensors(sorted((run.path / "server" / "checkpoints").glob("*"))[-1])[0]


def test_a_run_has_the_noise_in_its_sum_and_the_ledger_says_against_whom(tiny) -> None:
    """Refuted if the model moves by less or more than the noise in the mean of 4 sites."""
    run = tiny("noisy", **sections(colluding=1))
    quiet = sections()
    quiet["release"] = {"secure_sum": True}
    start = final(tiny("start", **{**quiet, "run": {"rounds": 1}, "optimizer": {"lr": 1e-9}}))
    raw = (run.path / "sites" / "site-01" / "ledger.jsonl").read_text().splitlines()
    lines = [json.loads(line) for line in raw]
    told = next(x for x in lines if x["kind"] == "release")
    spend = told["spends"][0]
    assert told["guarantee"].startswith("formal") and spend["epsilon"] <= 8.0 * (1 + 1e-6)
    assert "the server with 1 of the sites" in told["guarantee"] and spend["accountant"] == "rdp"
    noise = spend["events"][0][0]
    names = [n for n in start if n.startswith("model/") and start[n].is_floating_point()]
    moved = torch.cat([(final(run)[n] - start[n]).double().reshape(-1) for n in names])
    share = noise / math.sqrt(compute_threshold(4) - 1)
    wanted = share * math.sqrt(4) / 4  # of four shares, in the mean
    assert abs(float(moved.std()) / wanted - 1) < 0.1


@pytest.mark.parametrize("workers", [2])
def test_same_bits_for_one_and_two_workers(workers, tiny, same_bits) -> None:
    one = tiny("one", **sections())
    two = tiny("two", **{**sections(), "run": {"rounds": 1, "workers": workers}})
    assert same_bits(one.path, two.path)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"secure_sum": False}, "protects none of them alone"),
        ({"client-dp": {**DISTRIBUTED, "colluding": 3}}, "3 sites may collude"),
    ],
)
def test_what_protects_nobody_is_refused_before_the_run(change, said, tiny) -> None:
    wrong = sections()
    wrong["release"] = {**wrong["release"], **change}
    with pytest.raises(ConfigError, match=said):
        tiny(**wrong)
