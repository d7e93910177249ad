"""The site as the attacker imagines it: what update would these images have led to?

A row is one guess: some images of one site. All rows of a batch are guesses at updates that
started from the same model, so their gradients are computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from vitrail.attack.inversion.training_recipe import Recipe
from vitrail.models.flat import keep_statistics
from vitrail.models.network import Network

Named = Mapping[str, Tensor]


class TrainingLoss(nn.Module):
    """A network and its training loss as one module: images and labels to a number."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch, differentiable down to the pixels, through frozen stages too."""
        net = self.network
        if isinstance(net, Network):
            return torch.stack(list(net.head.loss(compute_outputs(net, x), y).values())).sum()
        return F.cross_entropy(net(x), y)


def compute_patches(network: Network, x: Tensor) -> Tensor:
    """What the neck gives, with gradients down to the pixels."""
    x = x.contiguous()
    for _, step in network.backbone.stages()[: network.end]:
        x = step(x)
    patches: Tensor = network.neck(x)
    return patches


def compute_outputs(network: Network, x: Tensor) -> dict[str, Tensor]:
    """The head's outputs, with gradients down to the pixels."""
    outputs: dict[str, Tensor] = network.head(network.head.reduce(compute_patches(network, x)))
    return outputs


class Victim:
    """Local training as a differentiable function of the images."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.objective = TrainingLoss(network)
        self._batched = True

    def changes(self, sent: Named, recipe: Recipe, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """For rows of images [R, n, C, H, W] and labels [R, n]: the direction of each update.

        After one step it is the gradient; after several, (start - end) / rate, which is the
        sum of what the steps added. Tensors are [R, ...].
        """
        trained = {name: sent[name].detach() for name in recipe.rates}
        rest = {f"network.{n}": t for n, t in sent.items() if n not in trained}
        with self._mode(recipe):
            if len(x) > 1 and self._batched:
                try:
                    train_rows = vmap(
                        lambda a, b: self._train(
                            trained, rest, recipe, a, b, _differentiate_functional
                        )
                    )
                    directions: dict[str, Tensor] = train_rows(x, y)
                    return directions
                except RuntimeError:  # a loss whose shapes depend on its values: row by row
                    self._batched = False
            rows = [
                self._train(trained, rest, recipe, a, b, _differentiate)
                for a, b in zip(x, y, strict=True)
            ]
        if len(rows) == 1:
            return {name: tensor[None] for name, tensor in rows[0].items()}
        return {name: torch.stack([row[name] for row in rows]) for name in trained}

    def _train(
        self,
        start: Named,
        rest: Named,
        recipe: Recipe,
        x: Tensor,
        y: Tensor,
        gradient: Callable[[Callable[[Named], Tensor], Named], dict[str, Tensor]],
    ) -> dict[str, Tensor]:
        """Unroll the local steps of one row."""
        now, moved = dict(start), dict.fromkeys(start, torch.zeros(()))
        speed: dict[str, Tensor] = {}
        batches = recipe.batches(len(x))
        for step, at in enumerate(batches):
            a, b = (x, y) if len(at) == len(x) else (x[at], y[at])

            def loss(weights: Named, a: Tensor = a, b: Tensor = b) -> Tensor:
                named = {f"network.{name}": tensor for name, tensor in weights.items()}
                value: Tensor = functional_call(self.objective, {**rest, **named}, (a, b))
                return value

            gradients = gradient(loss, now)
            if len(batches) == 1:
                return gradients
            for name, g in gradients.items():
                if recipe.decays[name]:
                    g = g + recipe.decays[name] * now[name]
                if recipe.momentum and step:
                    g = recipe.momentum * speed[name] + g
                speed[name] = g
                moved[name] = moved[name] + g
                now[name] = now[name] - recipe.rates[name] * g
        return moved

    @contextmanager
    def _mode(self, recipe: Recipe) -> Iterator[None]:
        """BatchNorm as the site has it: the batch's own statistics, or those it received."""
        before, wanted = self.network.training, recipe.statistics == "batch"
        if before != wanted:
            self.network.train(wanted)
        try:
            if wanted:
                with keep_statistics(self.network):
                    yield
            else:
                yield
        finally:
            if before != wanted:
                self.network.train(before)


def _differentiate(loss: Callable[[Named], Tensor], at: Named) -> dict[str, Tensor]:
    """A gradient through which one can differentiate again."""
    leaves = {n: t if t.requires_grad else t.detach().requires_grad_() for n, t in at.items()}
    gradients = torch.autograd.grad(
        loss(leaves), list(leaves.values()), create_graph=True, materialize_grads=True
    )
    return dict(zip(leaves, gradients, strict=True))


def _differentiate_functional(loss: Callable[[Named], Tensor], at: Named) -> dict[str, Tensor]:
    """The same as a transformation, for many rows at once."""
    gradients: dict[str, Tensor] = grad(loss)(dict(at))
    return gradients
