"""Who shares masks with whom: everybody with everybody, or a sparse graph in a large cohort.

With n sites the masks of a complete graph cost n times the length of an update at every site. Bell
et al. 2020 (SecAgg+, doi:10.1145/3372297.3417885) let a site have only so many neighbors, on a
circle in random order, that with overwhelming probability no neighborhood is ruled by colluders,
enough of each stays, and the honest sites that stay hang together. The circle's order follows from
the keys of everybody, fresh in each attempt.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

COLLUDING = Fraction(1, 5)
"""The share of a large cohort that may work for the server; on complete graphs it is a third."""
PRIVACY_BITS = 40
"""Nobody's masks come off but with a chance of 2 to minus this."""
RECOVERY_BITS = 20
"""A sum with enough sites comes out but with a chance of 2 to minus this."""


def compute_threshold(sites: int) -> int:
    """How many sites of a cohort must stay: the first number above two thirds."""
    return 2 * sites // 3 + 1


def compute_quorum(sites: int) -> int:
    """How many sites of a round must agree to a sum of it, in whichever attempt: any two such
    groups have an honest site in common while less than a third collude, and it agrees once."""
    colluding = -(-sites // 3) - 1
    return (sites + colluding) // 2 + 1


@dataclass(frozen=True)
class Sharing:
    """How many neighbors a site has, and how many shares give one of its secrets back."""

    degree: int
    threshold: int


@lru_cache(maxsize=64)
def plan_sharing(sites: int) -> Sharing:
    """The sparsest graph that is safe for this many sites; else the complete one."""
    stay = compute_threshold(sites)
    colluding = math.floor(COLLUDING * sites)
    for degree in range(2, sites - 1, 2):
        if not _hangs_together(sites, degree, colluding + sites - stay):
            continue
        low = _find_lowest(sites, colluding, degree)
        high = _find_highest(sites, stay - 1, degree)
        if low <= high:
            return Sharing(degree, high)
    return Sharing(sites - 1, stay)


def list_neighbors(sites: Iterable[str], seed: str, degree: int) -> dict[str, tuple[str, ...]]:
    """The neighbors of every site, by name: half of them before and half after it on a circle."""
    names = sorted(sites)
    if degree >= len(names) - 1:
        return {name: tuple(other for other in names if other != name) for name in names}
    circle = sorted(names, key=lambda name: _draw_place(seed, name))
    steps = [step for step in range(-(degree // 2), degree // 2 + 1) if step]
    return {
        name: tuple(sorted(circle[(at + step) % len(circle)] for step in steps))
        for at, name in enumerate(circle)
    }


def _draw_place(seed: str, name: str) -> bytes:
    return hashlib.blake2b(name.encode(), key=bytes.fromhex(seed), digest_size=32).digest()


def _count_ways(sites: int, marked: int, degree: int) -> list[int]:
    """In how many ways a site's neighbors hold 0, 1, 2 ... of the marked ones among the others."""
    others = sites - 1
    return [
        math.comb(marked, hits) * math.comb(others - marked, degree - hits)
        if degree - hits <= others - marked
        else 0
        for hits in range(min(degree, marked) + 1)
    ]


def _find_lowest(sites: int, colluding: int, degree: int) -> int:
    """The lowest threshold that colluding neighbors reach with less than the chance allowed."""
    allowed = math.comb(sites - 1, degree) // (sites * 2**PRIVACY_BITS)
    reached = 0
    ways = _count_ways(sites, colluding, degree)
    for hits in range(len(ways) - 1, -1, -1):
        reached += ways[hits]
        if reached > allowed:
            return hits + 1
    return 1


def _find_highest(sites: int, stay: int, degree: int) -> int:
    """The highest threshold that the neighbors who stay miss with less than the chance allowed."""
    allowed = math.comb(sites - 1, degree) // (sites * 2**RECOVERY_BITS)
    missed = 0
    for hits, ways in enumerate(_count_ways(sites, stay, degree)):
        missed += ways
        if missed > allowed:
            return hits
    return degree


def _hangs_together(sites: int, degree: int, lost: int) -> bool:
    """Whether those who stay are one piece whoever is lost: a circle is cut by two gaps of half a
    neighborhood each, and a server that knows the circle may choose whom it calls lost. Nor is
    half a neighborhood in a row lost by chance, which keeps small cohorts complete."""
    gap = degree // 2
    by_chance = gap <= lost and sites * math.comb(lost, gap) << PRIVACY_BITS > math.comb(sites, gap)
    return degree > lost and not by_chance
