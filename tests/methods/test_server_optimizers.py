"""FedAvgM, FedAdam, FedYogi and FedAdagrad against their formulas in float64, and by hand."""

import pytest
import torch
from tests.methods.test_right_answers import LR, SMOOTH, Oracle, fedavg

from vitrail.aggregate.sums import Sums
from vitrail.config.schema import Model
from vitrail.errors import ConfigError
from vitrail.methods import METHODS, Server
from vitrail.models.flat import FlatModel
from vitrail.models.network import make_network
from vitrail.rng import Key

ETA, B1, B2, TAU = 0.05, 0.8, 0.95, 0.01
ADAPTIVE = {"server_lr": ETA, "beta1": B1, "tau": TAU}


def mean_change(o, x, r):
    """What the sites of a round come to, less what they got."""
    found = {}
    for site in o.chosen(r):
        w = x.clone()
        for batch in o.batches(site, r):
            w = w - LR * o.gradient(w, batch)
        found[site] = w
    return o.mean(found) - x


def momentum(o):
    x, v = o.start, torch.zeros_like(o.start)
    for r in range(1, o.run.rounds + 1):
        v = 0.7 * v + mean_change(o, x, r)
        x = x + 0.5 * v
    return x


def adaptive(o, name):
    x, m, v = o.start, torch.zeros_like(o.start), torch.full_like(o.start, TAU**2)
    for r in range(1, o.run.rounds + 1):
        d = mean_change(o, x, r)
        m = B1 * m + (1 - B1) * d
        if name == "fedadagrad":
            v = v + d * d
        elif name == "fedyogi":
            v = v - (1 - B2) * d * d * torch.sign(v - d * d)
        else:
            v = B2 * v + (1 - B2) * d * d
        x = x + ETA * m / (torch.sqrt(v) + TAU)
    return x


def test_fedavgm(tiny, tiny_config, ending):
    config = {**SMOOTH, "method": {"name": "fedavgm", "server_lr": 0.5, "server_momentum": 0.7}}
    o = Oracle(tiny_config(**config))
    x = momentum(o)
    o.close_to(x, ending(tiny(**config).path))
    assert (x - fedavg(o)).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad"])
def test_adaptive_steps(tiny, tiny_config, ending, name):
    beta2 = {} if name == "fedadagrad" else {"beta2": B2}
    config = {**SMOOTH, "method": {"name": name, **ADAPTIVE, **beta2}}
    o = Oracle(tiny_config(**config))
    x = adaptive(o, name)
    o.close_to(x, ending(tiny(**config).path), atol=5e-5)
    assert (x - fedavg(o)).abs().max() > 1e-3


def test_a_server_that_steps_by_one_without_momentum_is_fedavg(tiny, ending):
    plain = ending(tiny("plain").path)
    method = {"name": "fedavgm", "server_lr": 1.0, "server_momentum": 0.0}
    found = ending(tiny("momentum", method=method).path)
    for name, tensor in plain.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "fedadagrad"])
def test_statistics_take_the_mean_and_no_step(name):
    """A variance that was stepped could fall below zero."""
    options = {"server_lr": 0.5} if name == "fedavgm" else {}
    method, key = METHODS[name](options), Key(b"a network with statistics").at("init")
    network, _ = make_network(Model(backbone="resnet8", width=4), "linear", 3, 3, key)
    flat = FlatModel(network)
    names = tuple(spec.name for spec in flat.layout.specs)
    server = Server(flat.layout, flat.layout.region(names), names, flat.values.clone())
    server.make_model_message()
    before, split = server.values.clone(), server.layout.trainable
    assert split < len(before)  # there are statistics in this network
    after = before + 0.5
    views = {f"model/{n}": t.clone() for n, t in server.layout.views(after).items()}
    method.close(server, Sums(views, {}, ("a", "b"), {}), None)
    torch.testing.assert_close(server.values[split:], after[split:])
    assert not torch.isclose(server.values[:split], after[:split]).any()


@pytest.mark.parametrize("name", ["fedadam", "fedyogi", "fedadagrad", "fedavgm"])
def test_a_round_that_moves_nothing_leaves_the_model_as_it_is(server, name):
    method, before = METHODS[name]({}), server.values.clone()
    views = {f"model/{n}": t.clone() for n, t in server.layout.views(before).items()}
    method.close(server, Sums(views, {}, ("a",), {}), None)
    torch.testing.assert_close(server.values, before)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("fedadam", "beta1", 1.0), ("fedyogi", "tau", 0.0), ("fedadagrad", "beta2", 0.9)],
)
def test_options_that_make_no_sense_are_refused(name, key, value):
    with pytest.raises(ConfigError, match=key):
        METHODS[name]({key: value})
