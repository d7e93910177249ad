"""Keys that came after run folders were written: what they mean there, and what digests leave out.

A run folder's `config.toml` has every key that existed when the run began. A key that it lacks
takes the value that repeats what the run did then, and its digests cover the keys it has, so that
they stay what they were. A key needs nothing for that if its default changes nothing:

    warmup: int = 0

is enough. Where the default does change what a run does, the declaration says what to go back to:

    warmup: int = added(5, before=0)

`added(0)` is for options of methods and defenses: noise depends on every option, so a bare new one
gives new runs other draws, and one of a defense is in every line of the ledger. An added one is
where it has another value than before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

_BEFORE = "before"
_SAME: Any = object()
_JSON: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


def added(default: Any, *, before: Any = _SAME) -> Any:
    """A new key of a section: its default, and the value that repeats a run made without it."""
    if before is _SAME:
        before = default
    if default is None and before is not None:
        raise ValueError(
            "a run folder cannot hold None, so a key that it lacks could be a new default or an "
            "old run: give the new default a value of its own"
        )
    return Field(default=default, json_schema_extra={_BEFORE: before})


def list_old_values(model: type[BaseModel]) -> dict[str, Any]:
    """The keys of a section that are declared as `added`, with their values before."""
    extras = {name: field.json_schema_extra for name, field in model.model_fields.items()}
    return {
        name: extra[_BEFORE]
        for name, extra in extras.items()
        if isinstance(extra, dict) and _BEFORE in extra
    }


def restore_old_values(section: Model, path: KeyPath = ()) -> tuple[Model, list[KeyPath]]:
    """A section read from a run folder, the keys that it lacks at their old values; their paths."""
    before, values, absent = list_old_values(type(section)), {}, []
    for name in type(section).model_fields:
        is_there = name in section.model_fields_set
        value = getattr(section, name) if is_there else before.get(name, getattr(section, name))
        values[name], inside = _restore(value, (*path, name))
        absent += inside if is_there else [(*path, name)]
    restored = section.model_copy()
    restored.__dict__.update(values)  # a frozen section has no other way, and nothing was set
    return restored, absent


def _restore(value: Any, path: KeyPath) -> tuple[Any, list[KeyPath]]:
    """`restore_old_values` for every section inside a value."""
    if isinstance(value, BaseModel):
        return restore_old_values(value, path)
    if isinstance(value, tuple):
        parts = [_restore(part, (*path, at)) for at, part in enumerate(value)]
        return tuple(part for part, _ in parts), [key for _, inside in parts for key in inside]
    if isinstance(value, dict):
        pairs = {name: _restore(part, (*path, name)) for name, part in value.items()}
        inside = [key for _, keys in pairs.values() for key in keys]
        return {name: part for name, (part, _) in pairs.items()}, inside
    return value, []


def restore_old_options(model: type[BaseModel], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table of options of a run folder, with those that it lacks at their old values."""
    return {**list_old_values(model), **table}


def write_new_defaults(model: type[BaseModel], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table that a user wrote, with the new defaults that leaving out would not mean once the
    table lies in a run folder."""
    fields, before = model.model_fields, list_old_values(model)
    changed = {
        name: fields[name].default for name in before if before[name] != fields[name].default
    }
    return {**_JSON.dump_python(changed, mode="json"), **table}


def drop_old_values(model: type[BaseModel], table: Mapping[str, Any]) -> dict[str, Any]:
    """A table without the added keys that have their old value: what it was before they came."""
    before = _JSON.dump_python(list_old_values(model), mode="json")
    return {k: v for k, v in table.items() if k not in before or v != before[k]}


def drop_keys(tree: dict[str, Any], paths: tuple[KeyPath, ...]) -> dict[str, Any]:
    """A tree of tables, changed in place, without the keys at some paths."""
    for path in paths:
        node: Any = tree
        for step in path[:-1]:
            node = node[step] if not isinstance(node, dict) or step in node else {}
        if isinstance(node, dict):
            node.pop(path[-1], None)
    return tree
