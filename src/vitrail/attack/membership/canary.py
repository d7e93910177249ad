"""A privacy audit in one run: guess which canaries were trained on; right guesses bound epsilon."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from vitrail.attack.attack import ATTACKS, Attack
from vitrail.attack.findings import Findings
from vitrail.attack.job import Job
from vitrail.attack.membership import site_canary
from vitrail.attack.view import View
from vitrail.errors import RunError
from vitrail.local.canaries import draw_places, find_places_key, toss_coins
from vitrail.release.accounting.one_run_audit import bound_epsilon
from vitrail.rng import derive_site_key

MECHANISM = "dp-sgd"


@dataclass(frozen=True)
class CanaryAudit:
    """How many guesses on a site's canaries were right, and the epsilon that proves."""

    site: str
    canaries: int
    guesses: int
    right: int
    delta: float
    epsilon: float
    confidence: float = 0.95

    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"canaries of {self.site}: {self.right} of {self.guesses} guesses right "
            f"({self.canaries} canaries): epsilon is at least {self.epsilon:.3g} at delta "
            f"{self.delta:.1g}, with {100 * self.confidence:.0f} % confidence"
        )

    def to_json(self) -> dict[str, Any]:
        """All numbers."""
        return asdict(self)


@ATTACKS.register("canary")
class CanaryAttack(Attack):
    """Ranks canaries by how far their number moved; the first are guessed in, the last out. Where
    canaries are sites, an estimate from how far the release points their way."""

    summary = "epsilon from canaries: a bound for dp-sgd, an estimate for client-dp"
    paper = "Steinke, Nasr, Jagielski 2023, arXiv:2305.08846; Andrew et al. 2023, arXiv:2302.03098"
    needs = "updates"

    def run(self, view: View, job: Job) -> Findings:
        """One audit a site; the coins are those of a simulation, for scoring only."""
        del job
        of_sites = view.config.release.options.get(site_canary.MECHANISM, {})
        if of_sites.get(site_canary.SHARE):
            return Findings(audits=(site_canary.estimate_from_sites(view),))
        options = view.config.release.options.get(MECHANISM, {})
        count, guesses = int(options.get("canaries", 0)), int(options.get("guesses", 200))
        if not count:
            raise RunError(
                "no canaries were declared in this run",
                where=f"release.{MECHANISM}.canaries",
                hint="Declare at least 1,000 of them, or canary_sites of client-dp, and "
                "run.record_updates = true.",
            )
        seed, delta = view.config.run.seed, float(options.get("delta", 1e-5))
        audits = []
        for site, moved in view.list_changes().items():
            places = draw_places(count, moved.numel(), find_places_key(seed, site))
            order = torch.argsort(moved[places], stable=True)  # a step goes against the gradient
            there = toss_coins(derive_site_key(seed, site), count)
            half = guesses // 2
            right = int(there[order[:half]].sum()) + int((~there[order[-half:]]).sum())
            bound = bound_epsilon(count, 2 * half, right, delta)
            audits.append(CanaryAudit(site, count, 2 * half, right, delta, bound))
        return Findings(audits=tuple(audits))
