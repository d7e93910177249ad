"""A run that starts from the model of another: from its folder, or from one of its checkpoints."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from vitrail.errors import ConfigError, DataError, RunError
from vitrail.files import read_tensors
from vitrail.models.network import Network
from vitrail.models.parts import list_tensors
from vitrail.release.message import digest

_WHERE = "model.start"
_MODEL = "model/"


def load_warm_start(network: Network, start: str, base: Path) -> str:
    """Put the model of a run or a checkpoint into a network, all of it; the digest of what it was.

    Every moving tensor must be there in its own shape. What a site keeps home in the other run is
    not in a checkpoint; such tensors start there as they did in that run.
    """
    tensors = _read_model(base / Path(start).expanduser())
    wanted = {spec.name: spec.shape for spec in list_tensors(network) if spec.moves}
    for name, shape in wanted.items():
        if name not in tensors:
            raise ConfigError(
                f"that model has no tensor {name!r}",
                where=_WHERE,
                hint="Use the backbone, head and method of the run it comes from.",
            )
        if tuple(tensors[name].shape) != tuple(shape):
            raise ConfigError(
                f"tensor {name!r} is {list(tensors[name].shape)} there and {list(shape)} here",
                where=_WHERE,
                hint="Check model.width, the classes, and data.channels.",
            )
    chosen = {name: tensors[name] for name in wanted}
    with torch.no_grad():
        network.load_state_dict({**network.state_dict(), **chosen})
    return digest({"start": "model"}, chosen)


def _read_model(path: Path) -> dict[str, Tensor]:
    """The moving tensors of a run folder's newest checkpoint, or of one checkpoint file."""
    if path.is_dir():
        files = sorted((path / "server" / "checkpoints").glob("round-*.safetensors"))
        if not files:
            raise ConfigError(
                "this folder holds no checkpoint", where=f"{_WHERE} = {path}", hint="Name a run."
            )
        path = files[-1]
    if not path.is_file():
        raise ConfigError(
            "there is no such run folder or checkpoint",
            where=f"{_WHERE} = {path}",
            hint="Name a run folder, or a file of its server/checkpoints/.",
        )
    try:
        tensors, _ = read_tensors(path)
    except (RunError, DataError, ValueError, OSError) as err:
        raise ConfigError(f"this checkpoint cannot be read ({err})", where=_WHERE) from None
    return {n.removeprefix(_MODEL): t for n, t in tensors.items() if n.startswith(_MODEL)}
