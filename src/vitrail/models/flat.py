"""A network whose moving tensors are views into one flat buffer, and gradients into another.

Receiving a model is one copy, an update is one subtraction, an optimizer steps a few long
vectors instead of many short ones, and a pull on the gradient is one addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vitrail.models.network import Network
from vitrail.models.parts import PARTS, Part, TensorSpec, list_tensors

_KIND_ORDER = {"weight": 0, "norm": 1, "statistic": 2}


@dataclass(frozen=True)
class Layout:
    """Where each moving tensor lies in the flat buffer: trainable parts first, statistics last."""

    specs: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    trainable: int  # numbers before this offset have a gradient
    size: int

    @staticmethod
    def of(specs: Iterable[TensorSpec]) -> Layout:
        """The layout of a network's inventory; what never moves is left out."""
        moving = [spec for spec in specs if spec.moves]
        moving.sort(key=lambda s: (not s.trainable, PARTS.index(s.part), _KIND_ORDER[s.kind]))
        offsets, at, trainable = [], 0, 0
        for spec in moving:
            offsets.append(at)
            at += spec.size
            if spec.trainable:
                trainable = at
        return Layout(tuple(moving), tuple(offsets), trainable, at)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Named views of a flat vector."""
        return {
            spec.name: flat[at : at + spec.size].view(spec.shape)
            for spec, at in zip(self.specs, self.offsets, strict=True)
        }

    def part(self, part: Part) -> slice:
        """The trainable numbers of one part, as one slice (empty if it has none)."""
        places = [
            (at, at + spec.size)
            for spec, at in zip(self.specs, self.offsets, strict=True)
            if spec.part == part and spec.trainable
        ]
        return slice(places[0][0], places[-1][1]) if places else slice(0, 0)

    def region(self, names: Iterable[str]) -> Region:
        """The trainable numbers of some tensors, as few slices as possible."""
        wanted = set(names)
        slices: list[slice] = []
        for spec, at in zip(self.specs, self.offsets, strict=True):
            if spec.name not in wanted or not spec.trainable:
                continue
            if slices and slices[-1].stop == at:
                slices[-1] = slice(slices[-1].start, at + spec.size)
            else:
                slices.append(slice(at, at + spec.size))
        return Region(tuple(slices))


@dataclass(frozen=True)
class Region:
    """Some numbers of a flat vector, seen as one vector."""

    slices: tuple[slice, ...]

    @property
    def size(self) -> int:
        """How many numbers."""
        return sum(s.stop - s.start for s in self.slices)

    def of(self, flat: Tensor) -> Tensor:
        """The numbers as one vector; a view when they lie together."""
        if len(self.slices) == 1:
            return flat[self.slices[0]]
        return torch.cat([flat[s] for s in self.slices]) if self.slices else flat[:0]

    def add_(self, flat: Tensor, value: Tensor, alpha: float = 1.0) -> None:
        """Add `alpha * value` to these numbers in place."""
        at = 0
        for s in self.slices:
            flat[s].add_(value[at : at + s.stop - s.start], alpha=alpha)
            at += s.stop - s.start


class FlatModel:
    """A network tied to its flat buffers. One is resident in each worker."""

    def __init__(self, network: Network, device: torch.device | str = "cpu") -> None:
        self.network = network.to(device)
        self.layout = Layout.of(list_tensors(network))
        self.values = torch.empty(self.layout.size, device=device)
        self.grads = torch.zeros(self.layout.trainable, device=device)
        self.named = self.layout.views(self.values)
        self._counters = [
            (buffer, buffer.clone())
            for name, buffer in network.named_buffers()
            if name not in self.named and not network.is_frozen(name)
        ]
        self._parameters = dict(network.named_parameters())
        self._modules = dict(network.named_modules())
        self.still: frozenset[str] = frozenset()  # what the present stage leaves as it is
        self._tie()

    def _tie(self) -> None:
        for spec, at in zip(self.layout.specs, self.layout.offsets, strict=True):
            view = self.named[spec.name]
            owner, _, leaf = spec.name.rpartition(".")
            module = self._modules[owner]
            view.copy_(getattr(module, leaf).detach())
            if spec.trainable:
                parameter = self._parameters[spec.name]
                parameter.data = view
                parameter.grad = self.grads[at : at + spec.size].view(spec.shape)
            else:
                module._buffers[leaf] = view

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Overwrite some tensors by name."""
        for name, tensor in tensors.items():
            self.named[name].copy_(tensor)

    def reset_counters(self) -> None:
        """Put what never travels (batch counters, constants) back to its first value."""
        for buffer, first in self._counters:
            buffer.copy_(first)

    def trainable_region(self, part: Part, geometry: str) -> Region:
        """The numbers of one part and geometry that training may change now."""
        return self.layout.region(
            spec.name
            for spec in self.layout.specs
            if spec.part == part and spec.geometry == geometry and spec.name not in self.still
        )

    @contextmanager
    def training(self, parts: tuple[Part, ...] | None) -> Iterator[None]:
        """Train only some parts (None: all) inside the block; the others get no gradient.

        Normalization layers of a part that is not trained keep their statistics.
        """
        chosen = PARTS if parts is None else parts
        resting = [
            spec
            for spec in self.layout.specs
            if spec.trainable and (spec.part not in chosen or spec.name in self.still)
        ]
        for spec in resting:
            self._parameters[spec.name].requires_grad_(False)
        self.network.train()
        for name, module in (("backbone", self.network.backbone), ("neck", self.network.neck)):
            if name not in chosen and module.training:
                module.eval()
        for spec in self.layout.specs:
            if spec.kind == "statistic" and spec.name in self.still:
                self._modules[spec.name.rpartition(".")[0]].eval()
        try:
            yield
        finally:
            self.network.eval()
            for spec in resting:
                self._parameters[spec.name].requires_grad_(True)


@contextmanager
def keep_statistics(network: nn.Module) -> Iterator[None]:
    """Forward passes in training mode that leave BatchNorm's running statistics alone."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [m.track_running_stats for m in norms]
    for module in norms:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module, value in zip(norms, before, strict=True):
            module.track_running_stats = value
