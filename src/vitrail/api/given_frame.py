"""A pandas frame as the manifest of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.data.sources.manifest import PATH_NAMES
from vitrail.errors import DataError


def write_manifest(frame: Any, file: Path) -> None:
    """A frame (or a `pyarrow.Table`) with one row per image file, as a manifest.

    Paths are made absolute, so that the file stands alone; the index is left out.
    """
    try:
        table = (
            frame
            if isinstance(frame, pa.Table)
            else pa.Table.from_pandas(frame, preserve_index=False)
        )
    except (pa.ArrowException, AttributeError, TypeError) as err:
        raise DataError(
            f"this is no table of images ({err})",
            where="data",
            hint="Give a pandas DataFrame with the columns path and label.",
        ) from err
    column = next((name for name in PATH_NAMES if name in table.column_names), None)
    if column is None:
        raise DataError(
            "no column of this frame names the image files",
            where="data",
            hint=f"Call it path. Columns: {', '.join(map(str, table.column_names))}",
        )
    paths = [None if p is None else str(Path(p).resolve()) for p in table[column].to_pylist()]
    at = table.column_names.index(column)
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.set_column(at, column, pa.array(paths, pa.string())), file)
