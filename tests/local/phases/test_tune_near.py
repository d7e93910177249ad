"""Personal models near the shared one: pulls against autograd, and what a rank leaves."""

import pytest
import torch

from vitrail.config.schema import Model, Subspaces
from vitrail.geometry import deviation, grassmann
from vitrail.local.phases.tune_low_rank import TuneLowRank, cut_to_rank
from vitrail.local.phases.tune_near import TuneNear, find_class_part, make_pull
from vitrail.models.flat import FlatModel
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.runs.personalize_sites import open_global_host, personalize_sites

KEY = derive_server_key(8)
SMALL = Model(backbone="small-cnn", width=4, subspaces=Subspaces(depth=6, dimension=2))


def draw(shape, name):
    return torch.randn(shape, generator=KEY.at(name).torch())


def test_the_pull_on_subspaces_is_the_gradient_of_half_the_squared_geodesic_distance():
    network, _ = make_network(SMALL, "fedgrasp", 3, 3, KEY.at("init"))
    model = FlatModel(network)
    name = "head.frames"
    start = model.named[name].detach().clone()
    pull = make_pull(model, "prototypes", 0.7)
    moved = torch.linalg.qr(start + 0.2 * draw(start.shape, "step"))[0]
    model.named[name].data.copy_(moved)
    model.grads.zero_()
    pull(model)
    at = dict(zip([s.name for s in model.layout.specs], model.layout.offsets, strict=True))[name]
    ours = model.grads[at : at + start.numel()].view(start.shape).double()
    u = moved.double().requires_grad_()
    cosines = torch.linalg.svdvals(u.mT @ start.double())
    (0.7 / 2 * torch.arccos(cosines.clamp(max=1)).square().sum()).backward()
    horizontal = u.grad - u.detach() @ (u.detach().mT @ u.grad)
    torch.testing.assert_close(ours, horizontal, rtol=1e-4, atol=1e-5)
    others = model.grads.clone()
    others[at : at + start.numel()] = 0
    assert not others.any()


def test_the_pull_on_a_linear_head_is_the_way_back():
    network, _ = make_network(SMALL, "linear", 3, 3, KEY.at("init"))
    model = FlatModel(network)
    assert find_class_part(model) == "head"
    pull = make_pull(model, "head", 0.5)
    step = draw(model.named["head.weight"].shape, "linear")
    model.named["head.weight"].data += step
    model.grads.zero_()
    pull(model)
    specs = zip(model.layout.specs, model.layout.offsets, strict=True)
    at = next(o for s, o in specs if s.name == "head.weight")
    torch.testing.assert_close(model.grads[at : at + step.numel()].view(step.shape), 0.5 * step)


def test_a_strong_pull_stays_nearer_and_frames_stay_orthonormal(tiny):
    run = tiny(method={"name": "fedgrasp"}, run={"local_reference": False, "rounds": 1})
    host = open_global_host(run)
    start = host.model.named["head.frames"].detach().clone()
    away = []
    for pull in (1e-4, 0.5):
        moved = []

        def phase(site, ctx, pull=pull, moved=moved):
            TuneNear(epochs=3, share=1.0, pull=pull)(site, ctx)
            moved.append(site.model.named["head.frames"].detach().clone())

        personalize_sites(run, host, phase)
        assert max(float(deviation(frames).max()) for frames in moved) < 1e-5
        distances = [grassmann.geodesic_distance(frames, start).mean() for frames in moved]
        away.append(float(torch.stack(distances).mean()))
    assert 0 < away[1] < away[0]
    assert torch.equal(host.model.named["head.frames"], start)  # the host's model is back


@pytest.mark.parametrize("method", ["fedavg", "fedgrasp"])
def test_a_low_rank_head_differs_by_that_rank_and_nothing_else(tiny, method):
    run = tiny(method={"name": method}, run={"local_reference": False, "rounds": 1})
    host = open_global_host(run)
    before = {name: tensor.detach().clone() for name, tensor in host.model.named.items()}

    def phase(site, ctx):
        TuneLowRank(rank=1, epochs=2, lr=0.01)(site, ctx)
        named = site.model.named
        change = (named["head.weight"] - before["head.weight"]).detach()
        sizes = torch.linalg.svdvals(change)
        assert sizes[0] > 1e-4 and sizes[1] < 1e-4 * sizes[0]
        moved = {n for n in named if not torch.equal(named[n], before[n])}
        assert moved <= {"head.weight", "head.bias"}

    personalize_sites(run, host, phase)


def test_cutting_keeps_the_largest_directions():
    matrix = torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    torch.testing.assert_close(cut_to_rank(matrix, 2), torch.diag(torch.tensor([3.0, 2.0, 0.0])))
    assert not cut_to_rank(matrix, 0).any()
