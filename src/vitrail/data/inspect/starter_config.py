"""The first configuration for a user's images: checked, commented, and it runs as it is."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from vitrail.config.load import parse
from vitrail.config.schema import Data
from vitrail.data.decoding.decode import Header
from vitrail.data.decoding.decode_all import describe_unreadable, probe
from vitrail.data.image_set import ImageSet
from vitrail.data.inspect.advice import (
    Line,
    describe_sizes,
    suggest_image_size,
    suggest_model,
    suggest_partition,
    suggest_run,
)
from vitrail.data.inspect.image_check import Check, check, describe_layout, guess_data
from vitrail.data.labels import NO_FINDING, resolve_labels
from vitrail.data.load_images import read_source
from vitrail.data.records import Records
from vitrail.data.split import resolve_splits
from vitrail.errors import DataError
from vitrail.rng import Key, derive_server_key

_FULL_CHECK = 3000  # beyond this many images only headers are read


@dataclass(frozen=True)
class Draft:
    """The text of a configuration file and what was found in the images."""

    text: str
    check: Check


def draft(path: Path, file: Path) -> Draft:
    """Look at the images at `path` and write a configuration for `file`, which is not touched."""
    key = derive_server_key(0).at("starter")
    data = guess_data(path)
    source = read_source(data, Path.cwd(), key)
    if isinstance(source, ImageSet):
        raise DataError("this source draws its own images and needs no file", where=str(path))
    data, why = _choose_positive(data, source)
    seen = _check_images(data, source, key)
    bare = _make_bare_set(data, source)
    sections = {
        "data": _data_lines(data, seen, source, file, why),
        "partition": suggest_partition(bare, seen, data, key),
        "model": suggest_model(seen),
        "method": [("name", "fedavg", "`vitrail methods` lists all of them")],
        "run": suggest_run(seen),
    }
    text = _render(sections, path)
    parse(tomllib.loads(text), file.parent, str(file))  # it is never handed out if it is wrong
    return Draft(text, seen)


def _choose_positive(data: Data, records: Records) -> tuple[Data, str]:
    """For lists of findings: tell the most frequent one from the rest, and say so."""
    lists = [row.label for row in records.rows if isinstance(row.label, tuple)]
    words = [row.label for row in records.rows if isinstance(row.label, str)]
    if not lists and sum("|" in word for word in words) > 0:
        lists = [tuple(word.split("|")) for word in words]
    if not lists:
        return data, ""
    counts = Counter(
        word.strip()
        for several in lists
        for word in set(several)
        if word.strip() and word.strip().casefold() != NO_FINDING
    )
    usable = [(word, n) for word, n in counts.most_common() if n < len(lists)]
    if not usable:
        raise DataError("every image has the same findings", where="data.label")
    word, count = usable[0]
    others = ", ".join(name for name, _ in usable[1:6])
    why = f"the most frequent finding ({count} of {len(lists)}); others: {others or 'none'}"
    return data.model_copy(update={"positive": word}), why


def _check_images(data: Data, records: Records, key: Key) -> Check:
    """A full check of a small set; for a large one labels and headers only."""
    if len(records) <= _FULL_CHECK:
        return check(data, Path.cwd(), key)
    heads = probe(records.rows, records.decoder, data)
    problems = list(records.problems)
    problems += [
        describe_unreadable(r, h) for r, h in zip(records.rows, heads) if not isinstance(h, Header)
    ]
    good = [head for head in heads if isinstance(head, Header)]
    names = [row.name for row in records.rows]
    resolved = resolve_labels([row.label for row in records.rows], names, data, records.classes)
    labels = Counter(resolved.classes[i] for i in resolved.labels.tolist())
    patients = {row.patient for row in records.rows if row.patient is not None}
    return Check(
        data.source,
        len(records),
        dict(labels),
        dict(Counter(row.site for row in records.rows if row.site is not None)),
        dict(Counter(row.split for row in records.rows if row.split is not None)),
        len(patients) or None,
        Counter((head.width, head.height) for head in good),
        Counter(head.mode for head in good),
        (*problems, *resolved.problems),
    )


def _make_bare_set(data: Data, records: Records) -> ImageSet:
    """The set without its pixels, on which a partition can be tried at no cost."""
    rows = records.rows
    resolved = resolve_labels(
        [r.label for r in rows], [r.name for r in rows], data, records.classes
    )
    splits, _ = resolve_splits([row.split for row in rows])
    kept = [rows[i] for i in resolved.rows]

    def column(values: Sequence[str | None]) -> Any:
        known = any(value is not None for value in values)
        return np.array([value or "" for value in values], np.str_) if known else None

    return ImageSet(
        images=np.zeros((len(kept), 1, 1, 1), np.uint8),
        labels=resolved.labels,
        classes=resolved.classes,
        names=np.array([row.name for row in kept], np.str_),
        sites=column([row.site for row in kept]),
        patients=column([row.patient for row in kept]),
        splits=column([splits[i] for i in resolved.rows]),
    )


def _data_lines(data: Data, seen: Check, records: Records, file: Path, why: str) -> list[Line]:
    lines: list[Line] = [
        ("source", data.source, "what was found there"),
        ("path", _relative(Path(str(data.path)), file), "relative to this file, or absolute"),
        ("image_size", suggest_image_size(seen), describe_sizes(seen)),
    ]
    if data.folders == "site/class":
        lines.append(("folders", data.folders, describe_layout(data, Path.cwd()) or ""))
    if seen.depth is not None:
        lines.append(("bits", seen.depth.bits, seen.depth.describe()))
    if data.image != "image":
        lines.append(("image", data.image, "the column of the images"))
    if data.label != "label":
        lines.append(("label", data.label, "the column of the labels"))
    if data.positive is not None:
        lines.append(("positive", data.positive, why))
        lines.append(("balance", True, "as many negatives as positives, in training only"))
    if not seen.ok:
        bad = len([p for p in seen.problems if p.kind in ("broken", "missing", "label")])
        lines.append(("broken", "skip", f"{bad} images cannot be used; `stop` would refuse them"))
    if any(row.patient is not None for row in records.rows):
        lines.append(("", None, f"{seen.patients} patients: none is in both training and test"))
    return lines


def _relative(path: Path, file: Path) -> str:
    try:
        short = Path(os.path.relpath(path.resolve(), file.resolve().parent)).as_posix()
    except ValueError:  # another drive
        return path.resolve().as_posix()
    return f"./{short}" if short.startswith("~") else short


def _render(sections: dict[str, list[Line]], path: Path) -> str:
    text = [f"# A federation on the images of {_one_line(path.name)}. Run it: vitrail run FILE"]
    text += ["# `vitrail config show FILE` prints every key with its default.", ""]
    for name, lines in sections.items():
        text.append(f"[{name}]")
        for key, value, comment in lines:
            remark = f"# {_one_line(comment)}"
            text.append(f"{tomli_w.dumps({key: value}).strip()}  {remark}" if key else remark)
        text.append("")
    return "\n".join(text)


def _one_line(text: str) -> str:
    """A comment holds no line break and no control character, whatever a label is called."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(shown.split())[:160]
