"""FEMNIST as LEAF writes it: JSON files of users; every user is a site."""

from __future__ import annotations

import json
import string
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.decoding.decode import UnreadableError, to_bytes
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Record, Records
from vitrail.data.sources.listing import make_relative, walk
from vitrail.errors import DataError
from vitrail.rng import Key

CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase


@SOURCES.register("femnist")
def femnist(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Handwritten characters; files in folders called `train` and `test` name the split."""
    files = [path] if path.is_file() else [f for f in walk(path) if f.suffix == ".json"]
    root = path.parent if path.is_file() else path
    if not files:
        raise DataError("there is no .json file here", where=str(path))
    rows: list[Record] = []
    for file in files:
        folder = file.parent.name.casefold()
        split = folder if folder in ("train", "test") else None
        rows += _read_users(file, make_relative(file, root), split)
    if any(row.split is not None for row in rows):
        rows = [row for row in rows if row.split is not None]  # `all_data` repeats both parts
    return Records(_name_classes(rows, path), files=tuple(files))


def _read_users(file: Path, name: str, split: str | None) -> list[Record]:
    try:
        leaf = json.loads(file.read_text(encoding="utf-8"))
        users = leaf["users"]
        blocks = [(str(user), leaf["user_data"][user]) for user in users]
        rows = []
        for user, block in blocks:
            pixels, labels = _pixels(block["x"]), [int(y) for y in block["y"]]
            if len(pixels) != len(labels):
                raise ValueError(f"user {user} has {len(pixels)} images, {len(labels)} labels")
            rows += [
                Record(f"{name}:{user}[{i}]", image, labels[i], site=user, split=split)
                for i, image in enumerate(pixels)
            ]
        return rows
    except (OSError, ValueError, KeyError, TypeError, UnreadableError) as err:
        raise DataError(
            f"is not a LEAF file of users, user_data, x and y ({type(err).__name__}: {err})",
            where=str(file),
        ) from err


def _pixels(x: Any) -> npt.NDArray[np.uint8]:
    """Flat rows of numbers in [0, 1] as square images."""
    flat = np.asarray(x, np.float64)
    if flat.size == 0:
        return np.zeros((0, 1, 1), np.uint8)
    side = isqrt(flat.shape[1])
    if flat.ndim != 2 or side * side != flat.shape[1]:
        raise ValueError(f"images of {flat.shape[1]} values are not square")
    return to_bytes(flat.reshape(-1, side, side))


def _name_classes(rows: list[Record], path: Path) -> list[Record]:
    """The number of a class as its character, where all numbers are among the 62."""
    numbers = [row.label for row in rows if isinstance(row.label, int)]
    bad = sorted({n for n in numbers if not 0 <= n < len(CHARACTERS)})
    if bad:
        raise DataError(f"class {bad[0]} is outside of 0..{len(CHARACTERS) - 1}", where=str(path))
    return [
        Record(row.name, row.image, CHARACTERS[n], site=row.site, split=row.split)
        for row, n in zip(rows, numbers)
    ]
