"""How many sites a run has, as this one was told: a secure sum over a few of them is refused.

A server that chose two sites, one of which works for it, would read the other one's update off
their sum. It may say from the start that there are only two; then the operator reads it.
"""

from __future__ import annotations

import json

from vitrail.engine.plan import Plan
from vitrail.engine.sampling import compute_sample_size
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.files import write_json
from vitrail.flower.site.policy import SitePolicy
from vitrail.secure_aggregation.graph import compute_quorum

TOLD_FILE = "told-sites.json"


def note_told_sites(folder: RunFolder, sites: int) -> None:
    """Remember the most sites that a run was ever said to have."""
    if sites > _read_told(folder):
        write_json(folder.path / TOLD_FILE, {"sites": sites})


def compute_least_cohort(folder: RunFolder, plan: Plan, policy: SitePolicy) -> int:
    """The fewest sites that a secure sum must be over: what the policy says, and so many of those
    a round is drawn from as must agree to its sum."""
    told = _read_told(folder)
    drawn = compute_sample_size(told, plan.config.run.participation) if told else 0
    return max(2, policy.cohort or 2, compute_quorum(drawn) if drawn else 2)


def _read_told(folder: RunFolder) -> int:
    file = folder.path / TOLD_FILE
    return int(json.loads(file.read_text(encoding="utf-8"))["sites"]) if file.exists() else 0
