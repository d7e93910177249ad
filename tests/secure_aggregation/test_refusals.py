"""Whether a site takes part in a sum with shared noise must not depend on its images: what does not
fit is cut, and what could be refused by data is refused before the run."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.release.masker import WithheldError
from vitrail.release.update import Update
from vitrail.rng import derive_site_key
from vitrail.secure_aggregation.fixed_point import compute_largest_summand, from_fixed
from vitrail.secure_aggregation.masking import UpdateMasker
from vitrail.secure_aggregation.shared_noise import SharedNoise

pytest.importorskip("cryptography")

SITES = 4


def make_masker(value, noisy=True, refusal=None):
    """A masker of one number; what it would mask is in `_words`."""
    state = SimpleNamespace(weights=dict.fromkeys("abcd", 1.0), threshold=3)
    steps = SimpleNamespace(site="a", check_masking=lambda *_: state)
    noise = [SharedNoise(1.0, 0, [(0, 1)], derive_site_key(1, "a"))] if noisy else []
    return UpdateMasker(
        1,
        "message",
        steps,
        SimpleNamespace(cohort="x"),
        8,
        lift=lambda *_: torch.tensor([value, 1.0], dtype=torch.float64),
        refusal=lambda *_: refusal,
        noise=noise,
    )


UPDATE = Update("a", 1, "train", {})


@pytest.mark.parametrize("change", [-1.0, 0.0, 1.0])
def test_a_model_at_the_edge_of_the_range_is_no_probe(change):
    """A lying server sends a model whose number is just below the largest that fits, and asks
    whether the site can answer: its answer told the sign of the change, without noise."""
    edge = compute_largest_summand(SITES)
    masker = make_masker(edge + change)
    masker.prepare(UPDATE)
    assert abs(float(from_fixed(masker._words)[0]) - edge) < 20
    assert float(from_fixed(masker._words)[1]) == 1.0
    if change > 0:
        with pytest.raises(WithheldError, match="does not fit"):
            make_masker(edge + change, noisy=False).prepare(UPDATE)


def test_a_refusal_under_noise_tells_no_number_of_the_site():
    told = "it changes the model by 0.312, over the limit 0.1"
    with pytest.raises(WithheldError) as err:
        make_masker(0.0, refusal=told).prepare(UPDATE)
    assert not any(letter.isdigit() for letter in str(err.value))
    with pytest.raises(WithheldError, match="model by 0"):
        make_masker(0.0, noisy=False, refusal=told).prepare(UPDATE)


CLIENT = {"release": {"defenses": ["client-dp"], "client-dp": {"clip": 2.0}}}
SUBSPACE = {
    "method": {"name": "fedgrasp", "consensus": "tangent", "personal_epochs": 0},
    "release": {"defenses": ["subspace-dp"], "subspace-dp": {"clip": 2.0, "level": "site"}},
}


@pytest.mark.parametrize("name, sections", [("client-dp", CLIENT), ("subspace-dp", SUBSPACE)])
def test_a_guard_that_could_refuse_by_data_is_refused_before_the_run(name, sections, tiny):
    """With a small `aggregate.max_norm` in the terms each site's own guard refused its update,
    before any noise, and told the server how long it was."""
    changed = copy.deepcopy(sections)
    changed["release"] |= {"secure_sum": True}
    changed["release"][name] |= {"where": "distributed", "epsilon": 8.0, "delta": 1e-3}
    model = {"backbone": "small-cnn", "width": 4, "subspaces": {"depth": 8, "hidden": 8}}
    with pytest.raises(ConfigError, match="guard"):
        tiny(**changed, model=model, run={"rounds": 1}, aggregate={"max_norm": 1.0})
