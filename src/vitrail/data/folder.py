"""A folder per class, with `train` and `test` folders above them if there are any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.listing import PICTURE_SUFFIXES, loose_files, relative, subfolders, walk
from vitrail.data.records import Problem, Record, Records
from vitrail.data.source import SOURCES
from vitrail.data.split import SPLIT_WORDS
from vitrail.errors import DataError
from vitrail.rng import Key


def is_picture(path: Path) -> bool:
    """Whether a file's name is that of an image."""
    return path.suffix.casefold() in PICTURE_SUFFIXES


@SOURCES.register("folder")
def folder(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Images whose label is the name of the folder they lie in."""
    return class_folders(path, is_picture)


def class_folders(path: Path, wanted: Callable[[Path], bool]) -> Records:
    """All files that are `wanted` below class folders; what is left out is told."""
    if not path.is_dir():
        raise DataError("is a file, not a folder of class folders", where=str(path))
    rows: list[Record] = []
    problems: list[Problem] = []
    for split, top in split_folders(path):
        for file in loose_files(top):
            if wanted(file):
                sentence = "lies beside the class folders and has no class"
                problems.append(Problem(relative(file, path), "suspicious", sentence))
        for class_folder in subfolders(top):
            found, skipped = _one_class(class_folder, wanted, path)
            rows += [Record(relative(f, path), f, class_folder.name, split=split) for f in found]
            problems += skipped
    if not rows:
        loose = any(wanted(file) for file in loose_files(path))
        raise DataError(
            "there are images here, but no class folders" if loose else "there are no images here",
            where=str(path),
            hint="Make one folder per class, or write a manifest with the columns path and label.",
        )
    return Records(rows, problems=tuple(problems))


def split_folders(path: Path) -> list[tuple[str | None, Path]]:
    """The folders that hold class folders, each with the name of its split."""
    inside = subfolders(path)
    named = inside and all(p.name.casefold() in SPLIT_WORDS for p in inside)
    if named and any(subfolders(p) for p in inside):
        return [(p.name.casefold(), p) for p in inside]
    return [(None, path)]


def _one_class(
    top: Path, wanted: Callable[[Path], bool], root: Path
) -> tuple[list[Path], list[Problem]]:
    files = walk(top)
    found = [file for file in files if wanted(file)]
    problems = [
        Problem(relative(file, root), "suspicious", "is no image by its name and is left out")
        for file in files
        if not wanted(file)
    ]
    if not found:
        sentence = "this class folder holds no image"
        problems.append(Problem(relative(top, root), "suspicious", sentence))
    return found, problems
