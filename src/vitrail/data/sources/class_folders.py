"""A folder per class, with folders for sites and for `train` and `test` above if there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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

Layout = Literal["auto", "class", "site/class"]
_SHOWN = 5


def is_picture(path: Path) -> bool:
    """Whether a file's name is that of an image."""
    return path.suffix.casefold() in PICTURE_SUFFIXES


@SOURCES.register("folder")
def folder(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Images whose label is the name of the folder they lie in."""
    return read_class_folders(path, is_picture, data.folders)


def read_class_folders(
    path: Path, wanted: Callable[[Path], bool], layout: Layout = "class"
) -> Records:
    """All files that are `wanted` below class folders; what is left out is told."""
    if not path.is_dir():
        raise DataError("is a file, not a folder of class folders", where=str(path))
    if layout == "auto":
        _refuse_site_folders(path, wanted)
    rows: list[Record] = []
    problems: list[Problem] = []
    for site, split, top in _find_tops(path, layout):
        for file in list_loose_files(top):
            if wanted(file):
                sentence = "lies beside the class folders and has no class"
                problems.append(Problem(make_relative(file, path), "suspicious", sentence))
        for class_folder in list_subfolders(top):
            files, skipped = _read_class(class_folder, wanted, path)
            name = class_folder.name
            rows += [Record(make_relative(f, path), f, name, site, split=split) for f in files]
            problems += skipped
    if not rows:
        loose = any(wanted(file) for file in list_loose_files(path))
        raise DataError(
            "there are images here, but no class folders" if loose else "there are no images here",
            where=str(path),
            hint="Make one folder per class, or write a manifest with the columns path and label.",
        )
    return Records(rows, problems=tuple(problems))


def _find_tops(path: Path, layout: Layout) -> list[tuple[str | None, str | None, Path]]:
    """Site, split and folder of everything that holds class folders; a split may lie above the
    sites or below them."""
    tops = find_split_folders(path)
    if layout != "site/class":
        return [(None, split, top) for split, top in tops]
    return [
        (site.name, split or below, folder)
        for split, top in tops
        for site in list_subfolders(top)
        for below, folder in find_split_folders(site)
    ]


@dataclass(frozen=True)
class SharedFolders:
    """Folders that hold the same folders inside: sites with classes, by the look of it."""

    outer: tuple[str, ...]
    inner: tuple[str, ...]

    def describe(self) -> str:
        """One sentence."""
        return (
            f"the folders {_list_names(self.outer)} hold the same folders inside "
            f"({_list_names(self.inner)})"
        )


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def find_site_folders(path: Path, wanted: Callable[[Path], bool]) -> SharedFolders | None:
    """The folders whose images all lie in folders of their own, most of which have the same names.

    None where the folders are what they seem: classes.
    """
    inside: dict[str, set[str]] = {}
    for _, parent in find_split_folders(path):
        for outer in list_subfolders(parent):
            names = inside.setdefault(outer.name, set())
            for _, top in find_split_folders(outer):
                if any(wanted(file) for file in list_loose_files(top)):
                    return None
                names |= {f.name for f in list_subfolders(top) if any(map(wanted, walk(f)))}
    counts = Counter(name for names in inside.values() for name in names)
    shared = sorted(name for name, count in counts.items() if count > 1)
    mostly = 2 * sum(counts[name] for name in shared) >= sum(counts.values())
    if len(shared) < 2 or not mostly or all(name.casefold() in SPLIT_WORDS for name in shared):
        return None
    return SharedFolders(tuple(name for name, names in inside.items() if names), tuple(shared))


def _refuse_site_folders(path: Path, wanted: Callable[[Path], bool]) -> None:
    shared = find_site_folders(path, wanted)
    if shared is not None:
        raise DataError(
            f"{shared.describe()}: are they sites, or classes?",
            where=str(path),
            hint='Set data.folders = "site/class", or "class" if the outer folders are classes.',
        )


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
