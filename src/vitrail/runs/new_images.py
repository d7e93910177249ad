"""New images for an old run: where they are, and how they are read for its model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.config import parse
from vitrail.config.schema import Data
from vitrail.data.decoding.bit_depth import find_depth, fix_depth
from vitrail.data.decoding.decode import Decoder, Header, limit_pixels
from vitrail.data.decoding.decode_all import probe
from vitrail.data.image_set import ImageSet
from vitrail.data.inspect.guess import guess_data
from vitrail.data.load_images import read_source
from vitrail.data.records import Problem, Record, Records
from vitrail.data.sources import dicom
from vitrail.data.sources.class_folders import is_picture
from vitrail.data.sources.csv_tables import TABLE_SUFFIXES, find_column, read_table
from vitrail.data.sources.dicom import is_dicom
from vitrail.data.sources.listing import make_relative, walk
from vitrail.data.sources.manifest import PATH_NAMES
from vitrail.errors import ConfigError, DataError
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run

_READING = ("data.bits", "data.dicom.", "data.max_pixels")  # keys that say nothing of where
KEY = derive_server_key(0).at("new-data")


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
    start = _guess_section(run, path, asked)
    start = start.model_copy(update={"path": str(Path(start.path or path).resolve())})
    raw = {"data": start.model_dump(mode="json", exclude_none=True)}
    data = parse(raw, Path.cwd(), "--set", asked).config.data.model_copy(
        update=get_fixed_data_keys(run)
    )
    return _override(data, [text for text in asked if text.strip().startswith("data.bits")])


def _override(data: Data, asked: Sequence[str]) -> Data:
    """A section with `data.key=value` on top."""
    if not asked:
        return data
    raw = {"data": data.model_dump(mode="json", exclude_none=True)}
    return parse(raw, Path.cwd(), "--set", asked).config.data


def get_fixed_data_keys(run: Run) -> dict[str, object]:
    """The keys of `[data]` that the run's model fixes."""
    card = run.card
    return {
        "image_size": card["image_size"],
        "channels": card["channels"],
        "resize": card["resize"],
        "bits": card.get("bits", run.config.data.bits),
        "classes": None,
        "limit": None,
        "balance": False,
    }


def _guess_section(run: Run, path: Path, asked: list[str]) -> Data:
    """The guess, or the run's own section where both are of one kind."""
    trained = run.config.data
    keys = {text.partition("=")[0].strip() for text in asked}
    try:
        guessed = guess_data(path)
    except DataError:
        if "data.source" in keys:
            return Data(path=str(path))
        # The columns may have names that only the run's configuration or the user knows.
        if (
            trained.path is not None
            and Path(trained.path).suffix.casefold() == path.suffix.casefold()
        ):
            return _copy_own_section(trained, str(path))
        if "data.label" not in keys or path.suffix.casefold() not in TABLE_SUFFIXES:
            raise
        source, image, label = _find_image_column(path)
        return Data(source=source, path=str(path), image=image, label=label)
    return guessed if guessed.source != trained.source else _copy_own_section(trained, guessed.path)


def _copy_own_section(trained: Data, path: str | None) -> Data:
    """The run's own section for another path; where it named numbered classes, so do we."""
    numbers = {str(i): name for i, name in enumerate(trained.classes or ())}
    return trained.model_copy(update={"path": path, "rename": {**numbers, **trained.rename}})


def find_images(run: Run, path: Path, overrides: Iterable[str] = ()) -> tuple[Records, Data]:
    """Every image at `path`, labels or not: one file, a folder at any depth, or a data source."""
    asked = tuple(overrides)
    if not path.exists():
        raise DataError("there is nothing here", where=str(path), hint="Give a file or a folder.")
    plain = all(text.strip().startswith(_READING) for text in asked)
    loose = _find_loose_files(path) if plain else None
    if loose is not None:
        data = run.config.data.model_copy(update=get_fixed_data_keys(run))
        return loose, _settle_bits(loose, _override(data, asked))
    data = _describe_unlabelled(run, path, asked)
    source = read_source(data, Path.cwd(), KEY)
    if isinstance(source, ImageSet):
        rows = [Record(str(n), x, None) for n, x in zip(source.names, source.images)]
        return Records(rows), data
    return source, _settle_bits(source, data)


def find_payload(run: Run, record: Record) -> tuple[Records, Data]:
    """Bytes or an array as the only image of a source; bytes may be a DICOM file."""
    is_scan = isinstance(record.image, bytes) and record.image[128:132] == b"DICM"
    records = _make_scans([record]) if is_scan else Records([record])
    data = run.config.data.model_copy(update=get_fixed_data_keys(run))
    return records, _settle_bits(records, data)


def _settle_bits(records: Records, data: Data) -> Data:
    """How deep values are read where the run, having seen none, does not say: all alike."""
    if data.bits != "auto":
        return data
    heads = probe(records.rows, records.decoder, data)
    pairs = [(row, head) for row, head in zip(records.rows, heads) if isinstance(head, Header)]
    rows, good = [row for row, _ in pairs], [head for _, head in pairs]
    with limit_pixels(data.max_pixels):
        return fix_depth(data, find_depth(rows, good, records.decoder, data))


def describe_new_depth(run: Run, data: Data) -> str | None:
    """A sentence on how deep values are read, where training has not settled it."""
    if data.bits == "auto" or "bits" in run.card or run.config.data.bits != "auto":
        return None
    return (
        f"values of more than 8 bits were read as {data.bits} bits: the run itself saw none to "
        "compare with; --set data.bits=N says otherwise"
    )


def _describe_unlabelled(run: Run, path: Path, asked: tuple[str, ...]) -> Data:
    """`describe`, and for a table in which nothing looks like a label, any column in its place."""
    try:
        return describe(run, path, asked)
    except DataError:
        if path.suffix.casefold() not in TABLE_SUFFIXES or any("data.label" in a for a in asked):
            raise
        source, image, label = _find_image_column(path)
        data = Data(source=source, path=str(path.resolve()), image=image, label=label)
        return data.model_copy(update=get_fixed_data_keys(run))


def _find_image_column(path: Path) -> tuple[str, str, str]:
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
    image = find_column(None, PATH_NAMES, read_table(path), "data.image", path)
    if image is None:
        raise DataError(
            "no column looks like images",
            where=str(path),
            hint=f"Call it one of {', '.join(PATH_NAMES)}, or add --set data.image=COLUMN.",
        )
    return "manifest", image, image


def _find_loose_files(path: Path) -> Records | None:
    """Image files as they lie, or None where `path` is a table, an archive or a known layout."""
    if path.is_file():
        if is_picture(path):
            return Records([Record(path.name, path, None)])
        return _find_scans([path], path.parent) if is_dicom(path) else None
    files = walk(path)
    pictures = [file for file in files if is_picture(file)]
    if not pictures:
        scans = [file for file in files if is_dicom(file)]
        return _find_scans(scans, path) if scans else None
    sentence = "is no image by its name and is left out"
    others = [make_relative(file, path) for file in files if not is_picture(file)]
    problems = tuple(Problem(name, "suspicious", sentence) for name in others)
    return Records([Record(make_relative(f, path), f, None) for f in pictures], problems=problems)


def _find_scans(files: list[Path], root: Path) -> Records:
    """DICOM files without a table."""
    return _make_scans([Record(make_relative(f, root), f, None) for f in files])


def _make_scans(rows: list[Record]) -> Records:
    """DICOM images; what decodes them is that source's own pair of functions."""
    dicom.import_pydicom()
    return Records(rows, decoder=Decoder(dicom._probe, dicom._picture))
