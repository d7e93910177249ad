"""Methods against slow transcriptions of their update rules in float64, batch by batch."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from vitrail.aggregate.sums import Sums
from vitrail.config import parse
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.federation import assemble
from vitrail.engine.plan import make_plan
from vitrail.engine.sampling import draw_sites
from vitrail.errors import ConfigError
from vitrail.local.inputs import draw_epoch
from vitrail.local.loop import train
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Site
from vitrail.methods import METHODS, Server
from vitrail.methods.fednova import effective_steps
from vitrail.models.backbone import Backbone
from vitrail.models.flat import FlatModel
from vitrail.models.heads.head import Head
from vitrail.models.network import Network
from vitrail.rng import derive_server_key, derive_site_key

LR, SEED = 0.1, 5
SMOOTH = {  # small, smooth and without statistics, so that float64 stays close for rounds
    "model": {"backbone": "lenet", "width": 4},
    "run": {"rounds": 4, "participation": 0.5, "local_epochs": 2},
    "optimizer": {"lr": LR},
}


class Oracle:
    """The same data and batches, one flat float64 vector, and nothing else of the engine."""

    def __init__(self, config):
        loaded = parse(config)
        federation = assemble(loaded)
        _, network = make_plan(loaded, federation.images.classes, 3)
        self.run = loaded.config.run
        self.images, self.labels = federation.images.images, federation.images.labels
        self.sites, self.normalize = federation.sites, Normalize.of(loaded.config, 3)
        self.network = copy.deepcopy(network).double()
        self.names = [name for name, _ in self.network.named_parameters()]
        self.start = torch.cat([p.detach().reshape(-1) for p in self.network.parameters()])
        self.size = {name: len(rows.train) for name, rows in self.sites.items()}

    def batches(self, site, round_):
        key = derive_site_key(SEED, site).at("round", round_, "fit", "batches")
        rows, generator = self.sites[site].train, key.torch()
        for _ in range(self.run.local_epochs):
            for at in draw_epoch(len(rows), self.run.batch_size, generator):
                pick = rows[at.numpy()]
                yield (
                    self.normalize(self.images[pick]).double(),
                    torch.from_numpy(self.labels[pick]),
                )

    def named(self, w):
        shapes = [p.shape for p in self.network.parameters()]
        pieces = w.split([s.numel() for s in shapes])
        return {n: p.view(s) for n, p, s in zip(self.names, pieces, shapes, strict=True)}

    def gradient(self, w, batch):
        w = w.clone().requires_grad_(True)
        logits = functional_call(self.network, self.named(w), (batch[0],))
        return torch.autograd.grad(F.cross_entropy(logits, batch[1]), w)[0]

    def chosen(self, round_):
        return draw_sites(
            self.size, self.run, derive_server_key(SEED).at("round", round_), False
        ).sites

    def mean(self, found):
        total = sum(self.size[s] for s in found)
        return sum(self.size[s] / total * w for s, w in found.items())

    def close_to(self, w, tensors, atol=1e-5):
        for name, value in self.named(w).items():
            torch.testing.assert_close(tensors[f"model/{name}"].double(), value, rtol=0, atol=atol)


def fedavg(o, pull=lambda w, x: 0.0):
    x = o.start
    for r in range(1, o.run.rounds + 1):
        found = {}
        for site in o.chosen(r):
            w = x.clone()
            for batch in o.batches(site, r):
                w = w - LR * (o.gradient(w, batch) + pull(w, x))
            found[site] = w
        x = o.mean(found)
    return x


def scaffold(o):
    x, c = o.start, torch.zeros_like(o.start)
    own = {site: torch.zeros_like(c) for site in o.size}
    for r in range(1, o.run.rounds + 1):
        found, changes = {}, []
        for site in o.chosen(r):
            y, steps = x.clone(), 0
            for batch in o.batches(site, r):
                y = y - LR * (o.gradient(y, batch) - own[site] + c)
                steps += 1
            new = own[site] - c + (x - y) / (steps * LR)
            changes.append(new - own[site])
            own[site], found[site] = new, y
        x = o.mean(found)
        c = c + len(found) / len(o.size) * sum(changes) / len(changes)
    return x, c, own


def feddyn(o, a, clip):
    mean, h = o.start, torch.zeros_like(o.start)
    own = {site: torch.zeros_like(h) for site in o.size}
    clipped = 0
    for r in range(1, o.run.rounds + 1):
        sent, found = mean - h / a, {}
        for site in o.chosen(r):
            w = sent.clone()
            for batch in o.batches(site, r):
                g = o.gradient(w, batch) + a * (w - sent) - own[site]
                clipped += float(g.norm()) > clip
                w = w - LR * g * min(1.0, clip / float(g.norm()))
            own[site] = own[site] - a * (w - sent)
            found[site] = w
        h = h - a / len(o.size) * sum(w - sent for w in found.values())
        mean = sum(found.values()) / len(found)
    return mean, h, own, clipped


def fednova(o, momentum):
    x = o.start
    for r in range(1, o.run.rounds + 1):
        sites = o.chosen(r)
        shares = {s: o.size[s] / sum(o.size[t] for t in sites) for s in sites}
        moved, effective = torch.zeros_like(x), 0.0
        for site in sites:
            w, velocity, steps = x.clone(), torch.zeros_like(x), 0
            for batch in o.batches(site, r):
                velocity = momentum * velocity + o.gradient(w, batch)
                w = w - LR * velocity
                steps += 1
            tau = sum(sum(momentum**j for j in range(steps - t)) for t in range(steps))
            moved = moved + shares[site] * (x - w) / tau
            effective += shares[site] * tau
        x = x - effective * moved
    return x


def test_scaffold(tiny, tiny_config, ending):
    config = {**SMOOTH, "method": {"name": "scaffold"}}
    o = Oracle(tiny_config(**config))
    x, c, own = scaffold(o)
    found = ending(tiny(**config).path)
    o.close_to(x, found)
    # The controls lie in the order of the flat layout, so that norms and states are compared.
    assert float(found["state/control"].norm()) == pytest.approx(float(c.norm()), rel=1e-4)
    for site, control in own.items():
        norm = float(found[f"{site}/own/control"].norm()) if control.any() else 0.0
        assert norm == pytest.approx(float(control.norm()), rel=1e-4)
    assert (x - fedavg(o)).abs().max() > 1e-3  # the controls do something here


@pytest.mark.parametrize("clip", [10.0, 0.3])
def test_feddyn(tiny, tiny_config, ending, clip):
    config = {**SMOOTH, "method": {"name": "feddyn", "alpha": 0.2, "clip": clip}}
    o = Oracle(tiny_config(**config))
    x, h, own, clipped = feddyn(o, 0.2, clip)
    found = ending(tiny(**config).path)
    o.close_to(x, found)
    assert float(found["state/h"].norm()) == pytest.approx(float(h.norm()), rel=1e-4)
    for site, value in own.items():
        if value.any():
            assert float(found[f"{site}/own/h"].norm()) == pytest.approx(
                float(value.norm()), rel=1e-4
            )
    assert bool(clipped) == (clip < 1)
    assert (x - fedavg(o)).abs().max() > 1e-3


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fednova(tiny, tiny_config, ending, momentum):
    config = {
        **SMOOTH,
        "optimizer": {"lr": LR, "momentum": momentum},
        "partition": {"kind": "quantity", "alpha": 0.6},
        "method": {"name": "fednova"},
    }
    o = Oracle(tiny_config(**config))
    assert len({math.ceil(n / o.run.batch_size) for n in o.size.values()}) > 1
    x = fednova(o, momentum)
    o.close_to(x, ending(tiny(**config).path), atol=3e-5)
    if not momentum:
        assert (x - fedavg(o)).abs().max() > 1e-4


def test_fedprox(tiny, tiny_config, ending):
    config = {**SMOOTH, "method": {"name": "fedprox", "mu": 1.5}}
    o = Oracle(tiny_config(**config))
    x = fedavg(o, lambda w, x: 1.5 * (w - x))
    o.close_to(x, ending(tiny(**config).path))
    assert (x - fedavg(o)).abs().max() > 1e-3


def test_fedsam(tiny, tiny_config, ending):
    config = {**SMOOTH, "method": {"name": "fedsam", "rho": 0.5}}
    o = Oracle(tiny_config(**config))
    plain = o.gradient

    def sharp(w, batch):
        g = plain(w, batch)
        return plain(w + 0.5 * g / g.norm(), batch)

    before = fedavg(o)
    o.gradient = sharp
    x = fedavg(o)
    o.close_to(x, ending(tiny(**config).path))
    assert (x - before).abs().max() > 1e-4


def test_fedavg_on_one_site_is_plain_training(tiny, tiny_config, ending):
    """BatchNorm, momentum and weight decay included: torch.optim.SGD on the same batches."""
    rates = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3}
    config = {
        "partition": {"sites": 1, "kind": "iid"},
        "run": {"rounds": 1, "local_epochs": 3},
        "optimizer": rates,
    }
    o = Oracle(tiny_config(**config))
    net = o.network.float().train()
    optimizer = torch.optim.SGD(net.parameters(), **rates)
    for x, y in o.batches("site-00", 1):
        optimizer.zero_grad()
        F.cross_entropy(net(x.float().contiguous(memory_format=torch.channels_last)), y).backward()
        optimizer.step()
    found = ending(tiny(**config).path)
    for name, tensor in net.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(found[f"model/{name}"], tensor, rtol=0, atol=1e-6)


def test_feddisco_weights():
    method = METHODS["feddisco"]({"a": 0.5, "b": 0.1})
    histograms = {"even": [10, 10, 10], "skewed": [29, 1, 0], "tiny": [2, 0, 0]}
    roster = {
        site: method.facts(np.repeat(np.arange(3), counts), 3)
        for site, counts in histograms.items()
    }
    found = method.weights(roster, list(histograms))
    for site, counts in histograms.items():
        n = sum(counts)
        d = math.sqrt(sum((c / n - 1 / 3) ** 2 for c in counts))
        assert roster[site] == {"examples": n, "discrepancy": pytest.approx(d)}
        assert found[site] == pytest.approx(max(0.0, n / 62 - 0.5 * d + 0.1))
    assert found["tiny"] == 0.0 < found["skewed"] < found["even"]
    # Nobody left: plain n_k, so that a round is never lost to the formula.
    strict = METHODS["feddisco"]({"a": 100.0, "b": 0.0})
    assert strict.weights(roster, ["skewed", "tiny"]) == {"skewed": 30.0, "tiny": 2.0}


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("steps", [0, 1, 2, 7, 100])
def test_effective_steps_are_the_literal_sum(steps, momentum):
    literal = sum(sum(momentum**j for j in range(steps - t)) for t in range(steps))
    assert effective_steps(steps, momentum) == pytest.approx(literal, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "rates",
    [{"momentum": 0.9}, {"weight_decay": 0.1}, {"name": "adam"}, {"parts": {"head": {"lr": 1.0}}}],
)
def test_scaffold_refuses_what_its_controls_would_be_wrong_for(tiny, tmp_path, rates):
    with pytest.raises(ConfigError, match="plain SGD"):
        tiny(method={"name": "scaffold"}, optimizer=rates)
    assert not (tmp_path / "run").exists()


class Nothing(Backbone):
    """A backbone without a tensor."""

    def stages(self):
        return (("same", lambda x: x),)


class Quadratic(Head):
    """Site k's loss is (w - b_k)^T A_k (w - b_k) / 2; the label says which site."""

    curvatures = torch.tensor([[3.0, 0.5, 1.0], [0.2, 2.0, 1.0]])
    centers = torch.tensor([[1.0, -2.0, 0.5], [-3.0, 4.0, 2.5]])

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(3))

    def forward(self, z):
        return {"logits": z}

    def loss(self, outputs, labels):
        k = int(labels[0])
        return {"quadratic": 0.5 * (self.curvatures[k] * (self.w - self.centers[k]) ** 2).sum()}


