"""FedAux: the private score and what it weighs, against formulas and another library."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import vitrail
from vitrail.errors import ConfigError
from vitrail.local.public_score import fit_regression, score_features, sensitivity, to_unit_vectors
from vitrail.methods.fedaux import FedAux, weigh_logits
from vitrail.release.accounting import gaussian
from vitrail.rng import Key

KEY = Key(b"a key of tests")
PUBLIC = {"source": "embedded", "aviary": {"images": 24, "classes": 3, "seed": 11}}
AUX = {"name": "fedaux", "steps": 2, "negatives": 8}


def features(count, shift=0.0, name="x"):
    return torch.randn(count, 4, generator=KEY.at(name).torch()) + shift


@pytest.mark.parametrize(("own", "other"), [(30, 20), (1, 50), (40, 1)])
def test_the_regression_is_that_of_another_library(own, other):
    a, b = to_unit_vectors(features(own, 1.0, "a")), to_unit_vectors(features(other, -1.0, "b"))
    assert torch.allclose(torch.linalg.vector_norm(a, dim=1), torch.ones(own).double())
    w = fit_regression(a, b, penalty=0.1)
    strength = 1 / (0.1 * (own + other))  # its C weighs a sum where ours weighs a mean
    judge = LogisticRegression(C=strength, fit_intercept=False, tol=1e-12, max_iter=10_000)
    judge.fit(torch.cat([a, b]).numpy(), np.r_[np.ones(own), np.zeros(other)])
    assert torch.allclose(w, torch.from_numpy(judge.coef_[0]), atol=1e-5)
    mine = score_features(features(own, 1.0, "a"), w)
    assert torch.allclose(mine, torch.from_numpy(judge.predict_proba(a.numpy())[:, 1]), atol=1e-5)


def test_no_replaced_image_moves_it_further_than_its_sensitivity():
    """The worst of many replacements, opposite ones too; refuted by a single one beyond it."""
    own, other, penalty = features(12, 1.0, "a"), to_unit_vectors(features(6, -1.0, "b")), 0.05
    w, most = fit_regression(to_unit_vectors(own), other, penalty), sensitivity(18, penalty)
    moves = []
    for i in range(12):
        for new in (-own[i], 100 * features(1, 0, f"new {i}")[0], torch.zeros(4)):
            changed = own.clone()
            changed[i] = new
            moves.append(
                float((fit_regression(to_unit_vectors(changed), other, penalty) - w).norm())
            )
    assert 0 < max(moves) <= most


def test_broken_features_are_no_crash():
    w = fit_regression(to_unit_vectors(torch.zeros(3, 4)), to_unit_vectors(torch.zeros(2, 4)), 0.1)
    assert bool(torch.isfinite(w).all())
    assert float(score_features(torch.zeros(1, 4), w)) > 0.5  # three against two


def test_scores_weigh_logits_image_by_image():
    draw = KEY.torch()
    scores = torch.tensor([[0.9, 0.2, 0.0], [0.1, 0.2, 0.0]])
    logits = torch.randn(2, 3, 4, generator=draw, dtype=torch.float64)
    found = weigh_logits({str(k): (scores[k], logits[k]) for k in range(2)})
    for i in range(3):
        s = [max(float(scores[k, i]), 1e-3) for k in range(2)]
        slow = (s[0] * logits[0, i] + s[1] * logits[1, i]) / (s[0] + s[1])
        assert torch.allclose(found[i].double(), slow, atol=1e-6)


def test_public_images_are_parted_once_for_all_rounds(server):
    method = FedAux({"negatives": 4})
    parts = [
        method._split_public(server, SimpleNamespace(key=KEY.at("round", number)))
        for number in (1, 7)
    ]
    for side in (0, 1):
        assert np.array_equal(parts[0][side], parts[1][side])
    assert sorted([*parts[0][0], *parts[0][1]]) == list(range(10)) and len(parts[0][0]) == 4


@pytest.fixture(scope="module")
def scored(tmp_path_factory, tiny_config):
    """Warm-up, scoring, two rounds of training."""
    config = tiny_config(method=AUX, data={"public": PUBLIC}, run={"rounds": 4, "dropout": 0.2})
    return vitrail.run(config, tmp_path_factory.mktemp("scored") / "run")


def test_the_ledger_says_what_the_score_costs(scored):
    told = 0
    for site in scored.sites:
        text = (scored.path / "sites" / site / "ledger.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        for line in (line for line in lines if line["kind"] == "score"):
            release = next(
                r for r in lines if r["kind"] == "release" and r["round"] == line["round"]
            )
            assert line["bytes"] == release["bytes"] > 0
            count = release["counts"]["examples"] + AUX["negatives"]
            exact = gaussian.compute_sigma(1.0, 1e-5, 2 / (count * 0.1))
            assert line["sigma"] == pytest.approx(exact) and line["guarantee"].startswith("formal")
            told += 1
    assert told >= 2


def test_every_round_after_scoring_distills(scored):
    server = {r["round"]: r.get("image_steps") for r in scored.rows() if r["site"] == "*"}
    assert [bool(server[number]) for number in (1, 2, 3, 4)] == [False, False, True, True]


def test_too_few_public_images_are_refused_before_the_start(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"method\.negatives.*leave none of 24"):
        tiny("refused", method={**AUX, "negatives": 24}, data={"public": PUBLIC})
    with pytest.raises(ConfigError, match="leave none of 3 to train"):
        tiny("refused", method={**AUX, "warmup": 2}, data={"public": PUBLIC})
    assert not (tmp_path / "refused").exists()
