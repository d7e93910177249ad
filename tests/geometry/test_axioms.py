"""One table of axioms over every manifold and every retraction: five seeds, float64."""

import pytest
import torch

from vitrail.geometry import GRASSMANN, MANIFOLDS, STIEFEL
from vitrail.rng import derive_server_key

N, P = 9, 3
TABLE = [(m.name, how) for m in MANIFOLDS.values() for how in m.retractions]
SEEDS = range(5)


def points(name, seed, count=2, shape=(4, N, P)):
    manifold, key = MANIFOLDS[name], derive_server_key(seed).at(name)
    found = [manifold.random(shape, key.at(i), torch.float64) for i in range(count)]
    ambient = torch.randn(shape, generator=key.at("v").torch(), dtype=torch.float64)
    return manifold, found, ambient


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MANIFOLDS)
def test_projection(name, seed):
    manifold, (x, _), v = points(name, seed)
    assert manifold.problem(x) is None
    tangent = manifold.project(x, v)
    torch.testing.assert_close(manifold.project(x, tangent), tangent, rtol=0, atol=1e-13)
    rest = v - tangent  # the normal part is orthogonal to every tangent vector
    other = manifold.project(x, v.flip(0))
    assert (rest * other).sum((-2, -1)).abs().max() < 1e-12
    # the tangent space has the dimension that is claimed
    basis = torch.eye(N * P, dtype=torch.float64).view(N * P, N, P)
    columns = torch.stack([manifold.project(x[0], e).flatten() for e in basis])
    assert int(torch.linalg.matrix_rank(columns, tol=1e-9)) == manifold.dimension(N, P)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "how"), TABLE)
def test_retraction(name, how, seed):
    manifold, (x, _), v = points(name, seed)
    retract, v = manifold.retraction(how), manifold.project(x, v)
    same = retract(x, torch.zeros_like(v))
    torch.testing.assert_close(same, x, rtol=0, atol=1e-13)
    for size in (1e-3, 1.0, 50.0):  # it ends on the manifold, however long the step
        assert manifold.problem(retract(x, size * v)) is None
    # it starts along v: the error of x + t v is of second order
    errors = []
    for t in (1e-3, 1e-4):
        errors.append(float((retract(x, t * v) - x - t * v).norm()))
    assert errors[1] <= errors[0] / 50 + 1e-13


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MANIFOLDS)
def test_distance(name, seed):
    manifold, (x, y), v = points(name, seed)
    z = manifold.random(x.shape, derive_server_key(seed).at("z"), torch.float64)
    d = manifold.distance
    assert d(x, x).max() < 1e-7 and d(x, y).min() > 0.1
    torch.testing.assert_close(d(x, y), d(y, x))
    assert (d(x, z) <= d(x, y) + d(y, z) + 1e-12).all()
    step = 1e-5 * manifold.project(x, v)
    near = d(x, manifold.retraction()(x, step))
    torch.testing.assert_close(near, step.norm(dim=(-2, -1)), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", GRASSMANN.retractions)
def test_on_the_grassmann_manifold_the_basis_does_not_matter(how, seed):
    _, (x, _), v = points("grassmann", seed)
    turn = STIEFEL.random((4, P, P), derive_server_key(seed).at("turn"), torch.float64)
    v = GRASSMANN.project(x, v)
    torch.testing.assert_close(GRASSMANN.project(x @ turn, v @ turn), v @ turn)
    one, two = GRASSMANN.retraction(how)(x, v), GRASSMANN.retraction(how)(x @ turn, v @ turn)
    torch.testing.assert_close(one @ one.mT, two @ two.mT, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MANIFOLDS)
def test_draws_repeat_and_keep_their_type(name, dtype):
    manifold = MANIFOLDS[name]
    one = manifold.random((2, 5, 5, 2), derive_server_key(1), dtype)
    assert one.dtype == dtype and torch.equal(
        one, manifold.random((2, 5, 5, 2), derive_server_key(1), dtype)
    )
    assert not torch.equal(one, manifold.random((2, 5, 5, 2), derive_server_key(2), dtype))
    assert torch.equal(one, manifold.random((2, 5, 5, 2), derive_server_key(1).torch(), dtype))


@pytest.mark.parametrize("name", ["stiefel", "grassmann"])
@pytest.mark.parametrize("shape", [(3, 3), (3, 1), (0, 5, 2), (5, 0)])
def test_edges(name, shape):
    manifold = MANIFOLDS[name]
    x = manifold.random(shape, derive_server_key(1), torch.float64)
    assert x.shape == shape and manifold.problem(x) is None
    for how in manifold.retractions.values():
        moved = how(x, manifold.project(x, torch.ones(shape, dtype=torch.float64)))
        assert moved.shape == shape and manifold.problem(moved) is None
