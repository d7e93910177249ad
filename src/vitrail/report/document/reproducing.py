"""The section that lets somebody else make the same run: configuration, seed, versions, command."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tomli_w

from vitrail import __version__
from vitrail.config import dump
from vitrail.report.document.account import Account
from vitrail.report.document.block import Block, Folded
from vitrail.report.document.markup import el, say
from vitrail.report.document.table import Column, Table

WITHHELD = "(a path at the site)"
_PATHS = frozenset({"data.path", "data.public.path", "model.weights", "run.plugins"})
_PACKAGES = ("torch", "numpy", "pillow", "safetensors", "scipy", "scikit-learn")


def reproducing(account: Account, paths: bool) -> tuple[Block, ...]:
    """The configuration as it ran; `paths` says whether it may name files of this machine."""
    config = account.run.config
    text = dump(config) if paths else shareable(config.model_dump(mode="json", exclude_none=True))
    command = f"vitrail run config.toml --out {account.name}"
    facts = el(
        "dl",
        el("dt", "Seed"),
        el("dd", config.run.seed),
        el("dt", "Rounds"),
        el("dd", f"{account.run.round} of {config.run.rounds}"),
        el("dt", "Command"),
        el("dd", el("code", command)),
        class_="facts",
    )
    told = el(
        "p",
        say(
            "The same configuration, images and versions give the same numbers to the bit on the "
            "same kind of machine. What sites draw comes from their own secrets, which in "
            "simulation follow from the seed."
        ),
        class_="soft",
    )
    folded = el("details", el("summary", "config.toml"), el("pre", el("code", text)))
    return facts, told, folded, Folded("Versions that made this report", versions(account.name))


def versions(name: str) -> Table:
    """The packages that matter for the numbers."""
    rows = [("vitrail", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            continue
    columns = (Column("package"), Column("version"))
    return Table(f"{name}-versions", "Versions", columns, tuple(rows))


def shareable(tree: Mapping[str, Any]) -> str:
    """The configuration as TOML without the names of files and folders."""
    return tomli_w.dumps(_hidden(tree))


def _hidden(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            found[key] = _hidden(value, f"{name}.")
        elif isinstance(value, list):
            listed = [
                _hidden(v, f"{name}.") if isinstance(v, Mapping) else _plain(name, v) for v in value
            ]
            found[key] = [v for v in listed if v is not None]
        elif value is not None:
            found[key] = _plain(name, value)
    return found


def _plain(key: str, value: Any) -> Any:
    """Anything that looks like a path is withheld, whatever its key."""
    looks = isinstance(value, str) and ("/" in value or "\\" in value)
    named = key in _PATHS and isinstance(value, str) and value != "imagenet"
    return WITHHELD if looks or named else value
