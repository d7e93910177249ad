"""Reading, overriding and writing configurations, with errors that name file, key and choice."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ValidationError

from vitrail.config.added_keys import drop_keys, restore_old_values
from vitrail.config.extends import read_toml, read_tree
from vitrail.config.schema import Config
from vitrail.errors import ConfigError, suggest_name


@dataclass(frozen=True)
class Loaded:
    """A configuration, the folder its paths are relative to, the `[sweep]` lists and the `[tune]`
    section if any."""

    config: Config
    base: Path
    source: str = "config"
    sweep: Mapping[str, Any] = field(default_factory=dict)
    stored: bool = False  # whether it came out of a run folder, which may be somebody else's
    tune: Mapping[str, Any] = field(default_factory=dict)


def load(
    path: str | Path,
    overrides: Iterable[str] = (),
    scale: str | None = None,
    stored: bool = False,
) -> Loaded:
    """Read a TOML file, apply `section.key=value` overrides, check everything.

    `stored` files are those of run folders: complete, so that they extend nothing, and a missing
    key means what was done before there was one.
    """
    path = Path(path)
    if path.is_dir():
        raise ConfigError(
            "this is a folder, and a TOML file is wanted",
            where=str(path),
            hint="The configuration of a run folder is its config.toml.",
        )
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path}", hint="`vitrail init PATH` writes one for your images."
        )
    tree = read_toml(path) if stored else read_tree(path, scale)
    return parse(tree, path.parent, str(path), overrides, stored)


def parse(
    raw: Mapping[str, Any],
    base: Path = Path(),
    source: str = "config",
    overrides: Iterable[str] = (),
    stored: bool = False,
) -> Loaded:
    """Check a dictionary as if it had been read from a file, or from that of a run folder."""
    tree = _copy(raw)
    for text in overrides:
        _override(tree, text)
    sweep, tune = tree.pop("sweep", {}), tree.pop("tune", {})
    for name in ("bias", "hostile"):
        if isinstance(tree.get(name), dict):
            tree[name] = [tree[name]]
    if not isinstance(sweep, dict):
        raise ConfigError("must be a table of lists", where=f"{source}: sweep")
    try:
        text = json.dumps(tree, default=str)  # strict typing that still lets lists be tuples
        config = Config.model_validate_json(text, strict=True)
    except ValidationError as err:
        raise to_config_error(err, source) from None
    if stored:
        config, absent = restore_old_values(config)
        config.mark_stored(absent)
    return Loaded(config, base.resolve(), source, sweep, stored, tune)


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """`section.key=value` texts alone, as the dictionary they describe."""
    tree: dict[str, Any] = {}
    for text in overrides:
        _override(tree, text)
    return tree


def dump(config: Config) -> str:
    """The complete configuration as TOML; reading it back gives the same configuration."""
    return tomli_w.dumps(_drop_none(config.model_dump(mode="json")))


def to_stored_tree(config: Config) -> dict[str, Any]:
    """The tables of a configuration; of one from a run folder, with the keys of its file only."""
    tree: dict[str, Any] = _drop_none(config.model_dump(mode="json"))
    return drop_keys(tree, config.absent)


def _copy(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in tree.items()}


def _drop_none(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {k: _drop_none(v) for k, v in tree.items() if v is not None}
    return [_drop_none(v) for v in tree] if isinstance(tree, list) else tree


def _override(tree: dict[str, Any], text: str) -> None:
    key, mark, value = text.partition("=")
    steps = key.strip().split(".")
    if not mark or len(steps) < 2 or not all(steps):
        raise ConfigError(
            f"{text!r} is not an override", where="--set", hint="Write section.key=value."
        )
    node = tree
    for step in steps[:-1]:
        node = node.setdefault(step, {})
        if not isinstance(node, dict):
            raise ConfigError(f"{step!r} in {key!r} is a value, not a section", where="--set")
    node[steps[-1]] = _parse_value(value.strip())


def _parse_value(text: str) -> Any:
    """A TOML value where it is one, else the text: `--set a.b=iid` needs no quotes."""
    try:
        return tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text


def to_config_error(
    err: ValidationError, source: str, root: type[BaseModel] = Config, section: str = ""
) -> ConfigError:
    """One sentence for the first problem; the others are counted. `section` prefixes the key."""
    errors = err.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    steps = [section, *(str(step) for step in first["loc"] if not _is_union_tag(step))]
    key = ".".join(step for step in steps if step)
    more = f" ({len(errors) - 1} more after this one.)" if len(errors) > 1 else ""
    where = f"{source}: {key}" if key else source
    if first["type"] == "extra_forbidden":
        return ConfigError(
            "this key is unknown",
            where=where,
            hint=suggest_name(str(first["loc"][-1]), _list_keys(root, first["loc"][:-1])),
        )
    if first["type"] == "missing":
        return ConfigError("this key is missing", where=where)
    message = first["msg"].removeprefix("Value error, ")
    got = f", not {first['input']!r}" if key and first["type"] != "value_error" else ""
    return ConfigError(f"{message}{got}", where=where, hint=more.strip())


def _is_union_tag(step: object) -> bool:
    return isinstance(step, str) and (
        "[" in step or step in ("bool", "str", "int", "float", "tuple")
    )


def _list_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> Iterable[str]:
    """The valid keys of the section at `loc` under `model`."""
    for step in loc:
        if not isinstance(step, str) or step not in model.model_fields:
            continue
        section = _find_model(model.model_fields[step].annotation)
        if section is None:
            return []
        model = section
    return model.model_fields


def _find_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((m for arg in get_args(annotation) if (m := _find_model(arg))), None)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as one, the keys joined by dots; an empty table leaves nothing."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
