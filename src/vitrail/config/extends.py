"""Files in layers: one that extends another, and one that holds other scales of itself.

A layer has only the lines that differ: it replaces the keys that it names, lists as a whole, after
`drop` took away the keys that have no place in it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vitrail.errors import ConfigError, suggest_name


def read_tree(path: Path, scale: str | None = None) -> dict[str, Any]:
    """What a TOML file describes: over the file it extends, at the scale that was asked for.

    `needs` says what `vitrail reproduce` asks for, which is no matter of the configuration.
    """
    tree = choose_scale(read_file(path), scale, str(path))
    tree.pop("needs", None)
    return tree


def read_toml(path: Path) -> dict[str, Any]:
    """One TOML file as it is."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(f"this is not valid TOML ({err})", where=str(path)) from err


def read_file(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A TOML file over the one that it `extends`, if any; `above` are those that extend it."""
    tree = read_toml(path)
    if "extends" not in tree:
        return tree
    where, name = f"{path}: extends", tree.pop("extends")
    if not isinstance(name, str):
        raise ConfigError("must be the path of another TOML file", where=where)
    base = path.parent / name
    if not base.is_file():
        raise ConfigError(
            f"there is no file {base}",
            where=where,
            hint="The path is relative to the file that extends it.",
        )
    chain = (*above, path.resolve())
    if base.resolve() in chain:
        raise ConfigError(f"{name} extends this file in turn", where=where, hint="Leave one out.")
    return change_tree(read_file(base, chain), tree, str(path))


def choose_scale(tree: Mapping[str, Any], scale: str | None, source: str) -> dict[str, Any]:
    """A tree at one of the scales that its `[scale.NAME]` sections describe; None: as it stands."""
    base = dict(tree)
    scales = base.pop("scale", {})
    if not isinstance(scales, dict) or not all(isinstance(s, dict) for s in scales.values()):
        raise ConfigError("must hold sections, [scale.NAME]", where=f"{source}: scale")
    if scale is None:
        return base
    if scale not in scales:
        raise ConfigError(
            f"there is no scale {scale!r}", where=source, hint=suggest_name(scale, scales)
        )
    return change_tree(base, scales[scale], f"{source}: scale.{scale}")


def change_tree(base: Mapping[str, Any], changes: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A tree without the keys that `drop` of the changes lists, and with those they name."""
    changes = dict(changes)
    dropped = changes.pop("drop", [])
    if not isinstance(dropped, list) or not all(isinstance(key, str) for key in dropped):
        raise ConfigError('must be a list such as ["data.limit"]', where=f"{where}: drop")
    for key in dropped:
        base = _drop_key(base, key.split("."), key, where)
    return _replace_keys(base, changes)


def _drop_key(tree: Mapping[str, Any], steps: list[str], key: str, where: str) -> dict[str, Any]:
    first, *rest = steps
    if first not in tree or (rest and not isinstance(tree[first], Mapping)):
        raise ConfigError(f"there is no key {key!r} to leave out", where=f"{where}: drop")
    if rest:
        return {**tree, first: _drop_key(tree[first], rest, key, where)}
    return {name: value for name, value in tree.items() if name != first}


def _replace_keys(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    tree = dict(base)
    for key, value in changes.items():
        old = tree.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            tree[key] = _replace_keys(old, value)
        else:
            tree[key] = value
    return tree
