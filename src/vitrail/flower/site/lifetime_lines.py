"""Whose images a line of the lifetime ledger is about, and whether they can be recognized.

Lines of version 0.2.0 name an image without a file of its own by its pixels after resizing, which
today's keys, of what the source holds, never match. They have no list of patients.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from vitrail.flower.site.lifetime_keys import ImageKeys

Line = Mapping[str, Any]
_FILES = ("folder", "manifest")
"""Sources whose images version 0.2.0 surely knew by their files; of others it depends."""


def count_keys(line: Line, bounded: bool) -> Counter[str] | None:
    """The images that a run has spent on; None is any. Without a bound figures about the images
    that it was tested on have left as well."""
    if line["images"] is None:
        return None
    return Counter(line["images"]) + Counter(() if bounded else line.get("tested", ()))


def list_known_keys(lines: Iterable[Line], planned: ImageKeys | None) -> set[str]:
    """What images and patients are known by today, from newer lines and a planned run."""
    known = set[str]()
    for line in lines:
        if line["kind"] == "begin" and "patients" in line:
            known |= {*line["images"], *line.get("tested", ()), *line["patients"]}
    if planned is not None:
        known |= {*planned.images, *planned.tested, *planned.patients}
    return known


def is_recognized(line: Line, known: set[str]) -> bool:
    """Whether the images of a line can be found again: those of a newer line, of a source of
    files, or where all of them are known today."""
    if "patients" in line or line["images"] is None:
        return True
    source = str(line["data"]).partition(":")[0]
    return source in _FILES or set(line["images"]) <= known
