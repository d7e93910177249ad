"""The configuration reference, made from the schema: `python -m vitrail.config.reference_page`."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from vitrail.config.annotation_section import Annotation
from vitrail.config.debias_section import Debias, Suspicion
from vitrail.config.hostile_section import Hostile
from vitrail.config.schema import (
    Aggregate,
    Augment,
    Aviary,
    Bias,
    Data,
    Dicom,
    Method,
    Model,
    Optimizer,
    Partition,
    PartOptimizer,
    Prototypes,
    Release,
    Run,
    Subspaces,
)

SECTIONS: tuple[type[BaseModel], ...] = (
    Data, Augment, Aviary, Dicom, Annotation, Partition, Bias, Hostile, Model, Prototypes,
    Subspaces, Method, Optimizer, PartOptimizer, Aggregate, Release, Debias, Suspicion, Run,
)  # fmt: skip
HEAD = """# Configuration

One TOML file describes a run. Every key, its type, its default and what it means; made from
the schema by `python -m vitrail.config.reference_page`. `vitrail config show FILE` prints a file
with all defaults filled in. Unknown keys are errors.

A file may begin with `extends = "base.toml"` and hold only the lines that differ: it replaces the
keys that it names, lists as a whole, and `drop = ["data.limit"]` takes keys away. The path of
`extends` is relative to the file it stands in; all other paths are relative to the file that is
run. The file it names may extend another one.
"""


def make_lines() -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    for section in SECTIONS:
        title, _, meaning = (section.__doc__ or "").partition(": ")
        yield f"## {title}\n\n{meaning[:1].upper()}{meaning[1:]}\n"
        yield from make_rows(section)
        yield ""


def make_rows(section: type[BaseModel]) -> Iterator[str]:
    """The table of one section: a line a key."""
    yield "| key | type | default | meaning |\n|---|---|---|---|"
    for name, field in section.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|").replace("\n", " ")
        kind, default = _format_type(field.annotation), _format_default(field)
        yield f"| `{name}` | {kind} | {default} | {meaning} |"


def _format_type(annotation: Any) -> str:
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{_format_value(arg)}`" for arg in args)
    if origin in (Union, types.UnionType):
        return " or ".join(_format_type(arg) for arg in args if arg is not type(None))
    if origin is tuple:
        inner = [arg for arg in args if arg is not Ellipsis]
        return "list of " + " and ".join(dict.fromkeys(_format_type(arg) for arg in inner))
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    if hasattr(annotation, "__metadata__") or origin is not None:
        return _format_type(args[0])
    names = {str: "text", int: "integer", float: "number", bool: "true or false"}
    return names.get(annotation, "text")


def _format_value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _format_default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, tuple):
        return f"`[{', '.join(_format_value(v) for v in value)}]`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "`{}`" if value == {} else f"`{_format_value(value)}`"


if __name__ == "__main__":
    print("\n".join(make_lines()), end="")
