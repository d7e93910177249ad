"""Secure sums: a site lifts its update and masks it; the server adds up what it cannot read.

What a rule would add up at the server (`lift`) is computed at the site instead, with the weight
in it. All rules' vectors travel as one vector of fixed-point words, the last of which is a 1 at
every site: the sum of those tells whether the masks canceled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from vitrail.aggregate.guard import Guard
from vitrail.aggregate.rule import Metrics, Tensors
from vitrail.aggregate.sums import SumNoise, Sums, rules_of
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.release.cover import MASKED
from vitrail.release.fixed import BITS, Words, from_fixed
from vitrail.release.message import Field, Schema
from vitrail.release.pact import Pact
from vitrail.release.update import Update

ALL = "all sites"
"""Whose the sum is."""


def check_masked(schema: Schema, options: Aggregate) -> None:
    """Refuse messages of which the server needs more than a sum."""
    for rule, _ in rules_of(schema, {}, options):
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
def widths(schema: Schema, options: Aggregate) -> tuple[int, ...]:
    """How many numbers each rule of a message adds up: what it makes of an update of zeros."""
    zeros = {field.name: torch.zeros(field.shape, dtype=field.dtype) for field in schema.up}
    probe = Update("", 0, "", zeros, dict.fromkeys(schema.counts, 1.0))
    return tuple(len(rule.lift(probe, 0.0, own)) for rule, own in rules_of(schema, {}, options))


def masked_schema(schema: Schema, options: Aggregate) -> Schema:
    """What travels instead of the tensors of a message: one vector of words, and no counts."""
    field = Field(MASKED, (sum(widths(schema, options)) + 1,), "masked", torch.int64)
    return Schema(schema.down, (field,), counts=(), metrics=schema.metrics)


def lifted(
    update: Update, weight: float, schema: Schema, sent: Mapping[str, Tensor], options: Aggregate
) -> Tensor:
    """All that an update adds to the sums of a round, in float64, and a 1 at its end."""
    parts = [rule.lift(update, weight, own) for rule, own in rules_of(schema, sent, options)]
    return torch.cat([*parts, torch.ones(1, dtype=torch.float64)])


class MaskedSum:
    """Adds masked updates modulo 2^64; what it comes to can be read once everybody is in it."""

    def __init__(
        self, schema: Schema, sent: Mapping[str, Tensor], options: Aggregate, pact: Pact
    ) -> None:
        self.schema, self.sent, self.options, self.pact = schema, sent, options, pact
        self._guard = Guard(masked_schema(schema, options), {}, options.max_norm)
        self._total: Words | None = None
        self._accepted: list[str] = []
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
        words = update.tensors[MASKED].numpy().view(np.uint64)
        self._total = words.copy() if self._total is None else self._total + words
        self._accepted.append(update.site)
        return None

    @property
    def whole(self) -> bool:
        """Whether everybody of the pact is in the sum; else it says nothing."""
        return set(self._accepted) == set(self.pact.parties)

    def finish(self, noise: SumNoise | None = None) -> Sums:
        """The aggregated tensors, if the masks canceled and the result passes the guard."""
        if not self.whole or self._total is None:
            return self._nothing({})
        if int(self._total[-1]) != len(self._accepted) << BITS:
            return self._nothing({ALL: "the masks did not cancel: sites were told different keys"})
        tensors: Tensors = {}
        metrics: Metrics = {}
        parts = torch.split(from_fixed(self._total[:-1]), list(widths(self.schema, self.options)))
        rules = rules_of(self.schema, self.sent, self.options)
        weight = sum(party.weight for party in self.pact.parties.values())
        for (rule, own), part in zip(rules, parts, strict=True):
            total = part if noise is None else noise(rule, part)
            found, figures = rule.finish(total, weight, own)
            tensors, metrics = tensors | found, metrics | figures
        made = replace(self.schema, up=tuple(f for f in self.schema.up if f.name in tensors))
        if reason := Guard(made, self.sent, self.options.max_norm).total_refusal(tensors):
            return self._nothing({ALL: reason})
        return Sums(tensors, metrics, tuple(self._accepted), dict(self._refused))

    def _nothing(self, why: dict[str, str]) -> Sums:
        return Sums({}, {}, (), {**self._refused, **why})
