"""The graph of masks: sparse where that is safe, and nobody is a neighbor alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import hypergeom

from vitrail.secure_aggregation.graph import (
    COLLUDING,
    _draw_place,
    compute_threshold,
    list_neighbors,
    plan_sharing,
)

SEED = "ab" * 32


@pytest.mark.parametrize("sites", [2, 3, 4, 10, 50, 80, 100, 300, 1000, 3000])
def test_a_sparse_graph_keeps_its_promises(sites) -> None:
    """Against scipy's tails: colluding neighbors reach no threshold, those who stay do."""
    plan = plan_sharing(sites)
    stay = compute_threshold(sites)
    assert 3 * stay > 2 * sites and 3 * (stay - 1) <= 2 * sites
    if plan.degree == sites - 1:
        assert plan.threshold == stay
        return
    assert plan.degree % 2 == 0
    colluding = int(COLLUDING * sites)
    reach = hypergeom.sf(plan.threshold - 1, sites - 1, colluding, plan.degree)
    miss = hypergeom.cdf(plan.threshold - 1, sites - 1, stay - 1, plan.degree)
    assert sites * reach <= 2.0**-40 and sites * miss <= 2.0**-20


def test_a_small_cohort_is_complete_and_a_large_one_is_not() -> None:
    assert plan_sharing(10).degree == 9
    assert plan_sharing(1000).degree < 600


@pytest.mark.parametrize("sites", [80, 100, 350, 1000])
def test_losses_that_a_server_chooses_do_not_cut_the_circle(sites) -> None:
    """It called two gaps of half a neighborhood lost, and unmasked both arcs one by one."""
    plan, names = plan_sharing(sites), [f"s{n}" for n in range(sites)]
    graph = list_neighbors(names, SEED, plan.degree)
    lost = int(COLLUDING * sites) + sites - compute_threshold(sites)
    circle = sorted(names, key=lambda name: _draw_place(SEED, name))
    for first in range(lost + 1):  # two gaps, wherever the second is
        gap = lost - first
        left = set(circle[first : sites // 2]) | set(circle[sites // 2 + gap :])
        seen, edge = set(), {next(iter(left))}
        while edge:
            seen |= edge
            edge = {o for site in edge for o in graph[site] if o in left} - seen
        assert seen == left


@pytest.mark.parametrize("sites, degree", [(2, 1), (5, 4), (9, 4), (100, 74), (7, 6)])
def test_neighbors_are_mutual_and_of_the_degree(sites, degree) -> None:
    names = [f"s{n}" for n in range(sites)]
    graph = list_neighbors(names, SEED, degree)
    assert list(graph) == sorted(graph) or set(graph) == set(names)
    for name, others in graph.items():
        assert len(set(others)) == len(others) == degree and name not in others
        assert all(name in graph[other] for other in others)


def test_the_graph_follows_from_the_seed_and_looks_random() -> None:
    names = [f"s{n}" for n in range(60)]
    assert list_neighbors(names, SEED, 8) == list_neighbors(reversed(names), SEED, 8)
    counts = np.zeros(60)
    for draw in range(2000):
        graph = list_neighbors(names, f"{draw:064x}", 8)
        counts[[names.index(other) for other in graph["s0"]]] += 1
    mean = 2000 * 8 / 59
    assert counts[0] == 0 and np.all(np.abs(counts[1:] - mean) < 5 * np.sqrt(mean))


def test_who_stays_hangs_together() -> None:
    """Of 300 sites with a fifth colluding and a third lost, the others are one piece."""
    names = [f"s{n}" for n in range(300)]
    draw = np.random.Generator(np.random.PCG64(3))
    for number in range(20):
        graph = list_neighbors(names, f"{number:064x}", plan_sharing(300).degree)
        left = set(draw.permutation(names)[: 300 - 60 - 99])
        seen, edge = set(), {next(iter(left))}
        while edge:
            seen |= edge
            edge = {o for site in edge for o in graph[site] if o in left} - seen
        assert seen == left
