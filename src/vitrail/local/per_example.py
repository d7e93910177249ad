"""The gradient of DP-SGD: each example's own gradient is clipped, then the sum gets noise.

Abadi et al. 2016, arXiv:1607.00133. Only what sees data is clipped; penalties and pulls on the
weights are added after it, at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from vitrail.errors import ConfigError
from vitrail.grid_noise import add_noise
from vitrail.local.canaries import Canaries
from vitrail.local.terms import Batch, Objective
from vitrail.models.flat import FlatModel
from vitrail.rng import Stream

_ROOM = 2**24  # numbers of per-example gradients held at once


class PerExampleGradient:
    """(sum over examples of clip(g) + N(0, (noise x clip)^2)) / expected, in each number.

    `expected` is the mean size of a Poisson batch, which is public; the real size is not.
    `steps` counts what was done, for the accountant.
    """

    def __init__(self, clip: float, noise: float, expected: float, source: Stream) -> None:
        self.clip = clip
        self.noise = noise
        self.expected = expected
        self.source = source
        self.steps = 0
        self.energy = 0.0  # sum over steps of |noise|^2, as it enters the gradient
        self.canaries: Canaries | None = None  # of a privacy audit
        self._checked = False

    def __call__(self, model: FlatModel, batch: Batch, objective: Objective) -> Tensor:
        """Fill the flat gradient; return the batch's mean loss, 0 for an empty batch."""
        if not self._checked:
            _check_separable(objective, batch[0])
            self._checked = True
        moving = {n: p for n, p in model.network.named_parameters() if p.requires_grad}
        total, loss = self._sum_clipped(moving, batch, objective)
        self.steps += 1
        for parameter, noised in zip(moving.values(), self._add_noise(total), strict=True):
            assert parameter.grad is not None
            parameter.grad.add_(noised.to(parameter), alpha=1 / self.expected)
        _penalize(objective, batch)
        return loss

    def _add_noise(self, total: dict[str, Tensor]) -> list[Tensor]:
        """The sums with noise, drawn for all numbers at once."""
        if not total:
            return []
        flat = torch.cat([part.flatten() for part in total.values()]).cpu()
        if self.canaries is not None:
            self.canaries.add_to(flat)
        noised = add_noise(flat, self.noise * self.clip, self.source)
        self.energy += float((noised - flat).square().sum()) / self.expected**2
        parts = torch.split(noised, [part.numel() for part in total.values()])
        return [part.view_as(like) for part, like in zip(parts, total.values(), strict=True)]

    def _sum_clipped(
        self, moving: dict[str, nn.Parameter], batch: Batch, objective: Objective
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The sum of clipped gradients by name, in float64, and the mean loss.

        In float32 an image would also move how the others are rounded, past the clip.
        """
        x, y = batch
        total = make_sums(moving)
        if not len(y) or not moving:
            return total, torch.zeros((), device=x.device)
        losses = torch.zeros((), device=x.device)
        for grads, loss in self._iterate_gradients(moving, batch, objective):
            losses += loss.detach().sum()
            scale, fine = compute_clip_factors(grads, self.clip)
            for name in moving:
                gradient = grads[f"network.{name}"].flatten(1)
                gradient = (
                    gradient if bool(fine.all()) else torch.where(fine[:, None], gradient, 0.0)
                )
                total[name] += (scale @ gradient.double()).view_as(total[name])
        return total, losses / len(y)

    def _iterate_gradients(
        self, moving: dict[str, nn.Parameter], batch: Batch, objective: Objective
    ) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
        """Each example's gradient by name and its loss, as many examples at once as there is room
        for; nothing of an empty batch."""
        x, y = batch
        if not len(y) or not moving:
            return
        single = _ExampleLoss(objective)
        values = {f"network.{name}": p.detach() for name, p in moving.items()}

        def loss_of(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            loss: Tensor = functional_call(single, values, (x, y))
            return loss

        per_example = vmap(grad_and_value(loss_of), in_dims=(None, 0, 0), randomness="different")
        size = max(1, _ROOM // max(1, sum(p.numel() for p in moving.values())))
        for start in range(0, len(y), size):
            yield _compute_gradients(
                per_example, values, x[start : start + size], y[start : start + size]
            )


def _compute_gradients(
    per_example: Callable[..., tuple[dict[str, Tensor], Tensor]],
    values: dict[str, Tensor],
    x: Tensor,
    y: Tensor,
) -> tuple[dict[str, Tensor], Tensor]:
    """All examples at once; a loss that cannot be taken that way is the model's fault."""
    try:
        return per_example(values, x, y)
    except RuntimeError as err:
        if "vmap" not in str(err):
            raise
        raise ConfigError(
            "the gradients of single examples cannot be taken through this model: its loss picks "
            "elements by value",
            where="release.defenses",
            hint="Write it with where, gather or masks instead of indexing by a mask.",
        ) from err


class _ExampleLoss(nn.Module):
    """The loss of one example as a module, so that its parameters can be given from outside."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.network = objective.network
        self.objective = objective

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.objective.data_loss((x[None], y[None]))


def compute_clip_factors(grads: dict[str, Tensor], clip: float) -> tuple[Tensor, Tensor]:
    """min(1, clip / |g|) of each example, and whether its gradient is finite: others count 0."""
    squares = sum(
        torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=torch.float64).square()
        for g in grads.values()
    )
    norms = torch.as_tensor(squares).sqrt()
    fine = torch.isfinite(norms)
    scale = torch.where(fine, (clip / norms.clamp_min(1e-30)).clamp(max=1.0), 0.0)
    return scale, fine


def make_sums(moving: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Zeros in float64 for the sums of gradients, by name."""
    return {name: torch.zeros_like(p, dtype=torch.float64) for name, p in moving.items()}


def _penalize(objective: Objective, batch: Batch) -> None:
    """Add the gradient of the head's penalties, which see no data."""
    example = (torch.zeros_like(batch[0][:1]), torch.zeros_like(batch[1][:1]))
    if not len(batch[1]):
        x = torch.zeros(1, *batch[0].shape[1:], dtype=batch[0].dtype, device=batch[0].device)
        example = (x, torch.zeros(1, dtype=batch[1].dtype, device=batch[1].device))
    loss = objective.penalty_loss(example)
    if loss is not None and loss.requires_grad:
        loss.backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def _check_separable(objective: Objective, like: Tensor) -> None:
    """Refuse a loss that is no mean over examples; made-up inputs tell, so nothing leaks."""
    x = _make_probe_inputs(like)
    with _use_eval_mode(objective.network):
        classes = objective.forward(x)["logits"].shape[1]
        y = (torch.arange(len(x)) % classes).to(like.device)
        whole = objective.data_loss((x, y))
        alone = [objective.data_loss((x[at : at + 1], y[at : at + 1])) for at in range(len(x))]
    if not torch.allclose(whole, torch.stack(alone).mean(), rtol=1e-4, atol=1e-5):
        raise ConfigError(
            "this loss looks at a batch as a whole, so an example has no gradient of its own",
            where="release.defenses",
            hint='Choose another method, or "client-dp" instead of "dp-sgd".',
        )


def _make_probe_inputs(like: Tensor) -> Tensor:
    """Four inputs of which no two are alike; positions in a table are all the first one."""
    if not like.is_floating_point():
        return torch.zeros(4, *like.shape[1:], dtype=like.dtype, device=like.device)
    x = torch.randn(4, *like.shape[1:], generator=torch.Generator().manual_seed(0))
    sizes = torch.tensor([0.1, 1.0, 3.0, 10.0])
    return (x * sizes.view(4, *[1] * (x.dim() - 1))).to(like)


@contextmanager
def _use_eval_mode(network: nn.Module) -> Iterator[None]:
    """Without dropout, then back to every module's own mode."""
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
