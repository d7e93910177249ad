"""What a robust rule costs: seconds to add up a round, over the plain mean's.

    python benchmarks/rules.py [--sites 100] [--numbers 300000] [--repeats 5]

Updates are drawn once; each rule adds them up through the guard, as the server does, in turns.
Ratios are medians over the repeats, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from vitrail.aggregate import Aggregator
from vitrail.config.schema import Aggregate
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

RULES: dict[str, dict[str, object]] = {
    "mean": {},
    "norm-clip": {"clip": 1.0},
    "median": {},
    "trimmed-mean": {"trim": 0.2},
    "krum": {"byzantine": 20},
    "multi-krum": {"byzantine": 20},
    "geometric-median": {},
    "centered-clipping": {},
    "fltrust": {},
}


def add_up(rule: str, updates: list[Update], sent: torch.Tensor) -> float:
    """Processor seconds of one round."""
    fields = (Field("model/w", tuple(sent.shape), rule),)
    options = Aggregate(rule=rule, alarms=False, **RULES[rule])  # type: ignore[arg-type]
    began = time.process_time()
    trusted = {"model/w": updates[0].tensors["model/w"]}
    total = Aggregator(Schema(fields, fields, ()), {"model/w": sent}, options, trusted=trusted)
    for update in updates:
        assert total.offer(update, 1.0, (update.site, 1, "train")) is None
    assert total.finish().tensors
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sites", type=int, default=100)
    parser.add_argument("--numbers", type=int, default=300_000)
    parser.add_argument("--repeats", type=int, default=5)
    words = parser.parse_args()
    torch.set_num_threads(1)
    draws = derive_server_key(1).torch()
    sent = torch.randn(words.numbers, generator=draws)
    shift = 0.01 * torch.randn(words.numbers, generator=draws)
    updates = [
        Update(
            f"site-{n:04d}",
            1,
            "train",
            {"model/w": sent + shift + 0.01 * torch.randn(words.numbers, generator=draws)},
            {},
        )
        for n in range(words.sites)
    ]
    seconds = {rule: list[float]() for rule in RULES}
    for _ in range(words.repeats):
        for rule in RULES:
            seconds[rule].append(add_up(rule, updates, sent))
    print(f"{words.sites} sites x {words.numbers} numbers, {words.repeats} turns, one thread")
    for rule, own in seconds.items():
        ratios = [a / b for a, b in zip(own, seconds["mean"], strict=True)]
        spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
        middle = statistics.median(ratios)
        print(f"  {rule:18s} {statistics.median(own):6.2f} s  {middle:5.1f} times ({spread})")


if __name__ == "__main__":
    main()
