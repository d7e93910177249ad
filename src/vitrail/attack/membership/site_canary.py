"""An estimate of what client-dp lets out: canary sites send known directions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.attack.view import View
from vitrail.errors import RunError
from vitrail.local.canaries import draw_direction, is_canary_site
from vitrail.release.accounting.one_shot_estimate import Estimate, estimate_epsilon
from vitrail.rng import derive_server_key

MECHANISM = "client-dp"
SHARE = "canary_sites"
Change = Mapping[str, Tensor]


@dataclass(frozen=True)
class SiteCanaryAudit:
    """The estimate from the cosines of canary sites with what `seen` by an adversary adds up to."""

    canaries: int
    rounds: int
    numbers: int
    seen: str
    cosine: float
    delta: float
    estimate: Estimate

    def sentence(self) -> str:
        """All of it in words."""
        told = self.estimate
        return (
            f"canary sites: {self.canaries} of them in {self.seen}, {self.rounds} rounds: epsilon "
            f"is about {told.epsilon:.3g} ({told.low:.3g} to {told.high:.3g} in 90 % of resamples; "
            f"{told.fitted:.3g} with a fitted spread) at delta {self.delta:.1g}. This is an "
            "estimate for one adversary, no bound"
        )

    def to_json(self) -> dict[str, Any]:
        """All numbers."""
        return {"kind": "estimate", **asdict(self)}


def estimate_from_sites(view: View) -> SiteCanaryAudit:
    """Where noise is at the site, each canary is looked for in its own updates; else in the
    models, which everybody sees."""
    config = view.config
    options = config.release.options.get(MECHANISM, {})
    share, seed = float(options.get(SHARE, 0.0)), config.run.seed
    delta = float(options.get("delta", 1e-5))
    names = [site for site in view.list_sites() if is_canary_site(seed, site, share)]
    single = not config.release.secure_sum  # else the server saw nobody alone
    if options.get("where", "site") == "site" and single:
        seen, changes = "their own updates", view.list_round_changes()
        sums = {site: add_up(changes[site]) for site in names if site in changes}
        rounds = max((len(changes[site]) for site in sums), default=0)
    else:
        seen, moved = "the global models", view.list_model_changes()
        total, rounds = add_up(moved), len(moved)
        sums = dict.fromkeys(names, total)
    if len(sums) < 2:
        raise RunError(
            f"{len(sums)} canary sites took part in this run, and an estimate needs two at least",
            where=f"release.{MECHANISM}.{SHARE}",
        )
    cosines = np.array([compute_cosine(seed, site, total) for site, total in sums.items()])
    numbers = sum(tensor.numel() for tensor in next(iter(sums.values())).values())
    key = derive_server_key(seed).at("canary sites", "resamples")
    estimate = estimate_epsilon(cosines, numbers, delta, key)
    mean = float(cosines.mean())
    return SiteCanaryAudit(len(sums), rounds, numbers, seen, mean, delta, estimate)


def add_up(changes: Iterable[Change]) -> dict[str, Tensor]:
    """The sum of changes, each of length 1: a round with a larger change does not drown others."""
    total: dict[str, Tensor] = {}
    for change in changes:
        length = measure(change)
        for name, tensor in change.items() if length > 0 else ():
            part = tensor / length
            total[name] = total[name] + part if name in total else part
    return total


def measure(change: Change) -> float:
    """The norm over all tensors."""
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in change.values()))


def compute_cosine(seed: int, site: str, total: Change) -> float:
    """Between a canary's direction and what was seen."""
    shapes = {name: tuple(tensor.shape) for name, tensor in total.items()}
    direction = draw_direction(seed, site, shapes)
    inner = sum(float((direction[name] * tensor).sum()) for name, tensor in total.items())
    length = measure(total) * measure(direction)
    return inner / length if length > 0 else 0.0
