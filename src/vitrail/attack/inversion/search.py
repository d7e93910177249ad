"""The search for images whose update matches: signed Adam over rows, best row by loss.

The optimizer of Geiping et al. 2020 (arXiv:2003.14053): Adam on the sign of the gradient, the
rate cut to a tenth at 3/8, 5/8 and 7/8 of the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vitrail.attack.job import Job

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]  # rows to (what is minimized, the match)
Project = Callable[[Tensor], Tensor]
_CUTS = (3 / 8, 5 / 8, 7 / 8)


@dataclass
class SearchResult:
    """The best point of every row, the loss there, and how many iterations it took."""

    x: Tensor
    loss: Tensor
    iterations: int


def search(
    start: Tensor,
    objective: Objective,
    project: Project,
    job: Job,
    iterations: int,
    lr: float = 0.1,
    signed: bool = True,
) -> SearchResult:
    """Minimize every row on its own; a row's best point is the one of its lowest objective."""
    state, begun = job.load()
    x = state.get("x", start)
    mean, square = (state.get(n, torch.zeros_like(start)) for n in ("mean", "square"))
    best = state.get("best", start)
    lowest = state.get("lowest", torch.full((len(start),), torch.inf))
    length, done = job.length(iterations), begun
    for step in job.steps(iterations, begun):
        leaf = x.detach().requires_grad_()
        loss, match = objective(leaf)
        (slope,) = torch.autograd.grad(loss.sum(), leaf)
        with torch.no_grad():
            better = torch.isfinite(loss) & (loss < lowest)
            best = torch.where(_expand_mask(better, x), x, best)
            lowest = torch.where(better, loss.detach(), lowest)
            slope = torch.nan_to_num(slope.sign() if signed else slope)
            rate = lr * 0.1 ** sum(step >= cut * length for cut in _CUTS)
            mean = 0.9 * mean + 0.1 * slope
            square = 0.999 * square + 0.001 * slope.square()
            size = (square / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8
            x = project(x - rate * mean / (1 - 0.9 ** (step + 1)) / size)
        done = step + 1
        job.tell(done, length, f"match {float(match.detach().min()):.4f}")
        job.save({"x": x, "mean": mean, "square": square, "best": best, "lowest": lowest}, done)
    with torch.no_grad():
        last, _ = _evaluate(objective, x)
        better = torch.isfinite(last) & (last < lowest)
        best = torch.where(_expand_mask(better, x), x, best)
        lowest = torch.where(better, last, lowest)
    job.save({"x": x, "mean": mean, "square": square, "best": best, "lowest": lowest}, done, True)
    return SearchResult(best, lowest, done)


def _evaluate(objective: Objective, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():  # the imagined update is a gradient itself
        loss, match = objective(x)
    return loss.detach(), match.detach()


def _expand_mask(mask: Tensor, x: Tensor) -> Tensor:
    return mask.view(-1, *(1,) * (x.dim() - 1))


def select_best_rows(loss: Tensor, restarts: int) -> Tensor:
    """For rows ordered site by site, restart by restart: the row of each site's lowest loss."""
    by_site = torch.nan_to_num(loss, nan=torch.inf).view(-1, restarts)
    return by_site.argmin(1) + restarts * torch.arange(len(by_site))
