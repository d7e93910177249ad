"""FedLC: the loss is the literal formula, the shift is gone from the model, dp-sgd refuses it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitrail.config import parse
from vitrail.engine.federation import load_federation
from vitrail.engine.run import start
from vitrail.errors import ConfigError
from vitrail.local.phases.fit_calibrated import compute_label_shift
from vitrail.local.terms import Objective
from vitrail.runs.opened_run import Run

COUNTS = torch.tensor([9, 1, 0])
SMALL = {
    "data": {"image_size": 16, "aviary": {"images": 60, "classes": 3}},
    "partition": {"sites": 3, "kind": "dirichlet", "alpha": 0.2},
    "model": {"backbone": "small-cnn", "width": 4, "norm": "group"},
    "run": {"rounds": 2, "batch_size": 16},
}


def test_the_root_margin_is_fedlcs_loss():
    logits, labels = torch.randn(7, 3, dtype=torch.float64), torch.arange(7) % 3
    tau, counts = 0.7, COUNTS.double() + 0.01
    top = torch.exp(logits - tau * counts**-0.25)
    literal = -(top[torch.arange(7), labels] / top.sum(1)).log().mean()
    shift = compute_label_shift(COUNTS, "root", tau, 0.01)
    torch.testing.assert_close(F.cross_entropy(logits + shift, labels), literal, rtol=0, atol=1e-5)


def test_the_log_margin_at_strength_1_is_balanced_softmax():
    logits, labels = torch.randn(7, 3, dtype=torch.float64), torch.arange(7) % 2
    weighted = (COUNTS + 1e-8) * logits.exp()
    literal = -(weighted[torch.arange(7), labels] / weighted.sum(1)).log().mean()
    shift = compute_label_shift(COUNTS, "log", 1.0, 1e-8)
    torch.testing.assert_close(F.cross_entropy(logits + shift, labels), literal, rtol=0, atol=1e-5)


def test_a_class_that_a_site_lacks_is_hardly_pushed_away():
    logits = torch.zeros(1, 3, requires_grad=True)
    shift = compute_label_shift(COUNTS, "log", 1.0, 1e-8)
    F.cross_entropy(logits + shift, torch.tensor([0])).backward()
    assert logits.grad is not None and float(logits.grad[0, 2].abs()) < 1e-6
    assert float(logits.grad[0, 1]) == pytest.approx(0.1, abs=1e-6)  # softmax of the counts


def test_every_site_trains_by_its_own_counts(tmp_path, monkeypatch):
    seen, forward = [], Objective.__call__

    def watch(self, batch):
        with torch.no_grad():
            seen.append(self.forward(batch[0])["logits"] - self.network.rest(batch[0])["logits"])
        return forward(self, batch)

    monkeypatch.setattr(Objective, "__call__", watch)
    options = {"name": "fedlc", "margin": "log", "strength": 2.0, "smoothing": 0.5}
    loaded = parse({**SMALL, "method": options})
    start(loaded, tmp_path / "run")
    federation = load_federation(loaded)
    labels = federation.images.labels
    wanted = set()
    for rows in federation.sites.values():
        counts = np.bincount(labels[rows.train], minlength=3) + 0.5
        wanted.add(tuple(np.round(2 * np.log(counts / counts.sum()), 3)))
    found = {tuple(np.round(row.numpy().astype(float), 3)) for rows in seen for row in rows}
    assert all(min(np.abs(np.subtract(f, w)).max() for w in wanted) < 0.01 for f in found)
    assert all(min(np.abs(np.subtract(f, w)).max() for f in found) < 0.01 for w in wanted)


def test_strength_0_is_fedavg(tmp_path):
    start(parse({**SMALL, "method": {"name": "fedavg"}}), tmp_path / "plain")
    none = {"name": "fedlc", "strength": 0.0}
    start(parse({**SMALL, "method": none}), tmp_path / "none")
    ours, theirs = (Run(tmp_path / name).model().state_dict() for name in ("none", "plain"))
    assert theirs and all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_clipping_single_examples_does_not_cover_it(tmp_path):
    private = {"release": {"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 8.0, "delta": 1e-3}}}
    with pytest.raises(ConfigError, match="past the clipping"):
        start(parse({**SMALL, **private, "method": {"name": "fedlc"}}), tmp_path / "run")
