"""Means of subspaces: how fast, and how many iterations.

    OMP_NUM_THREADS=1 python benchmarks/geometry.py

196 classes, 8 sites, subspaces of dimension 3 in 64, float64, one thread, CPU time. `agree`: every
site is a small step away from one subspace a class; `disagree`: every site has drawn its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from vitrail.config.schema import Aviary, Data, Model, Subspaces
from vitrail.data.load_images import load_with_problems
from vitrail.geometry import GRASSMANN, grassmann
from vitrail.geometry.ambiguity import measure_ambiguity
from vitrail.geometry.frames import draw_frames
from vitrail.geometry.retraction import arctan
from vitrail.geometry.subspace_mean import ascent_gradient
from vitrail.models import make_network
from vitrail.rng import Key, derive_server_key

SITES, CLASSES, N, P = 8, 196, 64, 3
LIMIT = 3000
NEAR = 1e-6  # of the optimum of tr(Xi P)


def draw_sites(kind: str, key: Key) -> Tensor:
    if kind == "disagree":
        return draw_frames((SITES, CLASSES, N, P), key, torch.float64)
    center = draw_frames((CLASSES, N, P), key.at("center"), torch.float64)
    frames = []
    for site in range(SITES):
        noise = torch.randn(center.shape, generator=key.at(site).torch(), dtype=torch.float64)
        step = grassmann.project(center, 0.05 * noise)
        frames.append(GRASSMANN.retraction("qr")(center, step))
    return torch.stack(frames)


def measure_shortest(work: Callable[[], object], repeats: int) -> float:
    """The shortest of a few runs, in seconds of CPU time."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def run_algorithm_1(frames: Tensor, step: float) -> tuple[Tensor, float]:
    """Iterations until each class is within 1e-6 of the optimum (LIMIT + 1: never), and seconds.

    Told the optimum, it stops as early as it can; the check is not in the time.
    """
    stacked = (frames / SITES**0.5).movedim(0, -2).flatten(-2)
    top = grassmann.mean(frames).consensus * P
    frame, seconds = frames[0], 0.0
    count = torch.full((CLASSES,), LIMIT + 1)
    for at in range(LIMIT + 1):
        value = (stacked.mT @ frame).square().sum((-2, -1))
        count = torch.where((value >= top - NEAR) & (count > at), at, count)
        if int(count.max()) <= at:
            break
        began = time.process_time()
        frame = arctan(frame, step * ascent_gradient(stacked, frame))
        seconds += time.process_time() - began
    return count, seconds


def measure_pymanopt(frames: Tensor, classes: int) -> float:
    """CPU time of pymanopt's conjugate gradient from site 1, for all classes together."""
    import pymanopt

    manifold = pymanopt.manifolds.Grassmann(N, P)
    began = time.process_time()
    for c in range(classes):
        stack = frames[:, c].numpy()

        @pymanopt.function.numpy(manifold)
        def cost(x, stack=stack):  # type: ignore[no-untyped-def]
            return -((stack.transpose(0, 2, 1) @ x) ** 2).sum() / SITES

        @pymanopt.function.numpy(manifold)
        def gradient(x, stack=stack):  # type: ignore[no-untyped-def]
            return -2 * (stack @ (stack.transpose(0, 2, 1) @ x)).sum(0) / SITES

        solver = pymanopt.optimizers.ConjugateGradient(verbosity=0, min_gradient_norm=1e-6)
        problem = pymanopt.Problem(manifold, cost, euclidean_gradient=gradient)
        solver.run(problem, initial_point=stack[0])
    return (time.process_time() - began) * CLASSES / classes


def step_projector(projector: Tensor, gradient: Tensor, step: float) -> Tensor:
    """The same update on n x n projectors: the top eigenspace of P + step (P' G P + P G P')."""
    side = torch.eye(N, dtype=projector.dtype) - projector
    mixed = side @ gradient @ projector
    vectors = torch.linalg.eigh(projector + step * (mixed + mixed.mT)).eigenvectors[..., -P:]
    return vectors @ vectors.mT


def compare_forms(frames: Tensor, repeats: int) -> None:
    """One update of all classes in frame form against projector form."""
    frame, stacked = frames[0], (frames / SITES**0.5).movedim(0, -2).flatten(-2)
    xi, projector = stacked @ stacked.mT, frame @ frame.mT
    by_frame = arctan(frame, ascent_gradient(stacked, frame))
    by_projector = step_projector(projector, xi, 1.0)
    apart = float((by_frame @ by_frame.mT - by_projector).norm(dim=(-2, -1)).max()) / 2**0.5
    fast = measure_shortest(lambda: arctan(frame, ascent_gradient(stacked, frame)), repeats)
    slow = measure_shortest(lambda: step_projector(projector, xi, 1.0), repeats)
    print(f"update in frame form     {1e3 * fast:8.1f} ms")
    print(f"update in projector form {1e3 * slow:8.1f} ms   ratio {slow / fast:.0f}")
    print(f"largest distance between the two subspaces: {apart:.1e}")


def print_open_directions() -> None:
    """At three drawn images: pixels minus the rank of the Jacobian to the released frames."""
    data = Data(image_size=32, aviary=Aviary(images=12))
    images, _ = load_with_problems(data, Path(), derive_server_key(1))
    model = Model(backbone="small-cnn", subspaces=Subspaces(depth=16))
    classes = len(images.classes)
    network = make_network(model, "fedgrasp", 3, classes, derive_server_key(1))[0].double().eval()
    frames = network.head.frames
    for row in range(3):
        label = torch.tensor([int(images.labels[row])])

        def release(x: Tensor, label: Tensor = label) -> Tensor:
            """The step of the frames that one image causes, to first order in its length."""
            outputs = network.rest(network.prefix(x[None]))
            loss = torch.stack(list(network.head.loss(outputs, label).values())).sum()
            (gradient,) = torch.autograd.grad(loss, frames, create_graph=True)
            return grassmann.project(frames.detach(), gradient)

        pixels = torch.from_numpy(images.images[row]).permute(2, 0, 1).double() / 255
        print(measure_ambiguity(release, pixels, tolerance=1e-9).sentence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--pymanopt-classes", type=int, default=40, help="timed, then scaled")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in ("agree", "disagree"):
        frames = draw_sites(kind, derive_server_key(1).at(kind))
        print(f"\n{kind}: consensus {float(grassmann.mean(frames).consensus.mean()):.2f}")
        exact = measure_shortest(lambda frames=frames: grassmann.mean(frames), options.repeats)  # type: ignore[misc]
        print(f"exact mean               {1e3 * exact:8.1f} ms")
        try:
            slow = measure_pymanopt(frames, options.pymanopt_classes)
            print(f"pymanopt                 {1e3 * slow:8.0f} ms   ratio {slow / exact:.0f}")
        except ImportError:
            print("pymanopt is not installed: not compared")
        for step in (0.1, 1.0, 3.0, 10.0):
            count, seconds = run_algorithm_1(frames, step)
            arrived = count <= LIMIT
            iterations = f"not in {LIMIT}"
            if bool(arrived.any()):
                iterations = (
                    f"{int(count[arrived].median())} (median), {int(count[arrived].max())} at most"
                )
            print(
                f"Algorithm 1, step {step:<4}    {1e3 * seconds:8.0f} ms   "
                f"ratio {seconds / exact:.0f}; iterations {iterations}; "
                f"{int(arrived.sum())} of {CLASSES} classes arrive"
            )
        compare_forms(frames, options.repeats)
    print()
    print_open_directions()


if __name__ == "__main__":
    main()
