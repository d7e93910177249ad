"""What a secure sum costs: one site and the server, a round, at 10, 100 and 1,000 sites.

    python benchmarks/secure_sum.py                      the protocol alone, 100,000 numbers a site
    python benchmarks/secure_sum.py --sites 10 100
    python benchmarks/secure_sum.py --run --sites 10     a round of ResNet8, beside a plain one
    python benchmarks/secure_sum.py --run --sites 100 1000 --repeats 1

The protocol is played in one process with states in memory, in processor seconds; lost sites go
before their turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from vitrail.secure_aggregation.graph import plan_sharing
from vitrail.secure_aggregation.round_state import RoundState
from vitrail.secure_aggregation.server_steps import SecureRound
from vitrail.secure_aggregation.site_steps import SiteSteps


class MemoryStore:
    def __init__(self) -> None:
        self.state: RoundState | None = None

    def load(self) -> RoundState | None:
        return self.state

    def save(self, state: RoundState) -> None:
        self.state = state


@dataclass
class Total:
    words: np.ndarray
    accepted: list[str] = field(default_factory=list)


class TimedLink:
    """Sites in this process; their seconds and bytes are counted."""

    def __init__(self, count: int, numbers: int) -> None:
        names = [f"site-{n:04d}" for n in range(count)]
        self.sites = {name: SiteSteps(name, "run", MemoryStore()) for name in names}
        self.numbers = numbers
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.bytes: defaultdict[str, int] = defaultdict(int)
        self.sampled = names[-1]

    def exchange(self, requests):
        answers = {}
        for request in requests:
            began = time.process_time()
            answers[request.site] = self.sites[request.site].answer(request)
            self.seconds[request.site] += time.process_time() - began
            if request.site == self.sampled:
                for message in (asdict(request), answers[request.site].header()):
                    self.bytes[request.site] += len(json.dumps(message))
        return answers

    def collect(self, requests, is_signed):
        total = Total(np.zeros(self.numbers, np.uint64))
        for site, request in requests.items():
            steps = self.sites[site]
            began = time.process_time()
            words = steps.mask(request, 1, "digest", np.zeros(self.numbers, np.uint64))
            self.seconds[site] += time.process_time() - began
            if site == self.sampled:
                self.bytes[site] += len(json.dumps(asdict(request)))
            total.words += words
            if is_signed(site, ""):
                total.accepted.append(site)
        return total, {}


def measure_protocol(count: int, numbers: int, lost: float) -> dict[str, object]:
    """One round of the protocol, without training."""
    link = TimedLink(count, numbers)
    names = list(link.sites)
    away = int(lost * count)
    began = time.process_time()
    secure = SecureRound("run", 1, "digest", dict.fromkeys(names, 1.0), link, tuple(names[:away]))
    outcome = secure.add_up(names[away:])
    whole = time.process_time() - began
    assert outcome.words is not None and not outcome.words.any(), outcome.problem
    there = [link.seconds[name] for name in names[away:]]
    return {
        "sites": count,
        "neighbors": plan_sharing(count).degree,
        "numbers": numbers,
        "lost": away,
        "seconds a site": round(statistics.median(there), 4),
        "seconds the server": round(whole - sum(link.seconds.values()), 3),
        "kB of keys and shares a site": round(link.bytes[link.sampled] / 1000, 1),
        "kB of masked words a site": round(8 * numbers / 1000, 1),
    }


def measure_run(sites: int, repeats: int = 3, images: int = 0) -> dict[str, object]:
    """Rounds of ResNet8 in this process, with and without masks, in turns: processor seconds, which
    a busy machine hardly changes, and seconds of the clock."""
    import vitrail

    cpu: dict[bool, list[float]] = {False: [], True: []}
    clock: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * repeats):
        secure = bool(number % 2)
        with tempfile.TemporaryDirectory() as scratch:
            marks = [(time.process_time(), time.perf_counter())]
            vitrail.run(
                {
                    "data": {
                        "source": "embedded",
                        "image_size": 32,
                        "aviary": {"images": images or 80 * sites},
                    },
                    "partition": {"kind": "iid", "sites": sites},
                    "model": {"backbone": "resnet8"},
                    "run": {"rounds": 3, "batch_size": 16, "workers": 1, "local_reference": False},
                    "release": {"secure_sum": secure},
                },
                Path(scratch) / "run",
                lambda _, marks=marks: marks.append((time.process_time(), time.perf_counter())),
            )
            rounds = np.diff(np.array(marks), axis=0)[1:3]  # the first one warms up
            cpu[secure].append(float(np.median(rounds[:, 0])))
            clock[secure].append(float(np.median(rounds[:, 1])))
    plain, masked = (statistics.median(cpu[secure]) for secure in (False, True))
    ratios = [two / one for one, two in zip(cpu[False], cpu[True], strict=True)]
    return {
        "sites": sites,
        "images a site": (images or 80 * sites) // sites,
        "cpu s plain": round(plain, 3),
        "cpu s secure": round(masked, 3),
        "overhead": round(masked / plain - 1, 3),
        "overhead by pair": [round(ratio - 1, 3) for ratio in ratios],
        "s plain": round(statistics.median(clock[False]), 3),
        "s secure": round(statistics.median(clock[True]), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--numbers", type=int, default=100_000)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--images", type=int, default=0, help="in all; 0: 80 a site")
    words = parser.parse_args()
    if words.run:
        for count in words.sites:
            print(json.dumps(measure_run(count, words.repeats, words.images)), flush=True)
        return
    for count in words.sites:
        for lost in (0.0, 0.05):
            print(json.dumps(measure_protocol(count, words.numbers, lost)), flush=True)


if __name__ == "__main__":
    main()
