"""From what a user wrote to what a run stores: defaults filled in, paths absolute."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import torch

from vitrail.config import Config, Loaded, dump
from vitrail.config.schema import Data
from vitrail.errors import ConfigError
from vitrail.methods.method import resolved
from vitrail.registry import load_plugins


def settled(loaded: Loaded) -> Config:
    """The configuration as it is stored with a run: every default filled in, paths absolute."""
    load_plugins(loaded.config.run.plugins, loaded.base)
    return absolute(replace(loaded, config=resolved(loaded)))


def essence(config: Config) -> Config:
    """The configuration without what may differ between a run and its resume."""
    run = config.run.model_copy(update={"workers": 1, "device": "auto"})
    return config.model_copy(update={"run": run})


def fingerprint(config: Config) -> str:
    """A digest of what must not change between a run and its resume."""
    return hashlib.blake2b(dump(essence(config)).encode(), digest_size=16).hexdigest()


def absolute(loaded: Loaded) -> Config:
    """The configuration with every path made absolute, so that the stored file stands alone."""
    config = loaded.config
    data, model, run = _anchored(config.data, loaded.base), config.model, config.run
    if data.public is not None:
        data = data.model_copy(update={"public": _anchored(data.public, loaded.base)})
    if model.weights not in (None, "imagenet"):
        weights = str((loaded.base / Path(str(model.weights)).expanduser()).resolve())
        model = model.model_copy(update={"weights": weights})
    plugins = tuple(
        str((loaded.base / p).resolve()) if p.endswith(".py") else p for p in run.plugins
    )
    return config.model_copy(
        update={"data": data, "model": model, "run": run.model_copy(update={"plugins": plugins})}
    )


def _anchored(data: Data, base: Path) -> Data:
    if data.path is None:
        return data
    return data.model_copy(update={"path": str((base / Path(data.path).expanduser()).resolve())})


def pick_device(name: str) -> torch.device:
    """`auto` is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    elif (name == "cuda" and not torch.cuda.is_available()) or (
        name == "mps" and not torch.backends.mps.is_available()
    ):
        raise ConfigError(
            f"this machine has no {name} device", where="run.device", hint='Use "auto" or "cpu".'
        )
    return torch.device(name)
