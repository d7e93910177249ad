"""Decoded images kept on disk, named by a digest of everything that determines them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail import files
from vitrail.config.schema import Data
from vitrail.data.records import ParquetImage, Problem, Record
from vitrail.data.shared_memory import SharedArray, ensure_cache_folder, get_cache_path

_VERSION = 3
_STALE_SECONDS = 24 * 3600
_OPTIONS = {"image_size", "channels", "resize", "max_pixels", "dicom", "bits"}


@dataclass(frozen=True)
class DecodedImages:
    """Pixels of the images that could be decoded: `kept` are their rows among those asked for."""

    images: npt.NDArray[np.uint8]
    kept: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int32]
    problems: tuple[Problem, ...]
    bits: int | None = None  # that deep images were read with; None where none is deep


def digest(rows: Iterable[Record], containers: Iterable[Path], data: Data) -> str:
    """Names the pixels: paths, lengths and times of the files, and the options that matter."""
    state = hashlib.blake2b(digest_size=16)
    options = data.model_dump_json(include=_OPTIONS)
    state.update(f"{_VERSION}\n{options}\n".encode())
    for path in containers:
        state.update(_stamp(path))
    for row in rows:
        state.update(row.name.encode(errors="surrogateescape") + b"\0")
        if isinstance(row.image, Path):
            state.update(_stamp(row.image))
        elif isinstance(row.image, ParquetImage):  # a file may hold several columns of images
            stored = f"{row.image.file}\0{row.image.column}\0{row.image.row}\n"
            state.update(stored.encode(errors="surrogateescape"))
    return state.hexdigest()


def _stamp(path: Path) -> bytes:
    try:
        stat = path.stat()
    except OSError:
        return b"missing\n"
    return f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode(
        errors="surrogateescape"
    )


def find(name: str) -> DecodedImages | None:
    """What was cached under this digest, as a read-only map; None if absent or damaged."""
    folder = get_cache_path()
    try:
        meta = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        shape = tuple(int(n) for n in meta["shape"])
        kept = np.array(meta["kept"], np.int64)
        sizes = np.array(meta["sizes"], np.int32).reshape(-1, 2)
        problems = tuple(Problem(**p) for p in meta["problems"])
        bits = meta["bits"]
        fd = os.open(folder / f"{name}.pixels", os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if os.fstat(fd).st_size != max(1, int(np.prod(shape))) or len(kept) != shape[0]:
        os.close(fd)
        return None
    pixels = SharedArray.from_descriptor(fd, shape, np.uint8).as_read_only()
    return DecodedImages(pixels, kept, sizes, problems, bits)  # type: ignore[arg-type]


@contextmanager
def open_temporary(shape: tuple[int, ...]) -> Iterator[tuple[SharedArray, Path]]:
    """A store over a temporary file of the cache folder; the file is removed unless it was kept."""
    folder = ensure_cache_folder()
    _remove_stale(folder)
    path = folder / f".{os.getpid()}-{secrets.token_hex(4)}.tmp"
    with files.report_write_errors(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        yield SharedArray.from_descriptor(fd, shape, np.uint8), path
    finally:
        path.unlink(missing_ok=True)


def keep(name: str, decoded: DecodedImages, temporary: Path) -> None:
    """Give a finished temporary file its name; the description comes last and makes it valid.

    Two processes that made the same pixels rename over each other, which changes nothing.
    """
    with files.report_write_errors(temporary):
        os.truncate(temporary, max(1, decoded.images.nbytes))
        temporary.replace(temporary.with_name(f"{name}.pixels"))
    meta = {
        "shape": decoded.images.shape,
        "kept": decoded.kept.tolist(),
        "sizes": decoded.sizes.tolist(),
        "problems": [asdict(p) for p in decoded.problems],
        "bits": decoded.bits,
    }
    description = temporary.with_suffix(".json.tmp")  # a name of its own for every writer
    files.write_json(description, meta)
    with files.report_write_errors(temporary):
        description.replace(temporary.with_name(f"{name}.json"))


def _remove_stale(folder: Path) -> None:
    """Remove what killed processes left more than a day ago."""
    for path in folder.glob(".*.tmp"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                path.unlink()
