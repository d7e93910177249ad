"""What forms send: a few short fields, each read with one sentence for what makes no sense."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from vitrail.errors import ConfigError

MOST_FORM = 64 * 2**10  # bytes of a form
_FIELDS = 2000  # a form of tick boxes has many
EDGES = ("left", "top", "right", "bottom")


def read_fields(request: Request) -> dict[str, list[str]]:
    """The fields of a form; each may come several times."""
    body: bytes = request.state.body
    try:
        return parse_qs(
            body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS
        )
    except ValueError as err:
        raise ConfigError(f"this form cannot be read ({err})") from None


def read_first(fields: Mapping[str, list[str]], name: str, most: int = 200) -> str:
    """The first value of a field, without blanks around it and cut; empty if it is not there."""
    return fields.get(name, [""])[0].strip()[:most]


def read_name(fields: Mapping[str, list[str]]) -> str:
    """Who sends this: whatever is kept is kept with a name."""
    name = read_first(fields, "by", 100)
    if not name:
        raise ConfigError("your name is missing: what is kept is kept with a name")
    return name


def read_region(fields: Mapping[str, list[str]]) -> list[float] | None:
    """Four edges of a box, None if not all of them were filled in."""
    edges = [read_first(fields, name) for name in EDGES]
    if not all(edges):
        return None
    try:
        box = [float(edge) for edge in edges]
    except ValueError:
        raise ConfigError(f"the edges of a region are numbers, not {edges}") from None
    if not (all(map(math.isfinite, box)) and box[0] < box[2] and box[1] < box[3]):
        raise ConfigError("this is no region: left < right and top < bottom")
    return box


def stamp_now() -> str:
    """The time that is kept beside a name."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def read_lines(file: Path) -> list[dict[str, Any]]:
    """Every object of a file of JSON lines, the newest last; a torn last line is left out."""
    if not file.is_file():
        return []
    lines = []
    for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            lines.append(line)
    return lines


def append_line(file: Path, line: Mapping[str, Any]) -> None:
    """Add an object to a file of JSON lines."""
    with file.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(line) + "\n")
