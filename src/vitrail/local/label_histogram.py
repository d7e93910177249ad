"""How many images of each class a site has, as it may leave: exact, or by a formal mechanism."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from vitrail.discrete_gaussian import DiscreteLaplace
from vitrail.local.session import Context, Site
from vitrail.rng import Key, Stream

TOLD = "counts/told"
_REPLACED = 2  # one image replaced by another moves two counts by one
_TABLE = 2.0**-114  # how far a drawn number is from the definition, in total variation


def count_labels(site: Site, ctx: Context) -> Tensor:
    """The site's training images by class, [classes]."""
    labels = site.inputs.targets(site.rows.train).cpu()
    return torch.bincount(labels, minlength=ctx.classes)


def privatize_histogram(counts: Tensor, epsilon: float, source: Stream) -> Tensor:
    """Whole counts plus discrete Laplace noise of scale 2 / epsilon, not below 0.

    (epsilon, 0)-DP for one image that is replaced by any other (Ghosh et al. 2012,
    arXiv:0811.2841), up to the sampler's table; cutting at 0 sees nothing but the result.
    """
    noise = DiscreteLaplace(_REPLACED / epsilon).draw(counts.numel(), source)
    return (counts.cpu().long() + torch.from_numpy(noise)).clamp_min(0)


def tell_private_histogram(site: Site, ctx: Context, epsilon: float) -> Tensor:
    """The site's histogram with noise: the same numbers in every round, so that they cost once.

    The noise depends on the site's secret, its images and labels, the run and epsilon, never on
    the round or the message; the ledger has one line for each histogram that was told.
    """
    counts = count_labels(site, ctx)
    root = Key(site.key.root).at("noise", "label histogram", site.cause, epsilon)
    source = root.at(site.digest_data(), *counts.tolist()).stream()
    told = privatize_histogram(counts, epsilon, source)
    if not torch.equal(site.state.get(TOLD, torch.empty(0, dtype=torch.int64)), told):
        site.state[TOLD] = told
        site.lines.append(
            {
                "kind": "label histogram",
                "id": hashlib.blake2b(told.numpy().tobytes(), digest_size=8).hexdigest(),
                "bytes": 4 * told.numel(),
                "mechanism": ["discrete Laplace"],
                "scale": _REPLACED / epsilon,
                "epsilon": epsilon,
                "delta": told.numel() * (1 + math.exp(epsilon)) * _TABLE,
                "adversary": "whoever sees the histogram and knows all other images of the site",
                "covers": "the histogram only; how many images there are, and model updates, "
                "leave beside it",
                "guarantee": f"formal: epsilon {epsilon:g} for one image replaced by another",
            }
        )
    return told
