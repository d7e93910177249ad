"""Presets that ship with the package: one per method, and the demo."""

from __future__ import annotations

from pathlib import Path

from vitrail.errors import ConfigError, suggest_name

FOLDER = Path(__file__).parent.parent / "presets"


def find_preset(method: str) -> Path:
    """The preset of a method: a file that runs as it is."""
    folder = FOLDER / "methods"
    file = folder / f"{method}.toml"
    if not file.is_file():
        names = [path.stem for path in folder.glob("*.toml")]
        raise ConfigError(f"there is no preset {method!r}", hint=suggest_name(method, names))
    return file
