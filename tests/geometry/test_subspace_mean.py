"""Means of subspaces against eigenvectors, another library, and each other."""

import pytest
import torch

from vitrail.geometry import GRASSMANN, deviation, grassmann, stiefel
from vitrail.geometry.frames import draw_frames
from vitrail.rng import derive_server_key

SITES, CLASSES, N, P = 6, 5, 16, 3


def sites(seed=1, spread=0.1, dtype=torch.float64, shape=(CLASSES, N, P), count=SITES):
    """Frames around one subspace a class; the basis of each site is its own."""
    key = derive_server_key(seed)
    center = draw_frames(shape, key.at("center"), torch.float64)
    found = []
    for i in range(count):
        noise = torch.randn(shape, generator=key.at("noise", i).torch(), dtype=torch.float64)
        near = GRASSMANN.retraction("qr")(center, grassmann.project(center, spread * noise))
        found.append(near @ draw_frames((*shape[:-2], P, P), key.at("turn", i), torch.float64))
    return torch.stack(found).to(dtype), center


def literal(frames, weights):
    """The top eigenspace of sum a_j U_j U_j^T, class by class, and the eigenvalues."""
    spaces, values = [], []
    for c in range(frames.shape[1]):
        xi = sum(a * u @ u.T for a, u in zip(weights[:, c] / weights[:, c].sum(), frames[:, c]))
        found = torch.linalg.eigh(xi)
        spaces.append(found.eigenvectors[:, -P:])
        values.append(found.eigenvalues.flip(0))
    return torch.stack(spaces), torch.stack(values)


@pytest.mark.parametrize("count", [1, 2, SITES, 9])  # fewer and more columns than dimensions
@pytest.mark.parametrize("spread", [0.0, 0.1, 1.0])
def test_the_exact_mean_is_the_top_eigenspace(spread, count):
    frames, _ = sites(spread=spread, count=count)
    weights = (
        torch.rand(count, CLASSES, generator=derive_server_key(2).torch(), dtype=torch.float64)
        + 0.1
    )
    found = grassmann.mean(frames, weights)
    space, values = literal(frames, weights)
    assert grassmann.projection_distance(found.frame, space).max() < 1e-10
    assert deviation(found.frame).max() < 1e-12
    torch.testing.assert_close(found.eigengap, values[:, P - 1] - values[:, P])
    torch.testing.assert_close(found.consensus, values[:, :P].mean(1))
    assert found.converged.all() and not found.iterations.any()
    if spread == 0 or count == 1:
        torch.testing.assert_close(found.eigengap, torch.ones(CLASSES, dtype=torch.float64))


@pytest.mark.parametrize("how", ["exact", "iterative", "karcher"])
def test_neither_order_nor_basis_nor_scale_of_weights_matters(how):
    frames, _ = sites()
    weights = torch.arange(1.0, SITES + 1)
    one = grassmann.mean(frames, weights, how)
    order = [3, 0, 5, 1, 4, 2]
    turned = frames @ draw_frames((SITES, CLASSES, P, P), derive_server_key(8), torch.float64)
    for other in (
        grassmann.mean(frames[order], weights[order], how),
        grassmann.mean(turned, weights, how),
        grassmann.mean(frames, weights / 1024, how),
        grassmann.mean(frames, weights[:, None].expand(SITES, CLASSES), how),
    ):
        assert grassmann.projection_distance(one.frame, other.frame).max() < 1e-6
        torch.testing.assert_close(one.eigengap, other.eigengap)


def test_weights_act_class_by_class_and_zero_removes_a_site():
    frames, _ = sites(spread=0.5)
    weights = torch.ones(SITES, CLASSES)
    weights[2:, 0] = 0
    weights[:, 1] = 0  # nobody speaks for class 1: everybody counts the same
    found = grassmann.mean(frames, weights).frame
    first = grassmann.mean(frames[:2, :1]).frame
    assert grassmann.projection_distance(found[0], first[0]) < 1e-10
    assert grassmann.projection_distance(found[1:], grassmann.mean(frames).frame[1:]).max() < 1e-10


def test_float32_goes_in_and_comes_out():
    frames, center = sites(dtype=torch.float32, spread=0.01)
    found = grassmann.mean(frames)
    assert {found.frame.dtype, found.eigengap.dtype, found.consensus.dtype} == {torch.float32}
    assert grassmann.projection_distance(found.frame.double(), center).max() < 0.05
    assert deviation(found.frame).max() < 1e-6


@pytest.mark.parametrize("step", [0.3, 0.5, 1.0])
def test_algorithm_1_ends_at_the_exact_mean_where_sites_agree(step):
    frames, _ = sites(spread=0.03)
    exact, found = (
        grassmann.mean(frames),
        grassmann.mean(frames, consensus="iterative", step=step, tolerance=1e-11),
    )
    assert found.converged.all() and (found.iterations > 0).all()
    assert grassmann.projection_distance(found.frame, exact.frame).max() < 1e-9
    torch.testing.assert_close(found.eigengap, exact.eigengap)


def test_algorithm_1_says_when_it_did_not_arrive():
    frames, _ = sites(spread=2.0)
    found = grassmann.mean(frames, consensus="iterative", step=10.0, limit=200)
    assert not found.converged.any() and (found.iterations == 200).all()
    none = grassmann.mean(frames, consensus="iterative", limit=0)
    assert grassmann.projection_distance(none.frame, frames[0]).max() < 1e-12  # the start is site 1


