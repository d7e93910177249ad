"""Riemannian SGD: what it must equal, what it must reach, what it refuses."""

import subprocess
import sys

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.geometry import EUCLIDEAN, GRASSMANN, STIEFEL, ParameterGroup, RiemannianSGD, grassmann
from vitrail.geometry.frames import draw_frames
from vitrail.rng import derive_server_key

KEY = derive_server_key(6)


def gaussian(*shape, at="g"):
    return torch.randn(shape, generator=KEY.at(at).torch(), dtype=torch.float64)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_on_flat_parameters_it_is_torchs_sgd(momentum):
    ours, theirs = (gaussian(3, 4).requires_grad_() for _ in range(2))
    mine = RiemannianSGD([ours], 0.1, momentum)
    reference = torch.optim.SGD([theirs], 0.1, momentum)
    for _ in range(20):
        for x, optimizer in ((ours, mine), (theirs, reference)):
            optimizer.zero_grad()
            (x.sin() * gaussian(3, 4, at="h")).sum().backward()
            optimizer.step()
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("how", GRASSMANN.retractions)
def test_it_finds_the_top_eigenspace(how, momentum):
    root = gaussian(12, 12)
    matrix = root @ root.T
    x = draw_frames((12, 3), KEY.at("start"), torch.float64).requires_grad_()
    flat = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimizer = RiemannianSGD(
        [ParameterGroup((x,), GRASSMANN, retraction=how), ParameterGroup((flat,), lr=0.5)],
        0.01,
        momentum,
    )
    for _ in range(600):
        optimizer.zero_grad()
        (-(x.mT @ matrix @ x).trace() + (flat - 3).square().sum()).backward()
        optimizer.step()
        assert GRASSMANN.problem(x.detach()) is None
    top = torch.linalg.eigh(matrix).eigenvectors[:, -3:]
    assert grassmann.projection_distance(x.detach(), top) < 1e-5
    torch.testing.assert_close(flat.detach(), torch.full((2,), 3.0, dtype=torch.float64))


@pytest.mark.parametrize("how", STIEFEL.retractions)
def test_on_the_stiefel_manifold_the_basis_counts(how):
    target = draw_frames((4, 8, 3), KEY.at("target"), torch.float64)
    x = draw_frames((4, 8, 3), KEY.at("start"), torch.float64).requires_grad_()
    optimizer = RiemannianSGD([ParameterGroup((x,), STIEFEL, retraction=how)], 0.1, 0.5)
    for _ in range(500):
        optimizer.zero_grad()
        (x - target).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(x.detach(), target, rtol=0, atol=1e-6)


def test_one_step_with_momentum_is_the_formula():
    x = draw_frames((9, 2), KEY.at("x"), torch.float64)
    first, second = gaussian(9, 2, at=1), gaussian(9, 2, at=2)
    parameter = x.clone().requires_grad_()
    optimizer = RiemannianSGD(
        [ParameterGroup((parameter,), GRASSMANN, retraction="polar")], 0.1, 0.9
    )
    for gradient in (first, second):
        parameter.grad = gradient.clone()
        optimizer.step()
    v = first - x @ x.T @ first
    expected = x - 0.1 * v
    for at in range(2):
        w, _, u = torch.linalg.svd(expected, full_matrices=False)
        expected = w @ u
        if at == 0:
            side = torch.eye(9, dtype=torch.float64) - expected @ expected.T
            v = side @ second + 0.9 * side @ v
            expected = expected - 0.1 * v
    torch.testing.assert_close(parameter.detach(), expected)


def test_thousands_of_steps_in_float32_stay_on_the_manifold():
    x = draw_frames((10, 16, 3), KEY.at("x")).requires_grad_()
    optimizer = RiemannianSGD([ParameterGroup((x,), GRASSMANN)], 0.3, 0.9)
    generator = KEY.at("noise").torch()
    for _ in range(2000):
        x.grad = torch.randn(x.shape, generator=generator)
        optimizer.step()
    assert (x.mT @ x - torch.eye(3)).abs().max() < 1e-5


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
def test_a_gradient_that_is_not_finite_or_absurd_spoils_its_own_frame_only(bad):
    x = draw_frames((3, 6, 3), KEY.at("x")).requires_grad_()
    before = x.detach().clone()
    optimizer = RiemannianSGD([ParameterGroup((x,), GRASSMANN)], 0.1)
    x.grad = torch.ones_like(x)
    x.grad[1] = bad * draw_frames((6, 3), KEY.at("huge"))
    optimizer.step()
    assert x[1].isnan().all() and x[0].isfinite().all() and x[2].isfinite().all()
    assert not torch.equal(x[0], before[0])


def test_what_has_no_gradient_stays():
    x = draw_frames((6, 2), KEY.at("x")).requires_grad_()
    before = x.detach().clone()
    RiemannianSGD([ParameterGroup((x,), STIEFEL)], 0.1).step()
    assert torch.equal(x, before)
    RiemannianSGD([], 0.1).step()


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"no point of grassmann: .*deviates"):
        RiemannianSGD([ParameterGroup((torch.ones(4, 2),), GRASSMANN)], 0.1)
    with pytest.raises(ConfigError, match="no retraction 'cayley'"):
        RiemannianSGD([ParameterGroup((torch.ones(4, 2),), EUCLIDEAN, retraction="cayley")], 0.1)
    for lr, momentum in ((0.0, 0.0), (float("nan"), 0.0), (0.1, 1.0), (0.1, -0.1)):
        with pytest.raises(ValueError, match="momentum"):
            RiemannianSGD([torch.ones(2)], lr, momentum)


def test_it_does_not_import_the_compiler():
    code = (
        "import sys, torch\n"
        "from vitrail.geometry import RiemannianSGD\n"
        "RiemannianSGD([torch.ones(2)], 0.1).step()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
