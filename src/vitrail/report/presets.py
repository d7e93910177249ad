"""Presets that ship with the package: one per method, and the grids behind the docs' tables."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from vitrail.errors import ConfigError, nearest

Scale = Literal["hour", "small", "paper"]
FOLDER = Path(__file__).parent.parent / "presets"


def preset(method: str) -> Path:
    """The preset of a method: a file that runs as it is."""
    return _named(FOLDER / "methods", method, "preset")


def reproduction(name: str, scale: Scale, data: Path | None) -> tuple[Path, tuple[str, ...]]:
    """The grid of a results table, and the overrides that point it at the images.

    A grid over several files wants the folder they lie in, which `load_grid` takes as its base.
    """
    names = set(_tables("reproduce")) | set(_tables("leakage"))
    if name not in names:
        raise ConfigError(
            f"there is no table {name!r}", where="reproduce", hint=nearest(name, names)
        )
    folder = "leakage" if leaks(name) else "reproduce"
    file = FOLDER / folder / f"{name}.{scale}.toml"
    if not file.is_file():
        raise ConfigError(
            f"table {name!r} has no scale {scale!r}", where="--scale", hint="Use small or paper."
        )
    text = file.read_text(encoding="utf-8")
    wants = "FOLDER" if "# needs --data FOLDER" in text else "PATH"
    if "# needs --data" in text and (data is None or (wants == "FOLDER" and not data.is_dir())):
        raise ConfigError(
            f"table {name!r} needs images", where="reproduce", hint=f"Add --data {wants}."
        )
    if data is None or wants == "FOLDER":
        return file, ()
    return file, (f"data.path={str(data.resolve())!r}",)


def leaks(name: str) -> bool:
    """Whether a table is one of attacks, for `vitrail leakage`, and not a grid of runs."""
    return name in _tables("leakage")


def _tables(folder: str) -> list[str]:
    found = (FOLDER / folder).glob("*.small.toml")
    return sorted(path.name.removesuffix(".small.toml") for path in found)


def _named(folder: Path, name: str, noun: str) -> Path:
    file = folder / f"{name}.toml"
    if not file.is_file():
        names = [p.stem for p in folder.glob("*.toml")]
        raise ConfigError(f"there is no {noun} {name!r}", hint=nearest(name, names))
    return file
