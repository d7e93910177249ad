"""The section that lets somebody else make the same run: configuration, seed, versions, command."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tomli_w

from vitrail import __version__
from vitrail.config import dump
from vitrail.report.blocks import Block, FoldedTable
from vitrail.report.html import el, format_html
from vitrail.report.html_table import Column, Table
from vitrail.report.run_record import RunRecord

WITHHELD = "(a path at the site)"
_PATHS = frozenset({"data.path", "data.public.path", "model.weights", "model.start", "run.plugins"})
_DRAWN = frozenset(f"data.annotations.{key}" for key in ("image", "note", "by", "at"))
_REMOTE = (
    "What a site draws comes from a secret of its own, so only the sites together, each with its "
    "secret and its images, can make this run again."
)
_DRAWS = {
    "simulation": "What sites draw comes from their own secrets, which in simulation follow from "
    "the seed.",
    "coordinator": _REMOTE,
    "site": _REMOTE,
}
_PACKAGES = ("torch", "numpy", "pillow", "safetensors", "scipy", "scikit-learn")


def make_reproduction_blocks(record: RunRecord, paths: bool) -> tuple[Block, ...]:
    """The configuration as it ran; `paths` says whether it may name files of this machine."""
    config = record.run.config
    text = (
        dump(config)
        if paths
        else make_shareable_toml(config.model_dump(mode="json", exclude_none=True))
    )
    command = {
        "simulation": f"vitrail run config.toml --out {record.name}",
        "coordinator": f"vitrail flower server config.toml --out {record.name}",
        "site": "vitrail flower site",
    }[record.run.end]
    facts = el(
        "dl",
        el("dt", "Seed"),
        el("dd", config.run.seed),
        el("dt", "Rounds"),
        el("dd", f"{record.run.round} of {config.run.rounds}"),
        el("dt", "Command"),
        el("dd", el("code", command)),
        class_="facts",
    )
    note = el(
        "p",
        format_html(
            "The same configuration, images and versions give the same numbers to the bit on the "
            "same kind of machine. {}",
            _DRAWS[record.run.end],
        ),
        class_="soft",
    )
    folded = el("details", el("summary", "config.toml"), el("pre", el("code", text)))
    return (
        facts,
        note,
        folded,
        FoldedTable("Versions that made this report", make_version_table(record.name)),
    )


def make_version_table(name: str) -> Table:
    """The packages that matter for the numbers."""
    rows = [("vitrail", __version__), ("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            continue
    columns = (Column("package"), Column("version"))
    return Table(f"{name}-versions", "Versions", columns, tuple(rows))


def make_shareable_toml(tree: Mapping[str, Any]) -> str:
    """The configuration as TOML without the names of files and folders."""
    return tomli_w.dumps(_withhold_paths(tree))


def _withhold_paths(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    shareable: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            shareable[key] = _withhold_paths(value, f"{name}.")
        elif isinstance(value, list):
            listed = [
                _withhold_paths(v, f"{name}.")
                if isinstance(v, Mapping)
                else _withhold_path(name, v)
                for v in value
            ]
            shareable[key] = [v for v in listed if v is not None]
        elif value is not None:
            shareable[key] = _withhold_path(name, value)
    return shareable


def _withhold_path(key: str, value: Any) -> Any:
    """Anything that looks like a path is withheld, whatever its key."""
    looks_like_path = isinstance(value, str) and ("/" in value or "\\" in value)
    names_path = key in _PATHS and isinstance(value, str) and value != "imagenet"
    names_image = key in _DRAWN and bool(value)
    return WITHHELD if looks_like_path or names_path or names_image else value
