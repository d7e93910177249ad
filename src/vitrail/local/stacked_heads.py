"""Linear heads of many sites trained at once, to the same bits as one after the other.

A step of a small head is mostly the cost of calling what computes it. Here one call computes it for
all sites; batches that are shorter than others are padded with zeros. How a product with the
weights and a sum over a batch are rounded depends on its length, so of a shorter batch those two
are computed without the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from vitrail.local.session import Result
from vitrail.rng import derive_server_key
from vitrail.threads import one_thread

_LEAST = 400  # numbers of a weight: a product of fewer is made another way in a stack
_MOST = 8192  # beyond, a step is mostly arithmetic, and one site at a time is as quick


@dataclass(frozen=True)
class HeadJob:
    """A site's training: features [n, channels], labels [n], and the positions of each batch."""

    features: Tensor
    labels: Tensor
    batches: tuple[Tensor, ...]


@dataclass(frozen=True)
class SgdRates:
    """v <- momentum v + g + decay w, w <- w - lr v."""

    lr: float
    momentum: float = 0.0
    decay: float = 0.0


@torch.no_grad()
def train_linear_heads(
    start: Tensor, classes: int, jobs: Sequence[HeadJob], rates: SgdRates
) -> list[tuple[Tensor, Result]]:
    """What each site makes of one head: weight [classes, channels] and bias in one vector."""
    order = sorted(range(len(jobs)), key=lambda at: -len(jobs[at].batches))  # who ends first, last
    heads = _Heads(start, classes, [jobs[at] for at in order], rates)
    for step in range(len(jobs[order[0]].batches)):
        heads.step(step)
    trained = {at: (heads.values[row], heads.summarize(row)) for row, at in enumerate(order)}
    return [trained[at] for at in range(len(jobs))]


class _Heads:
    """The heads of all sites, [sites, numbers], and the images of all in one table that ends with
    a row of zeros."""

    def __init__(
        self, start: Tensor, classes: int, jobs: Sequence[HeadJob], rates: SgdRates
    ) -> None:
        self.classes, self.rates = classes, rates
        self.channels = jobs[0].features.shape[1]
        self.features = torch.cat([*(j.features for j in jobs), torch.zeros(1, self.channels)])
        self.labels = torch.cat([*(j.labels for j in jobs), torch.zeros(1, dtype=torch.int64)])
        self.values = start.repeat(len(jobs), 1)
        self.momenta = torch.zeros_like(self.values)
        self.losses: list[list[Tensor]] = [[] for _ in jobs]
        self.batches, first = [], 0
        for job in jobs:
            self.batches.append([batch + first for batch in job.batches])
            first += len(job.labels)

    def step(self, step: int) -> None:
        """One step of every site that has a batch left."""
        batches = [own[step] for own in self.batches if step < len(own)]
        lengths, count = [len(batch) for batch in batches], len(batches)
        short = [site for site, length in enumerate(lengths) if length < max(lengths)]
        at = pad_sequence(batches, batch_first=True, padding_value=len(self.labels) - 1)
        x, y = F.embedding(at, self.features), self.labels[at]
        logs = torch.log_softmax(self._compute_logits(x, lengths, short), 2)
        share = torch.tensor([-1 / length for length in lengths]).repeat_interleave(at.shape[1])
        share = share.view_as(at).masked_fill_(at == len(self.labels) - 1, 0.0)
        towards = torch.zeros_like(logs).scatter_(2, y[..., None], share[..., None])
        slope = torch._log_softmax_backward_data(towards, logs, 2, logs.dtype)
        bias = slope.sum(1)
        for site in short:
            bias[site] = slope[site, : lengths[site]].sum(0)
        for site, length in enumerate(lengths):
            self.losses[site].append(F.nll_loss(logs[site, :length], y[site, :length]))
        grads = torch.cat([slope.transpose(1, 2).bmm(x).flatten(1), bias], 1)
        self._move(self.values[:count], self.momenta[:count], grads, step == 0)

    def _compute_logits(self, x: Tensor, lengths: list[int], short: list[int]) -> Tensor:
        values = self.values[: len(x)]
        weight, bias = values[:, : -self.classes], values[:, -self.classes :]
        weight = weight.view(len(values), self.classes, self.channels)
        logits = torch.baddbmm(bias[:, None], x, weight.transpose(1, 2))
        for site in short:
            length = lengths[site]
            logits[site, :length] = F.linear(x[site, :length], weight[site], bias[site])
        return logits

    def _move(self, values: Tensor, momenta: Tensor, grads: Tensor, first: bool) -> None:
        """The step of `torch.optim.SGD`."""
        rates = self.rates
        if rates.decay:
            grads = grads.add_(values, alpha=rates.decay)
        if rates.momentum and first:
            grads = momenta.copy_(grads)
        elif rates.momentum:
            grads = momenta.mul_(rates.momentum).add_(grads)
        values.add_(grads, alpha=-rates.lr)

    def summarize(self, site: int) -> Result:
        """What a site did, its mean loss added up as the local loop does."""
        lengths = [len(batch) for batch in self.batches[site]]
        total = 0.0
        for loss, length in zip(self.losses[site], lengths, strict=True):
            total += float(loss * length)
        images = sum(lengths)
        return Result(len(lengths), images, total / images if images else float("nan"))


@lru_cache(maxsize=64)
@one_thread()  # as turns are played
def find_stack_obstacle(length: int, channels: int, classes: int) -> str | None:
    """Why heads of a shape are trained one by one, or None.

    Another processor or library may round stacked products otherwise than single ones: they are
    compared once, on numbers that no run draws.
    """
    size = channels * classes
    if not _LEAST <= size <= _MOST:
        return f"a head of {size} numbers is too {'small' if size < _LEAST else 'large'} to gain"
    draw = derive_server_key(0).at("stacked products").torch()
    x, weight, bias, slope = (
        torch.randn(3, *shape, generator=draw)
        for shape in ((length, channels), (classes, channels), (1, classes), (length, classes))
    )
    logits = torch.baddbmm(bias, x, weight.transpose(1, 2))
    products = slope.transpose(1, 2).bmm(x)
    equal = all(
        torch.equal(F.linear(x[at], weight[at], bias[at, 0]), logits[at])
        and torch.equal(slope[at].T.mm(x[at]), products[at])
        for at in range(3)
    )
    return None if equal else "stacked products are rounded otherwise on this machine"
