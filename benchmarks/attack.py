"""What an iteration of IG costs: against a hand-written loop, and restarts side by side.

    python benchmarks/attack.py [--turns 9] [--nets small-cnn lenet]

Both loops do the same: the gradient of one image, its cosine with a target, total variation, the
derivative with respect to the pixels, a signed Adam step. They take turns, so that a busy
neighbor slows both; a ratio is the median over the turns of one turn's ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

from vitrail import rng
from vitrail.attack import ATTACKS, Budget, Job, Scene, one_step
from vitrail.data.normalize import Normalize
from vitrail.models import build

ITERATIONS = 50


def recover_by_hand(scene: Scene, iterations: int) -> None:
    """A plain double-backward loop, as one would write it for one image."""
    network, label = scene.network, scene.labels[0]
    weights = [p for p in network.parameters() if p.requires_grad]
    wanted = [scene.turns[0].directions[n][0] for n, _ in network.named_parameters()]
    x = torch.zeros(1, *scene.shape)
    mean, square = torch.zeros_like(x), torch.zeros_like(x)
    for step in range(iterations):
        leaf = x.detach().requires_grad_()
        loss = F.cross_entropy(network(leaf), label)
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        dot = sum((a * b).sum() for a, b in zip(gradients, wanted, strict=True))
        gradient_norm = sum(a.square().sum() for a in gradients)
        wanted_norm = sum(b.square().sum() for b in wanted)
        rough = (leaf[..., 1:] - leaf[..., :-1]).abs().mean()
        rough = rough + (leaf[..., 1:, :] - leaf[..., :-1, :]).abs().mean()
        (slope,) = torch.autograd.grad(
            1 - dot / (gradient_norm * wanted_norm).sqrt() + 1e-3 * rough, leaf
        )
        slope = slope.sign()
        mean = 0.9 * mean + 0.1 * slope
        square = 0.999 * square + 0.001 * slope.square()
        size = (square / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
        x = (x - 0.1 * mean / (1 - 0.9 ** (step + 1)) / size).clamp(-1, 1)


def recover_by_attack(scene: Scene, iterations: int, restarts: int = 1) -> None:
    """The same through the attack."""
    ATTACKS["ig"]("ig", {"restarts": restarts}).recover(scene, Job(Budget(iterations=iterations)))


def measure_seconds(work, *given: object) -> float:  # type: ignore[no-untyped-def]
    began = time.process_time()  # of this process alone: neighbors do not count
    work(*given)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--nets", nargs="+", default=["small-cnn", "lenet"])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.nets:
        network = build(name, 10, key=rng.derive_server_key(1)).eval()
        x = torch.rand(1, 1, 3, 32, 32, generator=rng.derive_server_key(2).torch()) * 2 - 1
        scene = one_step(network, x, torch.tensor([[3]]), Normalize.from_name("half", 3), 10)
        recover_by_attack(scene, 2), recover_by_hand(scene, 2), recover_by_attack(scene, 2, 8)
        cost, batch = [], []
        for _ in range(args.turns):
            hand = measure_seconds(recover_by_hand, scene, ITERATIONS)
            single = measure_seconds(recover_by_attack, scene, ITERATIONS)
            eight = measure_seconds(recover_by_attack, scene, ITERATIONS, 8)
            cost.append(single / hand)
            batch.append(eight / (8 * single))
        print(
            f"{name}: an iteration, ours / by hand {statistics.median(cost):.2f} "
            f"({min(cost):.2f} to {max(cost):.2f}); 8 restarts at once / 8 single runs "
            f"{statistics.median(batch):.2f} ({min(batch):.2f} to {max(batch):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
