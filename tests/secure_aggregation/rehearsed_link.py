"""A cohort in one process, for tests: sites that drop out where they are told to."""

from __future__ import annotations

import hmac
from dataclasses import asdict, dataclass, field

import numpy as np

from vitrail.release.masker import WithheldError
from vitrail.rng import derive_site_key
from vitrail.secure_aggregation.round_state import RoundState
from vitrail.secure_aggregation.server_steps import SecureRound
from vitrail.secure_aggregation.site_steps import SiteSteps
from vitrail.secure_aggregation.steps import StepAnswer, read_request

STEPS = ("keys", "shares", "mask", "survivors", "unmask")


@dataclass
class MemoryStore:
    """A site's state, in memory."""

    state: RoundState | None = None

    def load(self):
        return self.state

    def save(self, state):
        self.state = state


@dataclass(frozen=True)
class TestSigner:
    """Signatures for tests: a keyed digest that only the named site makes."""

    __test__ = False
    site: str

    def sign(self, statement):
        return hmac.digest(self.site.encode(), statement, "sha256").hex()

    def accepts(self, site, statement, signature):
        return signature == TestSigner(site).sign(statement)


@dataclass
class Total:
    """A sum of masked words."""

    words: np.ndarray
    accepted: list[str] = field(default_factory=list)


@dataclass
class RehearsedLink:
    """Sites by name, their numbers, and the step before which each goes away."""

    sites: dict[str, SiteSteps]
    values: dict[str, np.ndarray]
    gone: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    masked: dict[str, np.ndarray] = field(default_factory=dict)

    def is_there(self, site: str, step: str) -> bool:
        last = self.gone.get(site)
        return last is None or STEPS.index(step) < STEPS.index(last)

    def exchange(self, requests):
        self.asked += [requests[0].step] if requests else []
        answers = {}
        for request in requests:
            if self.is_there(request.site, request.step):
                told = self.sites[request.site].answer(read_request(asdict(request)))
                answers[request.site] = StepAnswer.read(told.header())
        return answers

    def collect(self, requests, is_signed):
        self.asked.append("mask")
        size = len(next(iter(self.values.values())))
        total, signatures = Total(np.zeros(size, np.uint64)), {}
        for site, request in requests.items():
            if not self.is_there(site, "mask"):
                continue
            steps = self.sites[site]
            state = steps.store.load()
            try:
                words = steps.mask(request, state.round, state.message, self.values[site])
            except WithheldError:
                continue
            signature = steps.sign_senders(request)
            if not is_signed(site, signature):
                continue
            self.masked[site] = words
            total.words += words
            total.accepted.append(site)
            signatures[site] = signature
        return total, signatures


def make_link(count, size=5, signed=True, run="run", **options) -> RehearsedLink:
    """So many sites with numbers of their own."""
    names = [f"site-{n:04d}" for n in range(count)]
    sites = {n: SiteSteps(n, run, MemoryStore(), TestSigner(n) if signed else None) for n in names}
    draws = {n: derive_site_key(1, n).numpy().integers(0, 2**64, size, np.uint64) for n in names}
    return RehearsedLink(sites, draws, **options)


def play(link, number=1, message="digest", weights=None, **options):
    """One round of the sites of a link."""
    names = list(link.sites)
    weights = weights or dict.fromkeys(names, 1.0)
    if all(steps.signer is not None for steps in link.sites.values()):
        options.setdefault("verify", TestSigner("").accepts)
    return SecureRound("run", number, message, weights, link, **options).add_up(names)


def add_values(link, sites):
    """The plain sum of some sites' numbers, modulo 2^64."""
    return sum((link.values[s] for s in sites), np.zeros_like(next(iter(link.values.values()))))