def test_feddyn_on_two_quadratics_reaches_the_joint_optimum():
    """FedAvg with many local steps stops between the two centers; FedDyn ends where both agree."""
    ends = {}
    for name, options in (("feddyn", {"alpha": 0.5}), ("fedavg", {})):
        method = METHODS[name](options)
        model = FlatModel(Network(Nothing(3), torch.nn.Identity(), Quadratic()))
        shared = model.layout.region(["head.w"])
        boss = Server(model.layout, shared, ("head.w",), model.values.clone())
        states = [{}, {}]
        rates = OptimizerSettings(lr=0.4)
        ctx = Context(1, "train", 2, 3, 1, 1, rates, method.options, derive_server_key(0))
        for _ in range(60):
            down, found = method.open(boss, ctx), []
            for k in range(2):
                model.values.copy_(boss.sent)
                rows = SiteRows(f"s{k}", np.zeros(1, np.int64), np.zeros(0, np.int64))
                site = Site(f"s{k}", rows, None, model, states[k], derive_server_key(0), shared)
                site.received = model.values.clone()
                batch = (torch.zeros(1, 3), torch.tensor([k]))
                train(model, [batch] * 25, method.begin(site, down, ctx), rates)
                method.end(site, ctx)
                found.append(model.named["head.w"].clone())
            mean = torch.stack(found).mean(0)
            method.close(boss, Sums({"model/head.w": mean}, {}, ("s0", "s1"), {}), ctx)
        ends[name] = boss.values
    a, b = Quadratic.curvatures.double(), Quadratic.centers.double()
    optimum = (a * b).sum(0) / a.sum(0)
    torch.testing.assert_close(ends["feddyn"].double(), optimum, rtol=0, atol=1e-4)
    assert (ends["fedavg"].double() - optimum).abs().max() > 0.5
