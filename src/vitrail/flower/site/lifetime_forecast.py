"""What a run would add to what was spent on a site's images, before it begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from vitrail.engine.federation import Federation
from vitrail.engine.plan import Plan
from vitrail.flower.site.lifetime_ledger import LifetimeLedger, Share, list_keys
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.policy_check import PolicyBreach
from vitrail.flower.site.site_config import SiteConfig
from vitrail.release.lifetime_spending import Spending, plan_spending


@dataclass(frozen=True)
class LifetimeForecast:
    """A planned run on images that were in other runs before."""

    ledger: LifetimeLedger
    data: str
    keys: tuple[str, ...]
    plan: Spending
    shares: tuple[Share, ...]
    by_patient: bool = False

    def begin(self, run: str) -> None:
        """Count the run in full."""
        self.ledger.begin(run, self.data, self.keys, self.plan)

    def compute_spent(self, delta: float) -> float:
        """The most that was spent on one image before."""
        return max((s.spending.compute_epsilon(delta) for s in self.shares), default=0.0)

    def compute_total(self, delta: float) -> float:
        """The most that is spent on one image with this run."""
        totals = [s.spending.join(self.plan) for s in self.shares] or [self.plan]
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
        delta = policy.lifetime_delta
        unit = "one patient" if self.by_patient else "one image"
        return [
            f"over all runs here: epsilon {format_epsilon(self.compute_spent(delta))} is spent on "
            f"{unit} (there or blank), {format_epsilon(self.compute_total(delta))} with this run, "
            f"at delta {delta:g}, against the server and everybody after it"
        ]


def format_epsilon(epsilon: float) -> str:
    """A number, or that there is none."""
    return f"{epsilon:.4g}" if math.isfinite(epsilon) else "no bound"


def forecast_lifetime(config: SiteConfig, plan: Plan, federation: Federation) -> LifetimeForecast:
    """The forecast for the training images of a site."""
    rows, images = federation.sites[config.name].train, federation.images
    base = config.file.parent / Path(str(plan.config.data.path or ""))
    roots = (base, base.parent, config.file.parent)
    ledger = LifetimeLedger(config)
    keys = list_keys(images, rows, roots, config.secret())
    kept = [f.name for s in plan.stages for f in s.schema.up_kept]
    spending = plan_spending(plan.defenses(), kept, config.name, len(rows))
    known = images.patients is not None and bool((images.patients[rows] != "").all())
    data = f"{plan.config.data.source}:{plan.config.data.path or ''}"
    return LifetimeForecast(
        ledger, data, tuple(keys), spending, tuple(ledger.list_shares(keys)), known
    )
