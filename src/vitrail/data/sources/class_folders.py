"""A folder per class, with `train` and `test` folders above them if there are any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Problem, Record, Records
from vitrail.data.sources.listing import (
    PICTURE_SUFFIXES,
    list_loose_files,
    list_subfolders,
    make_relative,
    walk,
)
from vitrail.data.split import SPLIT_WORDS
from vitrail.errors import DataError
from vitrail.rng import Key


def is_picture(path: Path) -> bool:
    """Whether a file's name is that of an image."""
    return path.suffix.casefold() in PICTURE_SUFFIXES


@SOURCES.register("folder")
def folder(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Images whose label is the name of the folder they lie in."""
    return read_class_folders(path, is_picture)


def read_class_folders(path: Path, wanted: Callable[[Path], bool]) -> Records:
    """All files that are `wanted` below class folders; what is left out is told."""
    if not path.is_dir():
        raise DataError("is a file, not a folder of class folders", where=str(path))
    rows: list[Record] = []
    problems: list[Problem] = []
    for split, top in find_split_folders(path):
        for file in list_loose_files(top):
            if wanted(file):
                sentence = "lies beside the class folders and has no class"
                problems.append(Problem(make_relative(file, path), "suspicious", sentence))
        for class_folder in list_subfolders(top):
            files, skipped = _read_class(class_folder, wanted, path)
            rows += [
                Record(make_relative(f, path), f, class_folder.name, split=split) for f in files
            ]
            problems += skipped
    if not rows:
        loose = any(wanted(file) for file in list_loose_files(path))
        raise DataError(
            "there are images here, but no class folders" if loose else "there are no images here",
            where=str(path),
            hint="Make one folder per class, or write a manifest with the columns path and label.",
        )
    return Records(rows, problems=tuple(problems))


def find_split_folders(path: Path) -> list[tuple[str | None, Path]]:
    """The folders that hold class folders, each with the name of its split."""
    inside = list_subfolders(path)
    named = inside and all(p.name.casefold() in SPLIT_WORDS for p in inside)
    if named and any(list_subfolders(p) for p in inside):
        return [(p.name.casefold(), p) for p in inside]
    return [(None, path)]


def _read_class(
    top: Path, wanted: Callable[[Path], bool], root: Path
) -> tuple[list[Path], list[Problem]]:
    files = walk(top)
    images = [file for file in files if wanted(file)]
    problems = [
        Problem(make_relative(file, root), "suspicious", "is no image by its name and is left out")
        for file in files
        if not wanted(file)
    ]
    if not images:
        sentence = "this class folder holds no image"
        problems.append(Problem(make_relative(top, root), "suspicious", sentence))
    return images, problems
