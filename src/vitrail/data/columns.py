"""Facts about images, row by row, as arrays of one type per column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from vitrail.data.decoding.resize import Mode, map_boxes
from vitrail.data.image_set import Array
from vitrail.data.records import Record
from vitrail.errors import DataError

_LONGEST_TEXT = 256


def make_text_column(noun: str, values: Sequence[str | None]) -> npt.NDArray[np.str_] | None:
    """A column of words; None if nobody has one, an error if only some have."""
    missing = sum(value is None for value in values)
    if missing == len(values):
        return None
    if missing:
        first = next(i for i, value in enumerate(values) if value is None)
        raise DataError(
            f"{missing} of {len(values)} images have no {noun} (the first is row {first})",
            where=f"data.{noun}",
            hint=f"Fill the column, or name another one in data.{noun}.",
        )
    return np.array(values, np.str_)


def make_box_column(
    rows: Sequence[Record], sizes: npt.NDArray[np.int32], side: int, mode: Mode
) -> npt.NDArray[np.float32] | None:
    """Boxes in resized pixels; NaN where an image has none, None if no image has one."""
    if all(row.box is None for row in rows):
        return None
    unknown = (np.nan,) * 4
    return map_boxes([row.box or unknown for row in rows], sizes, side, mode)


def make_part_column(
    rows: Sequence[Record], sizes: npt.NDArray[np.int32], side: int, mode: Mode
) -> npt.NDArray[np.float32] | None:
    """Part points [N, P, 2] in resized pixels; NaN where a part is not visible."""
    count = max((len(row.parts) for row in rows if row.parts is not None), default=0)
    if count == 0:
        return None
    points = np.full((len(rows), count, 2), np.nan)
    for i, row in enumerate(rows):
        for j, point in enumerate(row.parts or ()):
            if point is not None:
                points[i, j] = point
    return map_boxes(points, sizes, side, mode)


def make_extra_columns(
    columns: Mapping[str, Sequence[object]], rows: npt.NDArray[np.int64]
) -> dict[str, Array]:
    """Other columns as numbers where all values are, else as text; long texts are left out."""
    arrays = {name: as_array([values[i] for i in rows]) for name, values in columns.items()}
    return {name: array for name, array in arrays.items() if array is not None}


def as_array(values: Sequence[object]) -> Array | None:
    """One column as int64, float64 or text; None for what is none of these."""
    filled = [value for value in values if value is not None and value != ""]
    if any(isinstance(value, (list, tuple, dict, bytes)) for value in filled):
        return None
    texts = [str(value) for value in filled]
    if filled and len(filled) == len(values) and all(_parses_as(int, text) for text in texts):
        integers = [int(text) for text in texts]
        if all(-(2**63) <= value < 2**63 for value in integers):
            return np.array(integers, np.int64)
    if filled and all(_parses_as(float, text) for text in texts):
        numbers = [np.nan if value in (None, "") else float(str(value)) for value in values]
        return np.array(numbers, np.float64)
    if max((len(text) for text in texts), default=0) > _LONGEST_TEXT:
        return None
    return np.array(["" if value is None else str(value) for value in values], np.str_)


def _parses_as(kind: type[int] | type[float], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return "_" not in text
