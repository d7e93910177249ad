"""A label histogram with noise: the law of its noise, and that it is told, and paid for, once."""

import json
import math

import numpy as np
import pytest
import torch

from vitrail.aggregate.subspace_rules import CLASS_COUNTS
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.local.label_histogram import privatize_histogram
from vitrail.methods import METHODS
from vitrail.release.lifetime_spending import read_spending
from vitrail.rng import derive_server_key

KEY = derive_server_key(6)
PRIVATE = {"name": "fedgrasp", "weights": "class-counts", "counts_epsilon": 0.5}


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_noise_is_discrete_laplace_of_scale_two_over_epsilon(epsilon):
    counts = torch.full((100_000,), 1000)
    noise = (privatize_histogram(counts, epsilon, KEY.at(epsilon).stream()) - counts).numpy()
    ratio = math.exp(-epsilon / 2)
    for value in range(-4, 5):
        chance = (1 - ratio) / (1 + ratio) * ratio ** abs(value)
        deviation = math.sqrt(chance * (1 - chance) / len(noise))
        assert abs((noise == value).mean() - chance) < 5 * deviation


def test_one_image_of_another_class_changes_any_outcome_by_a_factor_of_e_to_epsilon_at_most():
    """The literal law of two neighbors' histograms, summed over a grid of outcomes."""
    epsilon, reach = 0.7, 60
    ratio = math.exp(-epsilon / 2)
    outcomes = np.arange(-reach, reach + 1)

    def law(count):
        return (1 - ratio) / (1 + ratio) * ratio ** np.abs(outcomes - count)

    here = np.outer(law(3), law(5))
    there = np.outer(law(2), law(6))
    assert (here / there).max() <= math.exp(epsilon) * (1 + 1e-12)
    assert (here / there).max() == pytest.approx(math.exp(epsilon))  # and no noise is wasted


def test_counts_are_whole_and_never_below_nothing():
    told = privatize_histogram(torch.zeros(1000, dtype=torch.int64), 0.1, KEY.at("zero").stream())
    assert told.dtype == torch.int64 and told.min() == 0 and told.max() > 5
    assert privatize_histogram(torch.empty(0), 1.0, KEY.stream()).numel() == 0


def test_a_run_tells_the_same_histogram_in_every_round_and_pays_once(tiny):
    run = tiny(method=PRIVATE, run={"local_reference": False, "record_updates": True, "rounds": 3})
    files = sorted((run.path / "server" / "transcript").rglob("*.safetensors"))
    told = {}
    for file in files:
        tensors = read_tensors(file)[0]
        if CLASS_COUNTS in tensors:
            told.setdefault(file.stem, []).append(tensors[CLASS_COUNTS])
    assert len(told) == 4 and all(len(rounds) == 3 for rounds in told.values())
    for rounds in told.values():
        assert all(torch.equal(counts, rounds[0]) for counts in rounds)
    for site in run.sites:
        lines = [json.loads(x) for x in (run.path / f"sites/{site}/ledger.jsonl").open()]
        mine = [line for line in lines if line["kind"] == "label histogram"]
        assert len(mine) == 1 and mine[0]["epsilon"] == 0.5
        assert mine[0]["guarantee"].startswith("formal")
        assert [e for e, _ in read_spending(lines).others] == [0.5]
        assert not read_spending(lines).bounded  # the updates beside it have no proof


def test_it_is_not_the_exact_histogram(tiny):
    kept = {"local_reference": False, "record_updates": True, "rounds": 1}
    exact = {k: v for k, v in PRIVATE.items() if k != "counts_epsilon"}
    counts = []
    for name, method in (("private", PRIVATE), ("exact", exact)):
        run = tiny(name, method=method, run=kept)
        files = sorted((run.path / "server" / "transcript").rglob("*.safetensors"))
        tensors = [read_tensors(file)[0] for file in files]
        counts.append(torch.stack([t[CLASS_COUNTS] for t in tensors if CLASS_COUNTS in t]))
    assert counts[0].shape == counts[1].shape and not torch.equal(*counts)


def test_a_budget_without_counts_is_refused():
    with pytest.raises(ConfigError, match="counts_epsilon"):
        METHODS["fedgrasp"]({"counts_epsilon": 1.0})
