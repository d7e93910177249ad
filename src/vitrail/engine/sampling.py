"""Who takes part in a round: sampling, dropouts and deadlines, all drawn from the seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vitrail.config.schema import Run
from vitrail.rng import Key


@dataclass(frozen=True)
class Draw:
    """The sites of a round in order of dispatch (largest first), who fell out and why, and who is
    not asked at all."""

    sites: tuple[str, ...]
    dropped: dict[str, str]
    left_out: dict[str, str] = field(default_factory=dict)


def order_sites(examples: Mapping[str, float]) -> list[str]:
    """Largest first, then by name: the order of dispatch and of every sum."""
    return sorted(examples, key=lambda site: (-examples[site], site))


def compute_sample_size(sites: int, participation: float) -> int:
    """How many sites a round has: the share, rounded up, and at least one."""
    return max(1, math.ceil(participation * sites - 1e-9))


def draw_sites(examples: Mapping[str, float], run: Run, key: Key, everybody: bool) -> Draw:
    """Choose the sites of one round, then let some of them drop out.

    A dropout answers nothing. A deadline is a multiple of the median site's time, where a
    site's time is its images times a slowness drawn once per run (log-normal, `run.slowness`).
    """
    order = order_sites(examples)
    count = len(order) if everybody else compute_sample_size(len(order), run.participation)
    chosen = order
    if count < len(order):
        picks = key.at("sample").numpy().choice(len(order), count, replace=False)
        chosen = [order[i] for i in sorted(picks)]
    dropped: dict[str, str] = {}
    if run.dropout:
        luck = key.at("dropout").numpy().random(len(chosen))
        dropped |= {
            site: "dropped out" for site, u in zip(chosen, luck, strict=True) if u < run.dropout
        }
    if run.deadline is not None:
        late = _draw_late(examples, run, key)
        dropped |= {
            site: "missed the deadline" for site in chosen if site in late and site not in dropped
        }
    return Draw(tuple(site for site in chosen if site not in dropped), dropped)


def _draw_late(examples: Mapping[str, float], run: Run, key: Key) -> set[str]:
    root = Key(key.root).at("slowness")
    times = {
        site: count * math.exp(run.slowness * float(root.at(site).numpy().standard_normal()))
        for site, count in examples.items()
    }
    limit = (run.deadline or math.inf) * float(np.median(list(times.values())))
    return {site for site, time in times.items() if time > limit}
