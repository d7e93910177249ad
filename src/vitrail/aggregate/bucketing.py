"""Bucketing: means of a few updates at random, before a rule that must see every update."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vitrail.aggregate.rule import PerSiteRule
from vitrail.config.schema import Aggregate
from vitrail.rng import Key


def find_bucketing_fault(options: Aggregate, count: int) -> str | None:
    """Why buckets of this size would not stand the hostile sites reckoned with, or None.

    Each hostile site spoils one bucket, so f of n / s buckets may be spoiled: less than half of
    them must be (Karimireddy et al. 2022, arXiv:2006.09365).
    """
    size, hostile = options.bucket, options.byzantine
    if size == 1 or hostile == 0 or size * hostile < count / 2:
        return None
    return (
        f"buckets of {size} (aggregate.bucket) with {hostile} hostile sites "
        f"(aggregate.byzantine) may be spoiled by half among {count} sites"
    )


def count_buckets(options: Aggregate, count: int) -> int:
    """How many buckets so many updates make."""
    return math.ceil(count / options.bucket)


def fill_buckets(
    rule: PerSiteRule, stack: Tensor, weights: Tensor, size: int, key: Key
) -> tuple[Tensor, Tensor]:
    """Updates and weights after bucketing; the order is drawn anew in each round."""
    if size == 1 or len(stack) < 2:
        return stack, weights
    order = torch.from_numpy(key.numpy().permutation(len(stack)))
    buckets = [order[at : at + size] for at in range(0, len(order), size)]
    merged = [rule.merge(stack[bucket], weights[bucket]) for bucket in buckets]
    return torch.stack(merged), torch.stack([weights[bucket].sum() for bucket in buckets])
