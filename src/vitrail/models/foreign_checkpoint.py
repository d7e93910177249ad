"""Named tensors out of a checkpoint that somebody else wrote, without running anything in it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vitrail.errors import ConfigError

_WHERE = "model.weights"
_ADVICE = "Save the model's state_dict alone, best as .safetensors."
_NESTS = ("state_dict", "model_state_dict", "model", "net")


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """All tensors of a .safetensors, .pth or .pt file by name, on the CPU."""
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path}",
            where=_WHERE,
            hint='Paths are relative to the config file; the one name is "imagenet".',
        )
    if path.suffix == ".safetensors":
        content = _read_safetensors(path)
    elif path.suffix in (".pth", ".pt"):
        content = _read_torch(path)
    else:
        raise ConfigError(
            f"{path.name} is not a checkpoint that can be read",
            where=_WHERE,
            hint="Use a .safetensors file, or a .pth or .pt file of tensors.",
        )
    tensors = _tensors(content)
    if not tensors:
        raise ConfigError(f"{path.name} holds no named tensors", where=_WHERE)
    return tensors


def _read_safetensors(path: Path) -> Any:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as err:
        raise ConfigError(f"{path.name} cannot be read ({err})", where=_WHERE) from err


def _read_torch(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as err:
        raise ConfigError(
            f"{path.name} is refused: it is not a plain file of tensors, reading it could run code",
            where=_WHERE,
            hint=_ADVICE,
        ) from err
    # On a damaged file torch raises whatever it stumbles over. Its words are not repeated:
    # they advise to read the file without protection.
    except Exception as err:
        raise ConfigError(
            f"{path.name} cannot be read, it is damaged or no checkpoint of tensors",
            where=_WHERE,
            hint=_ADVICE,
        ) from err


def _tensors(content: Any) -> dict[str, Tensor]:
    """The state dictionary, which training scripts often put under a key beside other things."""
    while isinstance(content, Mapping):
        inner = next((content[k] for k in _NESTS if isinstance(content.get(k), Mapping)), None)
        if inner is None:
            return {str(k): v.detach() for k, v in content.items() if isinstance(v, Tensor)}
        content = inner
    return {}
