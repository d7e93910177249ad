"""The grids behind the docs' tables, `experiments/grids` of a checkout: one file a table.

A file is the small scale of its table; its `[scale.NAME]` sections hold the lines that differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitrail.config.extends import choose_scale, read_file
from vitrail.errors import ConfigError, suggest_name
from vitrail.sweep.checkout import require_experiments

Scale = Literal["hour", "small", "paper"]

# Tables of runs from before copies were looked for; those that tune their rows came later.
_AS_THEN = ("data.duplicates='ignore'", "data.conflicts='allow'")


@dataclass(frozen=True)
class Reproduction:
    """The grid of a results table, at which of its scales, and where its images are.

    `scale` is None for the file as it stands, `base` the folder that its paths are relative to
    instead of its own. Tables of attacks are for `vitrail leakage`, all others grids of runs.
    """

    file: Path
    scale: str | None
    overrides: tuple[str, ...]
    base: Path | None
    is_leakage: bool


def find_reproduction(name: str, scale: Scale, data: Path | None) -> Reproduction:
    """The grid of a table, pointed at the images: at a file, or at a folder of several."""
    folder = require_experiments() / "grids"
    names = [path.stem for path in folder.glob("*.toml")]
    if name not in names:
        raise ConfigError(
            f"there is no table {name!r}", where="reproduce", hint=suggest_name(name, names)
        )
    file = folder / f"{name}.toml"
    layers = read_file(file)
    section = None if scale == "small" else scale
    if section is not None and section not in layers.get("scale", {}):
        raise ConfigError(
            f"table {name!r} has no scale {scale!r}", where="--scale", hint="Use small or paper."
        )
    tree = choose_scale(layers, section, str(file))
    needs = tree.get("needs")
    if needs and (data is None or (needs == "folder" and not data.is_dir())):
        raise ConfigError(
            f"table {name!r} needs images", where="reproduce", hint=f"Add --data {needs.upper()}."
        )
    is_leakage, overrides = "leakage" in tree, () if "tune" in tree else _AS_THEN
    if data is None or needs == "folder":
        return Reproduction(file, section, overrides, data, is_leakage)
    path = f"data.path={str(data.resolve())!r}"
    return Reproduction(file, section, (*overrides, path), None, is_leakage)
