"""Secure aggregation at the server: it adds up masked updates, which it cannot read.

What a rule would add up at the server (`lift`) is computed at the site instead, with the weight
in it. All rules' vectors travel as one vector of fixed-point words, the last of which is a 1 at
every site: the sum of those tells whether the masks canceled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vitrail.aggregate.guard import Guard
from vitrail.aggregate.rule import Metrics, Tensors
from vitrail.aggregate.sums import SumNoise, Sums, make_rules
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.secure_aggregation.fixed_point import BITS, Words, from_fixed
from vitrail.secure_aggregation.masking import MASKED

ALL_SITES = "all sites"
"""Whose the sum is."""


def check_masked(schema: Schema, options: Aggregate) -> None:
    """Refuse messages of which the server needs more than a sum."""
    for rule, _ in make_rules(schema, {}, options):
        if rule.needs == "all":
            name = rule.group.fields[0].rule
            raise ConfigError(
                f"rule {name!r} must see every site's update, and a secure sum shows none",
                where="release.secure_sum",
                hint="Choose a rule that is a sum, such as mean, or leave secure_sum out.",
            )
    if schema.up_kept:
        raise ConfigError(
            f"{schema.up_kept[0].name!r} is kept site by site, so there is no sum of it",
            where="release.secure_sum",
            hint="Choose a method that only adds up, or leave secure_sum out.",
        )


@lru_cache(maxsize=16)
def compute_widths(schema: Schema, options: Aggregate) -> tuple[int, ...]:
    """How many numbers each rule of a message adds up: what it makes of an update of zeros."""
    zeros = {field.name: torch.zeros(field.shape, dtype=field.dtype) for field in schema.up}
    probe = Update("", 0, "", zeros, dict.fromkeys(schema.counts, 1.0))
    return tuple(len(rule.lift(probe, 0.0, part)) for rule, part in make_rules(schema, {}, options))


def masked_schema(schema: Schema, options: Aggregate) -> Schema:
    """What travels instead of the tensors of a message: one vector of words, and no counts."""
    field = Field(MASKED, (sum(compute_widths(schema, options)) + 1,), "masked", torch.int64)
    return Schema(schema.down, (field,), counts=(), metrics=schema.metrics)


def list_spans(schema: Schema, options: Aggregate) -> dict[str, list[tuple[int, int]]]:
    """Where each rule's numbers of the message stand in what travels, by the rule's name; what a
    rule adds behind them, such as a count, is not among them."""
    spans: dict[str, list[tuple[int, int]]] = {}
    at = 0
    widths = compute_widths(schema, options)
    for (rule, _), width in zip(make_rules(schema, {}, options), widths, strict=True):
        size = sum(math.prod(field.shape) for field in rule.group.fields)
        if rule.group.fields:
            spans.setdefault(rule.group.fields[0].rule, []).append((at, at + min(size, width)))
        at += width
    return spans


def lift_update(
    update: Update, weight: float, schema: Schema, sent: Mapping[str, Tensor], options: Aggregate
) -> Tensor:
    """All that an update adds to the sums of a round, in float64, and a 1 at its end."""
    parts = [rule.lift(update, weight, part) for rule, part in make_rules(schema, sent, options)]
    return torch.cat([*parts, torch.ones(1, dtype=torch.float64)])


class MaskedSum:
    """Adds masked updates modulo 2^64; what it comes to can be read once the masks are off."""

    def __init__(
        self,
        schema: Schema,
        sent: Mapping[str, Tensor],
        options: Aggregate,
        weights: Mapping[str, float],
    ) -> None:
        self.schema, self.sent, self.options, self.weights = schema, sent, options, weights
        self.accepted: list[str] = []
        self._guard = Guard(masked_schema(schema, options), {}, options.max_norm)
        self._total: Words = np.zeros(sum(compute_widths(schema, options)) + 1, np.uint64)
        self._revealed: Words | None = None
        self._refused: dict[str, str] = {}

    def offer(
        self,
        update: Update,
        weight: float,
        expected: tuple[str, int, str],
        limits: Mapping[str, float] | None = None,
    ) -> str | None:
        """Add a masked update, or record why it was refused: only its outside can be checked."""
        del limits  # each site checks itself
        reason = self._guard.refusal(update, weight, expected, {})
        if reason is not None:
            self._refused[expected[0]] = reason
            return reason
        self._total += update.tensors[MASKED].numpy().view(np.uint64)
        self.accepted.append(update.site)
        return None

    @property
    def words(self) -> Words:
        """The sum under its masks."""
        return self._total

    def reveal(self, words: Words) -> None:
        """Take the same sum without its masks."""
        self._revealed = words

    def finish(self, noise: SumNoise | None = None) -> Sums:
        """The aggregated tensors, if the masks came off and the result passes the guard."""
        if self._revealed is None:
            return self._refuse_all({})
        if int(self._revealed[-1]) != len(self.accepted) << BITS:
            return self._refuse_all(
                {ALL_SITES: "the masks did not cancel: sites were told different keys"}
            )
        tensors: Tensors = {}
        metrics: Metrics = {}
        parts = torch.split(
            from_fixed(self._revealed[:-1]), list(compute_widths(self.schema, self.options))
        )
        rules = make_rules(self.schema, self.sent, self.options)
        weight = sum(self.weights[site] for site in self.accepted)
        for (rule, about), part in zip(rules, parts, strict=True):
            total = part if noise is None else noise(rule, part)
            values, figures = rule.finish(total, weight, about)
            tensors, metrics = tensors | values, metrics | figures
        summed = replace(self.schema, up=tuple(f for f in self.schema.up if f.name in tensors))
        if reason := Guard(summed, self.sent, self.options.max_norm).total_refusal(tensors):
            return self._refuse_all({ALL_SITES: reason})
        return Sums(tensors, metrics, tuple(self.accepted), dict(self._refused))

    def _refuse_all(self, why: dict[str, str]) -> Sums:
        return Sums({}, {}, (), {**self._refused, **why})