def test_the_karcher_mean_is_where_geodesic_steps_cancel():
    frames, _ = sites(spread=0.2)
    weights = torch.arange(1.0, SITES + 1, dtype=torch.float64)
    found = grassmann.mean(frames, weights, "karcher")
    assert found.converged.all()
    steps = torch.stack([grassmann.logarithm(found.frame, f) for f in frames])
    total = (weights[:, None, None, None] * steps).sum(0) / weights.sum()
    assert total.abs().max() < 1e-7

    def energy(frame):
        return (weights[:, None] * grassmann.geodesic_distance(frame, frames).square()).sum(0)

    exact = grassmann.mean(frames, weights).frame
    assert (energy(found.frame) <= energy(exact) + 1e-12).all()
    assert grassmann.projection_distance(found.frame, exact).max() > 1e-4  # it is another mean


def test_pymanopt_finds_the_same_optimum():
    pymanopt = pytest.importorskip(
        "pymanopt", reason="MEANS NOT COMPARED WITH PYMANOPT: it is not installed"
    )
    frames, _ = sites(spread=0.1)
    for c in range(2):
        stack = frames[:, c]
        manifold = pymanopt.manifolds.Grassmann(N, P)

        @pymanopt.function.pytorch(manifold)
        def cost(x, stack=stack):
            return -(stack.mT @ x).square().sum() / SITES

        solver = pymanopt.optimizers.TrustRegions(verbosity=0, min_gradient_norm=1e-10)
        start = stack[0].numpy()
        best = torch.from_numpy(
            solver.run(pymanopt.Problem(manifold, cost), initial_point=start).point
        )
        ours = grassmann.mean(stack[:, None]).frame[0]
        assert grassmann.projection_distance(ours, best) < 1e-6
        assert -float(cost(ours.numpy())) >= -float(cost(best.numpy())) - 1e-12


def test_pymanopt_agrees_on_projection_distance_and_logarithm():
    pymanopt = pytest.importorskip(
        "pymanopt", reason="GEOMETRY NOT COMPARED WITH PYMANOPT: it is not installed"
    )
    manifold = pymanopt.manifolds.Grassmann(N, P)
    frames, _ = sites(spread=0.1, count=2)
    x, y = (f[0].numpy() for f in frames)
    v = torch.randn(N, P, generator=derive_server_key(1).torch(), dtype=torch.float64)
    close = torch.testing.assert_close
    tangent = grassmann.project(frames[0, 0], v)
    close(tangent, torch.from_numpy(manifold.projection(x, v.numpy())))
    close(
        grassmann.geodesic_distance(*frames[:, 0]),
        torch.tensor(float(manifold.dist(x, y))).double(),
    )
    close(grassmann.logarithm(*frames[:, 0]), torch.from_numpy(manifold.log(x, y)))
    ours = GRASSMANN.retraction("geodesic")(frames[0, 0], tangent)
    theirs = torch.from_numpy(manifold.exp(x, tangent.numpy()))
    assert grassmann.projection_distance(ours, theirs) < 1e-10
    qr = torch.from_numpy(manifold.retraction(x, tangent.numpy()))
    assert (
        grassmann.projection_distance(GRASSMANN.retraction("polar")(frames[0, 0], tangent), qr)
        < 1e-10
    )


def test_the_stiefel_mean_is_the_polar_factor_after_alignment():
    frames, center = sites(spread=0.02)
    found = stiefel.mean(frames, reference=center)
    turned = torch.stack([grassmann.canonicalize(f, center) for f in frames])
    u, _, v = torch.linalg.svd(turned.mean(0), full_matrices=False)
    torch.testing.assert_close(found, u @ v)
    assert grassmann.projection_distance(found, center).max() < 0.2
    plain = stiefel.mean(frames, align=False)  # bases that disagree cancel out
    assert (
        grassmann.projection_distance(plain, center).max()
        > grassmann.projection_distance(found, center).max()
    )
    order = [3, 0, 5, 1, 4, 2]
    torch.testing.assert_close(stiefel.mean(frames[order]), stiefel.mean(frames))
    torch.testing.assert_close(stiefel.mean(frames[:1]), frames[0])


BAD_WEIGHTS = {
    "too few": torch.ones(2),
    "by the wrong dimension": torch.ones(CLASSES, SITES),
    "negative": torch.tensor([1.0, 1, 1, 1, 1, -1]),
    "NaN": torch.full((SITES,), torch.nan),
}


@pytest.mark.parametrize("what", BAD_WEIGHTS)
@pytest.mark.parametrize("mean", [grassmann.mean, stiefel.mean])
def test_bad_weights_are_refused(what, mean):
    with pytest.raises(ValueError, match="weights"):
        mean(sites()[0], BAD_WEIGHTS[what])


def test_nobody_and_nonsense_are_refused():
    frames, _ = sites()
    for mean in (grassmann.mean, stiefel.mean):
        with pytest.raises(ValueError, match="sites"):
            mean(frames[:0])
        with pytest.raises(ValueError, match="sites"):
            mean(frames[0, 0])
    with pytest.raises(ValueError, match="karcher"):
        grassmann.mean(frames, consensus="median")
    frames[2, 1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        grassmann.mean(frames)
    assert grassmann.mean(sites(shape=(0, N, P))[0]).frame.shape == (0, N, P)


def test_a_subspace_of_all_dimensions_agrees_fully():
    frames = draw_frames((3, 2, 4, 4), derive_server_key(1), torch.float64)
    found = grassmann.mean(frames)
    torch.testing.assert_close(found.eigengap, torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.consensus, torch.ones(2, dtype=torch.float64))
