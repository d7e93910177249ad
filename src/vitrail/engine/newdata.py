"""New images for an old run: where they are, and how they are read for its model."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.config import parse
from vitrail.config.schema import Data
from vitrail.data import dicom
from vitrail.data.decode import Decoder
from vitrail.data.dicom import is_dicom
from vitrail.data.folder import is_picture
from vitrail.data.guess import guess
from vitrail.data.images import ImageSet
from vitrail.data.listing import relative, walk
from vitrail.data.manifest import PATH_NAMES
from vitrail.data.records import Problem, Record, Records
from vitrail.data.source import read
from vitrail.data.table import TABLE_SUFFIXES, optional, read_table
from vitrail.engine.loaded import Run
from vitrail.errors import ConfigError, DataError
from vitrail.rng import server

KEY = server(0).at("new-data")


def describe(run: Run, path: Path, overrides: Iterable[str] = ()) -> Data:
    """A `[data]` section for `path`, at the image size and channels of the run.

    It starts from what is guessed; where that is the kind of source the run itself was made
    from, the run's own columns, findings and names are used. `overrides` (`data.key=value`)
    come last.
    """
    if not path.exists():
        raise DataError("there is nothing here", where=str(path), hint="Give a file or a folder.")
    asked = list(overrides)
    wrong = next((text for text in asked if not text.strip().startswith("data.")), None)
    if wrong is not None:
        raise ConfigError(
            f"{wrong!r} is no key of [data]", where="--set", hint="Write data.key=value."
        )
    start = _start(run, path, asked)
    start = start.model_copy(update={"path": str(Path(start.path or path).resolve())})
    raw = {"data": start.model_dump(mode="json", exclude_none=True)}
    data = parse(raw, Path.cwd(), "--set", asked).config.data
    return data.model_copy(update=shape_of(run))


def shape_of(run: Run) -> dict[str, object]:
    """The keys of `[data]` that the run's model fixes."""
    card = run.card
    return {
        "image_size": card["image_size"],
        "channels": card["channels"],
        "resize": card["resize"],
        "classes": None,
        "limit": None,
        "balance": False,
    }


def _start(run: Run, path: Path, asked: list[str]) -> Data:
    """The guess, or the run's own section where both are of one kind."""
    own = run.config.data
    keys = {text.partition("=")[0].strip() for text in asked}
    try:
        guessed = guess(path)
    except DataError:
        if "data.source" in keys:
            return Data(path=str(path))
        # The columns may have names that only the run's configuration or the user knows.
        if own.path is not None and Path(own.path).suffix.casefold() == path.suffix.casefold():
            return _same_names(own, str(path))
        if "data.label" not in keys or path.suffix.casefold() not in TABLE_SUFFIXES:
            raise
        source, image, label = _image_column(path)
        return Data(source=source, path=str(path), image=image, label=label)
    return guessed if guessed.source != own.source else _same_names(own, guessed.path)


def _same_names(own: Data, path: str | None) -> Data:
    """The run's own section for another path; where it named numbered classes, so do we."""
    numbers = {str(i): name for i, name in enumerate(own.classes or ())}
    return own.model_copy(update={"path": path, "rename": {**numbers, **own.rename}})


def find_images(run: Run, path: Path, overrides: Iterable[str] = ()) -> tuple[Records, Data]:
    """Every image at `path`, labels or not: one file, a folder at any depth, or a data source."""
    asked = tuple(overrides)
    if not path.exists():
        raise DataError("there is nothing here", where=str(path), hint="Give a file or a folder.")
    loose = None if asked else _loose(path)
    if loose is not None:
        return loose, run.config.data.model_copy(update=shape_of(run))
    data = _without_labels(run, path, asked)
    found = read(data, Path.cwd(), KEY)
    if isinstance(found, ImageSet):
        rows = [Record(str(n), x, None) for n, x in zip(found.names, found.images)]
        return Records(rows), data
    return found, data


def _without_labels(run: Run, path: Path, asked: tuple[str, ...]) -> Data:
    """`describe`, and for a table in which nothing looks like a label, any column in its place."""
    try:
        return describe(run, path, asked)
    except DataError:
        if path.suffix.casefold() not in TABLE_SUFFIXES or any("data.label" in a for a in asked):
            raise
        source, image, label = _image_column(path)
        data = Data(source=source, path=str(path.resolve()), image=image, label=label)
        return data.model_copy(update=shape_of(run))


def _image_column(path: Path) -> tuple[str, str, str]:
    """The kind of a table, the column of its images, and another one that stands for a label."""
    if path.suffix.casefold() in (".parquet", ".pq"):
        try:
            schema = pq.read_schema(path)
        except (pa.ArrowException, OSError) as err:
            raise DataError(f"this Parquet file cannot be read ({err})", where=str(path)) from err
        for field in schema:
            struct = pa.types.is_struct(field.type) and field.type.get_field_index("bytes") >= 0
            if struct or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                others = [name for name in schema.names if name != field.name]
                if not others:
                    raise DataError(
                        "this Parquet file has no column beside its images",
                        where=str(path),
                        hint="Add one that names each image.",
                    )
                return "parquet", field.name, others[0]
    image = optional(None, PATH_NAMES, read_table(path), "data.image", path)
    if image is None:
        raise DataError(
            "no column looks like images",
            where=str(path),
            hint=f"Call it one of {', '.join(PATH_NAMES)}, or add --set data.image=COLUMN.",
        )
    return "manifest", image, image


def _loose(path: Path) -> Records | None:
    """Image files as they lie, or None where `path` is a table, an archive or a known layout."""
    if path.is_file():
        if is_picture(path):
            return Records([Record(path.name, path, None)])
        return _scans([path], path.parent) if is_dicom(path) else None
    files = walk(path)
    found = [file for file in files if is_picture(file)]
    if not found:
        scans = [file for file in files if is_dicom(file)]
        return _scans(scans, path) if scans else None
    sentence = "is no image by its name and is left out"
    others = [relative(file, path) for file in files if not is_picture(file)]
    problems = tuple(Problem(name, "suspicious", sentence) for name in others)
    return Records([Record(relative(f, path), f, None) for f in found], problems=problems)


def _scans(files: list[Path], root: Path) -> Records:
    """DICOM files without a table; what decodes them is that source's own pair of functions."""
    dicom.library()
    decoder = Decoder(dicom._probe, dicom._picture)
    return Records([Record(relative(f, root), f, None) for f in files], decoder=decoder)
