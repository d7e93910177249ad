"""What was spent over a lifetime, run by run, on whoever has spent most: for the picture of it."""

from __future__ import annotations

from typing import Any

from vitrail.engine.storage.run_folder import HISTORY_FILE, RunFolder
from vitrail.files import write_json
from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.flower.site.lifetime_units import Share
from vitrail.flower.site.policy import SitePolicy
from vitrail.flower.site.site_config import SiteConfig
from vitrail.release.accounting.promise import SERVER
from vitrail.release.lifetime_spending import Spending


def write_history(config: SiteConfig, folder: RunFolder) -> None:
    """What all runs at a site have spent so far, into the folder of one, for its report."""
    history = describe_history(LifetimeLedger(config), config.policy)
    write_json(folder.path / HISTORY_FILE, history)


def describe_history(ledger: LifetimeLedger, policy: SitePolicy) -> dict[str, Any]:
    """The runs of the image or patient that has spent most, in their order, each with what it costs
    alone and what all have spent after it; None is no bound."""
    delta = policy.lifetime_delta
    shares = ledger.list_shares()
    worst = max(
        shares, key=lambda share: share.spending.compute_epsilon(delta), default=Share(0, ())
    )
    runs, total = [], Spending()
    for run, size in zip(worst.runs, worst.sizes, strict=True):
        own = run.spending.take_group(size)
        total = total.join(own)
        alone, after = own.compute_epsilon(delta), total.compute_epsilon(delta)
        runs.append(
            {
                "run": run.run,
                "images": size,
                "over": run.over,
                "alone": alone if own.bounded else None,
                "total": after if total.bounded else None,
            }
        )
    against = dict.fromkeys(name for run in worst.runs for name in run.against)
    by_patient = any(size > 1 for size in worst.sizes)
    return {
        "delta": delta,
        "limit": policy.lifetime_epsilon,
        "unit": "one patient with all images" if by_patient else "one image",
        "against": list(against) or [SERVER],
        "runs": runs,
    }
