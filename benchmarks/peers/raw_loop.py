"""FedAvg as a hand-written PyTorch loop, one thread a process: the speed to be measured against.

    python benchmarks/peers/raw_loop.py --model small-cnn --rounds 20 --processes 2

One resident model, no optimizer object, gradients straight into one multi-tensor step, and
channels_last, each the quicker choice on the CPU it was tried on.
"""

from __future__ import annotations

from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
import work
from torch import Tensor

import models


class Trainer:
    """A model and all images; trains sites one after the other and adds up what they learned."""

    def __init__(self, name: str, x: Tensor, y: Tensor) -> None:
        torch.set_num_threads(1)
        self.model = models.build(name).to(memory_format=torch.channels_last).train()
        self.x, self.y = x, y
        self.weights = list(self.model.parameters())
        self.state = [t for t in self.model.state_dict().values() if t.is_floating_point()]
        self.size = sum(t.numel() for t in self.state)

    def views(self, flat: Tensor) -> list[Tensor]:
        """A flat vector as tensors of the model's shapes."""
        parts = flat.split([t.numel() for t in self.state])
        return [part.view(t.shape) for part, t in zip(parts, self.state)]

    def round(self, number: int, sites: Sequence[int], sent: Tensor, total: Tensor) -> None:
        """Train each site from `sent`; leave the sum of the results times images in `total`."""
        start, sums = self.views(sent), self.views(total.zero_())
        for site in sites:
            torch._foreach_copy_(self.state, start)
            self._epoch(number, site)
            torch._foreach_add_(sums, self.state, alpha=work.IMAGES)

    def _epoch(self, number: int, site: int) -> None:
        draw = torch.Generator().manual_seed(number * work.SITES + site)
        order = torch.randperm(work.IMAGES, generator=draw)
        x, y = self.x[work.get_rows(site)], self.y[work.get_rows(site)]
        for batch in order.split(work.BATCH):
            loss = F.cross_entropy(self.model(x[batch]), y[batch])
            gradients = torch.autograd.grad(loss, self.weights)
            with torch.no_grad():
                torch._foreach_add_(self.weights, gradients, alpha=-work.RATE)


def run_helper(
    pipe: Connection, name: str, x: Tensor, y: Tensor, sent: Tensor, total: Tensor
) -> None:
    """A second process: trains the sites it is told until it is told none."""
    trainer = Trainer(name, x, y)
    while (task := pipe.recv()) is not None:
        trainer.round(*task, sent, total)
        pipe.send(True)


def main() -> None:
    """Time the rounds and print the figures."""
    args = work.parse_arguments(processes={"type": int, "choices": [1, 2], "default": 1})
    torch.set_num_threads(1)
    x, y = work.make_images()
    x = x.to(memory_format=torch.channels_last)
    trainer = Trainer(args.model, x, y)
    sent = torch.cat([t.flatten() for t in trainer.state]).share_memory_()
    totals = torch.zeros(args.processes, trainer.size).share_memory_()
    other: Any = None
    if args.processes == 2:
        other, helper_end = mp.Pipe()
        context = mp.get_context("spawn")
        given = (helper_end, args.model, x.share_memory_(), y.share_memory_(), sent, totals[1])
        process = context.Process(target=run_helper, args=given, daemon=True)
        process.start()
    clock = work.Clock()
    draw = torch.Generator().manual_seed(1)
    for number in range(args.rounds):
        sites = torch.randperm(work.SITES, generator=draw)[: work.SITES_A_ROUND].tolist()
        if other:
            other.send((number, sites[1::2]))
        trainer.round(number, sites[:: args.processes], sent, totals[0])
        if other:
            other.recv()
        torch.div(totals.sum(0), work.IMAGES * len(sites), out=sent)
        clock.tick()
    if other:
        other.send(None)
        process.join()
    torch._foreach_copy_(trainer.state, trainer.views(sent))
    final = work.compute_loss(trainer.model, x, y)
    work.report(args, clock, final, system=f"raw, {args.processes} process(es)")


if __name__ == "__main__":
    main()
