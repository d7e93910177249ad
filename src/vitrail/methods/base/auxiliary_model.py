"""Another model beside the one that is trained: its tensors in messages, in the state, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from torch import Tensor, nn

from vitrail.release.message import Field
from vitrail.rng import Key, seed_torch

Module = TypeVar("Module", bound=nn.Module)


def build_module(build: Callable[[], Module], key: Key) -> Module:
    """A module with the fresh weights that a key gives."""
    with seed_torch(key):
        return build()


def make_module_fields(module: nn.Module, prefix: str) -> tuple[Field, ...]:
    """What its tensors are in a message, `PREFIX/TENSOR`."""
    return tuple(
        Field(f"{prefix}/{name}", tuple(tensor.shape))
        for name, tensor in module.state_dict().items()
    )


def get_module_tensors(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """Its tensors as they are now, under the names of the fields."""
    return {
        f"{prefix}/{name}": tensor.detach().cpu().clone()
        for name, tensor in module.state_dict().items()
    }


def load_into(module: Module, tensors: Mapping[str, Tensor], prefix: str) -> Module:
    """The module with the tensors of a message or a state."""
    stripped = {
        name.removeprefix(f"{prefix}/"): tensor
        for name, tensor in tensors.items()
        if name.startswith(f"{prefix}/")
    }
    module.load_state_dict({name: stripped[name] for name in module.state_dict()})
    return module
