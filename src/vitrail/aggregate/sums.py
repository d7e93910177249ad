"""Adding up a round: every update passes the guard, then joins the running sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitrail.aggregate.bucketing import count_buckets, fill_buckets, find_bucketing_fault
from vitrail.aggregate.guard import Guard
from vitrail.aggregate.rule import RULES, Group, Metrics, PerSiteRule, Rule, Tensors
from vitrail.aggregate.update_watch import Oddness, UpdateWatch
from vitrail.config.schema import Aggregate
from vitrail.release.message import Schema
from vitrail.release.update import Update
from vitrail.rng import Key, derive_server_key

SumNoise = Callable[[Rule, Tensor], Tensor]


@dataclass(frozen=True)
class Sums:
    """A finished round: aggregated tensors by field name, figures, who counted and who did not.

    `kept` holds, by site, the tensors that are kept as they came; `models` those of the model, for
    methods that need every site's own, of the sites that have any weight. `shortage` says why
    there are too few updates for a rule, if there are. `oddness` is how far each accepted update
    is from the others, where single updates are seen.
    """

    tensors: Tensors
    metrics: Metrics
    accepted: tuple[str, ...]
    refused: Mapping[str, str]
    kept: Mapping[str, Tensors] = field(default_factory=dict)
    models: Mapping[str, Tensors] = field(default_factory=dict)
    shortage: str = ""
    oddness: Mapping[str, Oddness] = field(default_factory=dict)

    @property
    def model(self) -> Tensors:
        """The aggregated model tensors, without the `model/` prefix."""
        return _select_model_tensors(self.tensors)


def _select_model_tensors(tensors: Mapping[str, Tensor]) -> Tensors:
    return {n.removeprefix("model/"): t for n, t in tensors.items() if n.startswith("model/")}


@dataclass
class _RunningSum:
    rule: Rule
    sent: Tensor
    total: Tensor | None = None
    all: list[Tensor] = field(default_factory=list)

    def add(self, update: Update, weight: float) -> None:
        if self.rule.needs == "all":
            self.all.append(self.rule.group.pack(update.tensors))
            return
        lifted = self.rule.lift(update, weight, self.sent)
        self.total = lifted if self.total is None else self.total.add_(lifted)

    def finish(
        self, weights: list[float], noise: SumNoise | None, key: Key
    ) -> tuple[Tensors, Metrics]:
        if isinstance(self.rule, PerSiteRule):
            order = torch.tensor(weights, dtype=torch.float64)
            size = self.rule.options.bucket
            stack, order = fill_buckets(self.rule, torch.stack(self.all), order, size, key)
            return self.rule.choose(stack, order, self.sent)
        if self.total is None:
            return {}, {}
        total = self.total if noise is None else noise(self.rule, self.total)
        return self.rule.finish(total, sum(weights), self.sent)


def make_rules(
    schema: Schema,
    sent: Mapping[str, Tensor],
    options: Aggregate,
    trusted: Mapping[str, Tensor] | None = None,
) -> Iterator[tuple[Rule, Tensor]]:
    """The rules that add up a message, in declared order, each with its part of what was sent."""
    for name in dict.fromkeys(f.rule for f in schema.up_added):
        group = Group(tuple(f for f in schema.up if f.rule == name))
        zeros = {f.name: sent.get(f.name, torch.zeros(f.shape)) for f in group.fields}
        rule = RULES[name](group, options)
        if trusted is not None and rule.trusts:
            rule.trusted = group.pack({**zeros, **trusted})
        yield rule, group.pack(zeros)


def find_shortage(rule: Rule, options: Aggregate, count: int) -> str | None:
    """Why so many sites are not enough for a rule, after bucketing, or None."""
    if not isinstance(rule, PerSiteRule):
        return None
    fault = find_bucketing_fault(options, count)
    return fault or rule.find_shortage(count_buckets(options, count))


class Aggregator:
    """Takes updates one at a time in a fixed order, and keeps sums, not lists, where it can.

    With `whole` it keeps every model as well, for methods that need them; `key` is where buckets
    are drawn from. A change longer than `largest_change` is refused. `trusted` is the model that
    the server trained itself from what was sent, for rules that compare with it.
    """

    def __init__(
        self,
        schema: Schema,
        sent: Mapping[str, Tensor],
        options: Aggregate,
        whole: bool = False,
        key: Key | None = None,
        largest_change: float | None = None,
        trusted: Mapping[str, Tensor] | None = None,
    ) -> None:
        self._whole = whole
        self._options = options
        self._watch = UpdateWatch(schema, sent) if options.alarms else None
        self._largest_change = largest_change
        self._key = derive_server_key(0) if key is None else key
        self._models: dict[str, Tensors] = {}
        self.guard = Guard(schema, sent, options.max_norm)
        self._weights: list[float] = []
        self._accepted: list[str] = []
        self._refused: dict[str, str] = {}
        self._kept: dict[str, Tensors] = {}
        self._groups = [
            _RunningSum(rule, part) for rule, part in make_rules(schema, sent, options, trusted)
        ]

    def offer(
        self,
        update: Update,
        weight: float,
        expected: tuple[str, int, str],
        limits: Mapping[str, float] | None = None,
    ) -> str | None:
        """Add an update, or record why it was refused and return that sentence.

        `limits` are the largest counts that an honest site can have.
        """
        reason = self.guard.refusal(update, weight, expected, limits or {})
        reason = reason or self._look(update)
        if reason is not None:
            self._refused[expected[0]] = reason
            return reason
        for running in self._groups:
            running.add(update, weight)
        if whole := {f.name: update.tensors[f.name] for f in self.guard.schema.up_kept}:
            self._kept[update.site] = whole
        if self._whole and weight > 0:
            self._models[update.site] = _select_model_tensors(update.tensors)
        self._weights.append(weight)
        self._accepted.append(update.site)
        return None

    def _look(self, update: Update) -> str | None:
        """Sketch an update for the alarms; why its change is too long to be honest, or None."""
        if self._watch is None:
            return None
        length = self._watch.add(update)
        if self._largest_change is None or length <= self._largest_change:
            return None
        self._watch.forget(update.site)
        return (
            f"it changes the model by {length:.3g}, over {self._largest_change:.3g}, what past "
            "rounds make plausible (aggregate.norm_bound)"
        )

    @property
    def accepted(self) -> int:
        """How many updates counted so far."""
        return len(self._accepted)

    def finish(self, noise: SumNoise | None = None) -> Sums:
        """The aggregated tensors; with no accepted update there are none.

        `noise` makes the sums private before anything else sees them.
        """
        tensors: Tensors = {}
        metrics: Metrics = {}
        shortage = self._find_shortage()
        if sum(self._weights) > 0 and not shortage:
            for running in self._groups:
                finished, rule_metrics = running.finish(
                    self._weights, noise, self._key.at("buckets")
                )
                tensors |= finished
                metrics |= rule_metrics
        return Sums(
            tensors,
            metrics,
            tuple(self._accepted),
            dict(self._refused),
            self._kept,
            self._models,
            shortage,
            {} if self._watch is None else self._watch.compare(),
        )

    def _find_shortage(self) -> str:
        """Why the accepted updates are too few for one of the rules; empty: they are enough."""
        count = len(self._accepted)
        faults = (find_shortage(group.rule, self._options, count) for group in self._groups)
        return next((fault for fault in faults if fault), "") if count else ""
