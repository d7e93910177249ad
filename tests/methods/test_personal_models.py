"""FedRep and Ditto against their formulas in float64."""

import pytest
import torch
from tests.methods.test_right_answers import LR, SEED, SMOOTH, Oracle

from vitrail.local.inputs import draw_epoch
from vitrail.rng import derive_site_key


def batches(o, site, round_, phase, epochs):
    """The batches of one phase of a turn."""
    generator = derive_site_key(SEED, site).at("round", round_, phase, "batches").torch()
    rows = o.sites[site].train
    for _ in range(epochs):
        for at in draw_epoch(len(rows), o.run.batch_size, generator):
            pick = rows[at.numpy()]
            yield o.normalize(o.images[pick]).double(), torch.from_numpy(o.labels[pick])


def head_mask(o):
    """1 at numbers of the head, 0 elsewhere."""
    sizes = [(n, p.numel()) for n, p in o.network.named_parameters()]
    return torch.cat([torch.full((k,), float(n.startswith("head."))) for n, k in sizes]).double()


def test_fedrep(tiny, tiny_config, ending):
    config = {**SMOOTH, "method": {"name": "fedrep", "head_epochs": 3}}
    o = Oracle(tiny_config(**config))
    head = head_mask(o)
    assert 0 < head.sum() < len(head)
    body, heads = o.start, dict.fromkeys(o.size, o.start)
    for r in range(1, o.run.rounds + 1):
        found = {}
        for site in o.chosen(r):
            w = (1 - head) * body + head * heads[site]
            for batch in batches(o, site, r, "head", 3):
                w = w - LR * head * o.gradient(w, batch)
            for batch in batches(o, site, r, "body", o.run.local_epochs):
                w = w - LR * (1 - head) * o.gradient(w, batch)
            found[site], heads[site] = w, w
        body = o.mean(found)
    path = tiny(**config).path
    tensors = ending(path)
    for name, value in o.named(body).items():
        if not name.startswith("head."):
            torch.testing.assert_close(tensors[f"model/{name}"].double(), value, rtol=0, atol=1e-5)
    for site, w in heads.items():
        for name, value in o.named(w).items():
            if name.startswith("head.") and (w is not o.start):
                torch.testing.assert_close(
                    tensors[f"{site}/home/{name}"].double(), value, rtol=0, atol=1e-5
                )
    assert max(float((head * (w - o.start)).abs().max()) for w in heads.values()) > 1e-3


def test_ditto(tiny, tiny_config, ending):
    lam = 0.8
    config = {**SMOOTH, "method": {"name": "ditto", "lam": lam, "personal_epochs": 3}}
    o = Oracle(tiny_config(**config))
    x, personal = o.start, {}
    for r in range(1, o.run.rounds + 1):
        found = {}
        for site in o.chosen(r):
            v = personal.get(site, x).clone()
            for batch in batches(o, site, r, "personal", 3):
                v = v - LR * (o.gradient(v, batch) + lam * (v - x))
            personal[site], w = v, x.clone()
            for batch in o.batches(site, r):
                w = w - LR * o.gradient(w, batch)
            found[site] = w
        x = o.mean(found)
    run = tiny(**config)
    o.close_to(x, ending(run.path))
    for site, v in personal.items():
        network = run.model(site)
        for name, value in o.named(v).items():
            tensor = network.network.get_parameter(name).detach().double()
            torch.testing.assert_close(tensor, value, rtol=0, atol=1e-5)
        assert (v - x).abs().max() > 1e-3


@pytest.mark.parametrize("lam", [0.0, 2.0])
def test_the_global_model_of_ditto_is_that_of_fedavg(tiny, ending, lam):
    """BatchNorm statistics too: what a site trains for itself leaves no trace in what it sends."""
    plain = ending(tiny("plain").path)
    found = ending(tiny("ditto", method={"name": "ditto", "lam": lam}).path)
    assert all(torch.equal(found[name], tensor) for name, tensor in plain.items())


def test_a_site_is_judged_by_its_own_model(tiny):
    """Far from the global one here, so that figures of the two differ."""
    run = tiny(method={"name": "ditto", "lam": 0.0, "personal_epochs": 8}, optimizer={"lr": 0.1})
    plain = tiny("plain", optimizer={"lr": 0.1})
    last = {row["site"]: row.get("loss") for row in run.rows() if row["round"] == 3}
    shared = {row["site"]: row.get("loss") for row in plain.rows() if row["round"] == 3}
    sites = [site for site in run.sites if last[site] is not None]
    assert sites and all(last[site] != shared[site] for site in sites)
