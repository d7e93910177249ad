"""Ways to deal units out to sites. A unit is a patient with all images, or one image alone.

A kind is a function `(labels, options, generator) -> owner`: it sees the label of every unit
and says which site gets it. Dealing patients and not images is what keeps a patient from being
in the training part of one site and in the test part of another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Partition as Options
from vitrail.errors import ConfigError
from vitrail.registry import Registry

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Kind = Callable[[Ints, Options, np.random.Generator], Ints]

KINDS: Registry[Kind] = Registry("partition kind", "partition.kind")


def apportion(shares: Floats, total: int) -> Ints:
    """Whole numbers with the sum `total`, in proportion to the shares (largest remainder)."""
    ideal = shares / shares.sum() * total
    counts: Ints = np.floor(ideal).astype(np.int64)
    short = total - int(counts.sum())
    counts[np.argsort(counts - ideal, kind="stable")[:short]] += 1
    return counts


def dirichlet(alpha: float, sites: int, draw: np.random.Generator) -> Floats:
    """Shares of the sites from Dirichlet(alpha), for any alpha that a float can hold."""
    with np.errstate(all="ignore"):
        shares = draw.dirichlet(np.full(sites, alpha))
    if np.isfinite(shares).all() and shares.sum() > 0:
        return shares
    # Beyond what the sampler can hold only the limits are left: all alike, or one takes all.
    return np.full(sites, 1 / sites) if alpha > 1 else np.eye(sites)[draw.integers(sites)]


@KINDS.register("iid")
def _iid(labels: Ints, options: Options, draw: np.random.Generator) -> Ints:
    """Shuffle, then deal in turn: sizes differ by at most one unit."""
    owner = np.empty(len(labels), dtype=np.int64)
    owner[draw.permutation(len(labels))] = np.arange(len(labels)) % options.sites
    return owner


@KINDS.register("dirichlet")
def _dirichlet(labels: Ints, options: Options, draw: np.random.Generator) -> Ints:
    """Every class is shared out by its own draw of Dirichlet(alpha) over the sites."""
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        units = draw.permutation(np.flatnonzero(labels == label))
        counts = apportion(dirichlet(options.alpha, options.sites, draw), len(units))
        owner[units] = np.repeat(np.arange(options.sites), counts)
    return owner


@KINDS.register("shards")
def _shards(labels: Ints, options: Options, draw: np.random.Generator) -> Ints:
    """Sort by label, cut into equal shards, and give every site `shards` of them."""
    pieces = options.sites * options.shards
    if pieces > len(labels):
        raise ConfigError(
            f"{options.sites} sites of {options.shards} shards need {pieces} images or patients; "
            f"there are {len(labels)}",
            where="partition.shards",
            hint="Use fewer sites or fewer shards.",
        )
    shuffled = draw.permutation(len(labels))
    ordered = shuffled[np.argsort(labels[shuffled], kind="stable")]
    sizes = [len(piece) for piece in np.array_split(ordered, pieces)]
    owner = np.empty(len(labels), dtype=np.int64)
    owner[ordered] = np.repeat(draw.permutation(np.arange(pieces) % options.sites), sizes)
    return owner


@KINDS.register("quantity")
def _quantity(labels: Ints, options: Options, draw: np.random.Generator) -> Ints:
    """Sizes from one draw of Dirichlet(alpha), labels alike everywhere."""
    counts = apportion(dirichlet(options.alpha, options.sites, draw), len(labels))
    owner = np.empty(len(labels), dtype=np.int64)
    owner[draw.permutation(len(labels))] = np.repeat(np.arange(options.sites), counts)
    return owner


def ensure_minimum(
    owner: Ints, weights: Ints, sites: int, minimum: int, draw: np.random.Generator
) -> Ints:
    """Give every site `minimum` images by moving units away from the largest sites.

    `weights` is the number of images of every unit. Each move helps a site that lacks images
    and leaves the giver enough, so there are at most `sites * minimum` moves.
    """
    total = int(weights.sum())
    if sites * minimum > total:
        raise ConfigError(
            f"{sites} sites with at least {minimum} images each need {sites * minimum}, "
            f"and there are {total} to train on",
            where="partition.minimum",
            hint="Use fewer sites or a smaller minimum.",
        )
    owner = owner.copy()
    sizes = np.bincount(owner, weights, sites).astype(np.int64)
    givers = [(-int(sizes[site]), site) for site in range(sites) if sizes[site] > minimum]
    heapq.heapify(givers)
    members: dict[int, list[int]] = {}
    for needy in np.flatnonzero(sizes < minimum).tolist():
        while sizes[needy] < minimum:
            unit = _spare_unit(givers, owner, weights, sizes, minimum, members, draw)
            giver = int(owner[unit])
            owner[unit] = needy
            sizes[giver] -= weights[unit]
            sizes[needy] += weights[unit]
            heapq.heappush(givers, (-int(sizes[giver]), giver))
        heapq.heappush(givers, (-int(sizes[needy]), needy))
    return owner


def _spare_unit(
    givers: list[tuple[int, int]],
    owner: Ints,
    weights: Ints,
    sizes: Ints,
    minimum: int,
    members: dict[int, list[int]],
    draw: np.random.Generator,
) -> int:
    """A random unit that the largest possible site can do without; that site leaves the heap.

    `members` keeps the shuffled units of every site that was asked before.
    """
    while givers:
        _, site = heapq.heappop(givers)
        if site not in members:
            members[site] = draw.permutation(np.flatnonzero(owner == site)).tolist()
        held = members[site]
        for place in range(len(held) - 1, -1, -1):
            if weights[held[place]] <= sizes[site] - minimum:
                return held.pop(place)
    raise ConfigError(
        f"patients have so many images each that not every site can get {minimum} of them",
        where="partition.minimum",
        hint="Use fewer sites or a smaller minimum.",
    )
