"""From what a user wrote to what a run stores: defaults filled in, paths absolute."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import tomli_w
import torch

from vitrail.config import Config, Loaded, to_stored_tree
from vitrail.config.added_keys import write_new_defaults
from vitrail.config.schema import Data, Model, Release
from vitrail.errors import ConfigError
from vitrail.methods.base.method import resolve_method_options
from vitrail.models import BACKBONES
from vitrail.models.onnx_prefix import find_missing_package
from vitrail.registry import load_plugins
from vitrail.release.defenses.defense import DEFENSES, make_defense

_OURS = "vitrail.models."  # backbones that are known to give the same features in every runtime


def resolve_config(loaded: Loaded) -> Config:
    """The configuration as it is stored with a run: every default filled in, paths absolute.

    Of one that comes from a run folder, what it lacks is filled in with what it means there.
    """
    load_plugins(loaded.config.run.plugins, loaded.base, loaded.stored)
    config = make_paths_absolute(replace(loaded, config=resolve_method_options(loaded)))
    resolved = config.model_copy(
        update={"release": _resolve_release(config), "model": _resolve_runtime(config)}
    )
    resolved.mark_stored(())
    return resolved


def _resolve_release(config: Config) -> Release:
    """The defenses' tables as the user wrote them, and the new defaults that a folder must name."""
    if config.is_stored:
        return config.release
    release = config.release
    tables = {name: release.options.get(name, {}) for name in release.defenses if name in DEFENSES}
    filled = {
        name: write_new_defaults(DEFENSES[name].Options, table)
        for name, table in tables.items()
        if isinstance(table, Mapping)  # else, and for unknown names, the plan says what is wrong
    }
    named = {name: table for name, table in filled.items() if table}
    return type(release).model_validate({**release.model_dump(), **named})


def _resolve_runtime(config: Config) -> Model:
    """The section `[model]` with what computes its frozen stages, decided once and for all."""
    model = config.model
    missing = find_missing_package()
    if model.runtime == "onnx" and missing and not config.is_stored:
        raise ConfigError(
            f"the package {missing} is not installed",
            where="model.runtime",
            hint='Install it with `pip install \'vitrail[onnx]\'`, or use "auto" or "torch".',
        )
    if model.runtime != "auto":
        return model
    on_cpu = config.run.device == "cpu" or (
        config.run.device == "auto" and not torch.cuda.is_available()
    )
    known = model.backbone in BACKBONES and BACKBONES[model.backbone].__module__.startswith(_OURS)
    chosen = "onnx" if model.frozen and known and on_cpu and missing is None else "torch"
    return model.model_copy(update={"runtime": chosen})


def resumable_config(config: Config) -> Config:
    """The configuration without what may differ between a run and its resume."""
    run = config.run.model_copy(update={"workers": 1, "device": "auto", "loggers": ()})
    return config.model_copy(update={"run": run})


def fingerprint_config(config: Config) -> str:
    """A digest of what must not change between a run and its resume: the keys of a folder's file,
    or all of a configuration that is in no folder yet."""
    text = tomli_w.dumps(to_stored_tree(resumable_config(config)))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def fingerprint_run(loaded: Loaded) -> str:
    """A digest of what a run is, whatever its file leaves out: equal for a run folder and for a
    configuration that asks for the same run, also where one of them lacks keys of the other."""
    config = resolve_config(loaded)
    tables = {
        name: make_defense(config, name, loaded.source).options.model_dump(mode="json")
        for name in config.release.defenses
    }
    release = type(config.release).model_validate({**config.release.model_dump(), **tables})
    return fingerprint_config(config.model_copy(update={"release": release}))


def make_paths_absolute(loaded: Loaded) -> Config:
    """The configuration with every path made absolute, so that the stored file stands alone."""
    config = loaded.config
    data, model, run = _make_path_absolute(config.data, loaded.base), config.model, config.run
    if data.public is not None:
        data = data.model_copy(update={"public": _make_path_absolute(data.public, loaded.base)})
    if model.weights not in (None, "imagenet"):
        weights = str((loaded.base / Path(str(model.weights)).expanduser()).resolve())
        model = model.model_copy(update={"weights": weights})
    if model.start is not None:
        start = str((loaded.base / Path(model.start).expanduser()).resolve())
        model = model.model_copy(update={"start": start})
    plugins = tuple(
        str((loaded.base / p).resolve()) if p.endswith(".py") else p for p in run.plugins
    )
    loggers = tuple(_make_target_absolute(text, loaded.base) for text in run.loggers)
    run = run.model_copy(update={"plugins": plugins, "loggers": loggers})
    return config.model_copy(update={"data": data, "model": model, "run": run})


def _make_target_absolute(logger: str, base: Path) -> str:
    """A logger whose target is a path, not an address, writes there from wherever it goes on."""
    name, _, target = logger.partition(":")
    if not target or ":" in target:
        return logger
    return f"{name}:{(base / Path(target).expanduser()).resolve()}"


def _make_path_absolute(data: Data, base: Path) -> Data:
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
