"""What a run would add to what was spent on a site's images, before it begins."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitrail.data.original_bytes import read_original_bytes
from vitrail.engine.federation import Federation
from vitrail.engine.plan import Plan
from vitrail.flower.site.lifetime_keys import ImageKeys, list_keys
from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.flower.site.lifetime_units import Share
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.policy_check import PolicyBreach
from vitrail.flower.site.site_config import SiteConfig
from vitrail.local.inputs import Rows
from vitrail.release.accounting.promise import SERVER
from vitrail.release.defenses.private import PrivateDefense
from vitrail.release.lifetime_spending import Spending, plan_spending
from vitrail.rng import derive_server_key


@dataclass(frozen=True)
class LifetimeForecast:
    """A planned run on images that were in other runs before."""

    ledger: LifetimeLedger
    data: str
    keys: ImageKeys
    plan: Spending
    shares: tuple[Share, ...]
    against: tuple[str, ...] = ()

    def begin(self, run: str) -> None:
        """Count the run in full."""
        self.ledger.begin(run, self.data, self.keys, self.plan, self.against)

    def is_counted(self, run: str) -> bool:
        """Whether a run that has begun was counted with all of these images."""
        images, tested = self.ledger.count_images(run)
        return not (Counter(self.keys.images) - images or Counter(self.keys.tested) - tested)

    def compute_spent(self, delta: float) -> float:
        """The most that was spent before on one image, or on all images of one patient."""
        return max((s.spending.compute_epsilon(delta) for s in self.shares), default=0.0)

    def compute_total(self, delta: float) -> float:
        """The same with this run."""
        totals = [s.spending.join(self.plan.take_group(s.planned)) for s in self.shares]
        totals = totals or [self.plan]
        return max(total.compute_epsilon(delta) for total in totals)

    def find_breach(self, policy: SitePolicy) -> PolicyBreach | None:
        """Why the policy forbids the run, with the number that is left; for the operator alone."""
        most = policy.lifetime_epsilon
        if most is None:
            return None
        delta = policy.lifetime_delta
        spent, total = self.compute_spent(delta), self.compute_total(delta)
        if total <= most:
            return None
        left = "nothing is left" if spent >= most else f"{most - spent:.4g} is left"
        return PolicyBreach(
            "lifetime_epsilon",
            f"with this run epsilon over all runs would be {format_epsilon(total)} on some image, "
            f"over {most:g}; {format_epsilon(spent)} is spent and {left}",
        )

    def list_lines(self, policy: SitePolicy) -> list[str]:
        """What an operator is told before agreeing."""
        told = self.describe(policy)
        return [
            f"over all runs here: epsilon {told['spent']} is spent on {told['unit']}, "
            f"{told['with this run']} with this run, at delta {told['delta']:g}, against "
            f"{told['against']}",
            *describe_unmatched(list_unmatched(self.shares)),
        ]

    def describe(self, policy: SitePolicy) -> dict[str, Any]:
        """What was spent over a lifetime and is with this run: on whom, against whom."""
        delta = policy.lifetime_delta
        most = max((s.planned for s in self.shares), default=1)
        patient = f"one patient with all images (up to {most} in this run; there or blank)"
        before = [name for share in self.shares for run in share.runs for name in run.against]
        against = list(dict.fromkeys([*before, *self.against])) or [SERVER]
        return {
            "unit": patient if self.keys.complete else "one image (there or blank)",
            "against": "; in other runs ".join(against),
            "spent": format_epsilon(self.compute_spent(delta)),
            "with this run": format_epsilon(self.compute_total(delta)),
            "delta": delta,
        }


def format_epsilon(epsilon: float) -> str:
    """A number, or that there is none."""
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "no bound"


def list_unmatched(shares: Iterable[Share]) -> list[str]:
    """Runs among those of some shares whose images nobody can recognize any more."""
    names = (run.run for share in shares for run in share.runs if run.unmatched)
    return list(dict.fromkeys(names))


def describe_unmatched(runs: Sequence[str]) -> list[str]:
    """Why some runs of older versions leave no bound on any image; nothing if there are none."""
    if not runs:
        return []
    return [
        f"an older version knew the images of {', '.join(runs)} by their pixels after resizing, "
        "by which nobody can recognize them: these runs count for every image, without a bound"
    ]


def forecast_lifetime(config: SiteConfig, plan: Plan, federation: Federation) -> LifetimeForecast:
    """The forecast for the training images of a site."""
    parts = federation.sites[config.name]
    rows, data = parts.train, plan.config.data
    looked = parts.test if parts.push is None else np.union1d(parts.test, parts.push)
    keys = _read_keys(config, plan, federation, rows).look_at(
        _read_keys(config, plan, federation, np.setdiff1d(looked, rows))
    )
    kept = [f.name for s in plan.stages for f in s.schema.up_kept]
    defenses = plan.defenses()
    spending = plan_spending(defenses, kept, config.name, len(rows))
    ledger, named = LifetimeLedger(config), f"{data.source}:{data.path or ''}"
    against = dict.fromkeys(d.against() for d in defenses if isinstance(d, PrivateDefense))
    shares = tuple(ledger.list_shares(keys))
    return LifetimeForecast(ledger, named, keys, spending, shares, tuple(against))


def _read_keys(config: SiteConfig, plan: Plan, federation: Federation, rows: Rows) -> ImageKeys:
    """What the ledger knows some images of a site by."""
    images, key = federation.images_as_read, derive_server_key(plan.config.run.seed).at("data")
    originals = read_original_bytes(images, rows, plan.config.data, config.file.parent, key)
    return list_keys(images, rows, originals, config.secret())
