"""TIP's convergence theorem on strongly convex quadratics: the measured gap beside two bounds.

python -m experiments.figures.tip_theorem [--rounds 5000] [--out tip-theorem.png]

Sites take gradient steps on F_k(w) = (w - c_k)' A_k (w - c_k) / 2, add Gaussian noise to the
weights they send, and the server takes the mean. `printed` is the theorem's bound with its
misprints repaired (theta = L/mu, gamma = phi, 6 L Gamma), which counts the noise as if it were
part of a gradient: multiplied by the square of the step, so that it fades like 1/T. `corrected`
adds it to the weights, where it is: a(t+1) <= (1 - eta mu) a(t) + eta^2 B + V once a round.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail import rng

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Quadratics of some sites; `noise` is the SD of what each adds to each weight it sends."""

    curvatures: Floats  # [sites, dimension]
    centers: Floats  # [sites, dimension]
    steps: int
    noise: float

    @property
    def mu(self) -> float:
        """The least curvature of any site."""
        return float(self.curvatures.min())

    @property
    def smoothness(self) -> float:
        """The greatest curvature of any site, L."""
        return float(self.curvatures.max())

    @property
    def best(self) -> Floats:
        """Where the mean of the functions is least."""
        minimum: Floats = (self.curvatures * self.centers).sum(0) / self.curvatures.sum(0)
        return minimum

    def value(self, w: Floats) -> Floats:
        """The mean of the functions at points [..., dimension]."""
        values = 0.5 * (self.curvatures * (w[..., None, :] - self.centers) ** 2).sum(-1)
        mean: Floats = values.mean(-1)
        return mean

    @property
    def spread(self) -> float:
        """Gamma: the least of the mean minus the mean of the least values, which are 0."""
        return float(self.value(self.best))

    @property
    def released(self) -> float:
        """V: the variance that one round's noise adds to the mean of the weights."""
        sites, dimension = self.centers.shape
        return float(self.noise**2 * dimension / sites)

    def step(self, t: int, decaying: bool) -> float:
        """The theorem's decaying step 2 / (mu (phi + t)), or the constant it starts with."""
        return 2 / (self.mu * (self.phi + (t if decaying else 0)))

    @property
    def phi(self) -> float:
        """max(8 L / mu, local steps)."""
        return max(8 * self.smoothness / self.mu, float(self.steps))


def draw_problem(
    key: rng.Key, sites: int = 10, dimension: int = 10, noise: float = 0.05
) -> Problem:
    """Curvatures from 0.5 to 2, centers that differ between sites."""
    draw = key.numpy()
    curvatures = draw.uniform(0.5, 2.0, (sites, dimension))
    return Problem(curvatures, draw.normal(0, 0.3, (sites, dimension)), 2, noise)


def measure_gaps(
    p: Problem, rounds: int, decaying: bool, key: rng.Key, repeats: int = 50
) -> tuple[Floats, float]:
    """The mean gap F(w) - F* after each round, from w = 1, and the largest squared gradient."""
    draw = key.numpy()
    sites, dimension = p.centers.shape
    w = np.ones((repeats, dimension))
    gaps, largest = [float(np.mean(p.value(w) - p.spread))], 0.0
    for round_ in range(rounds):
        local = np.repeat(w[:, None, :], sites, axis=1)
        for step in range(p.steps):
            gradient = p.curvatures * (local - p.centers)
            largest = max(largest, float((gradient**2).sum(-1).mean(0).max()))
            local = local - p.step(round_ * p.steps + step, decaying) * gradient
        w = (local + p.noise * draw.normal(size=local.shape)).mean(1)
        gaps.append(float(np.mean(p.value(w) - p.spread)))
    return np.array(gaps), largest


def compute_bounds(
    p: Problem, rounds: int, decaying: bool, gradient: float
) -> tuple[Floats, Floats]:
    """The printed bound, which is for the decaying step only, and the corrected one."""
    start = float(((np.ones(p.centers.shape[1]) - p.best) ** 2).sum())
    drift = 6 * p.smoothness * p.spread + 8 * (p.steps - 1) ** 2 * gradient
    times = np.arange(rounds + 1, dtype=np.float64) * p.steps
    theta = p.smoothness / p.mu
    counted = drift + p.released
    printed: Floats = theta / (p.phi + times) * (2 * counted / p.mu + p.mu * p.phi / 2 * start)
    corrected, distance = [], start
    for round_ in range(rounds + 1):
        corrected.append(p.smoothness / 2 * distance)
        for step in range(p.steps):
            eta = p.step(round_ * p.steps + step, decaying)
            distance = (1 - eta * p.mu) * distance + eta**2 * drift
        distance += p.released
    return printed, np.array(corrected)


def draw_curves(curves: dict[str, dict[str, Floats]], path: str) -> None:
    """The gap and both bounds by round, decaying and constant steps side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, (title, lines) in zip(axes, curves.items(), strict=True):
        for name, values in lines.items():
            axis.loglog(np.arange(1, len(values)), values[1:], label=name)
        axis.set(title=title, xlabel="round")
        axis.legend()
    axes[0].set_ylabel("F(w) - F*")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Print the gap and the bounds at a few rounds."""
    options = argparse.ArgumentParser()
    options.add_argument("--rounds", type=int, default=5000)
    options.add_argument("--noise", type=float, default=0.05)
    options.add_argument("--out", default="")
    arguments = options.parse_args()
    key = rng.derive_server_key(1)
    curves = {}
    for title, decaying in (("decaying step", True), ("constant step", False)):
        p = draw_problem(key.at("problem"), noise=arguments.noise)
        gaps, gradient = measure_gaps(p, arguments.rounds, decaying, key.at(title))
        printed, corrected = compute_bounds(p, arguments.rounds, decaying, gradient)
        curves[title] = {"measured": gaps, "printed": printed, "corrected": corrected}
        print(f"{title}: V = {p.released:.4g}, L/mu = {p.smoothness / p.mu:.2f}")
        for at in [r for r in (1, 10, 100, 1000, 5000) if r <= arguments.rounds]:
            print(
                f"  round {at:>5}: measured {gaps[at]:.4g}  printed {printed[at]:.4g}  "
                f"corrected {corrected[at]:.4g}"
            )
        above = np.flatnonzero(gaps > printed)
        print(
            f"  above the printed bound {f'from round {above[0]} on' if len(above) else 'nowhere'}"
        )
        assert (gaps <= corrected).all(), "the corrected bound does not hold"
    if arguments.out:
        draw_curves(curves, arguments.out)


if __name__ == "__main__":
    main()
