"""Which files lie in a folder: sorted, hidden ones left out, symlink loops followed once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_PHOTOS = (".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp", ".jp2")
PICTURE_SUFFIXES = frozenset({*_PHOTOS, ".tif", ".tiff", ".ppm", ".pgm"})
_CLUTTER = frozenset({"thumbs.db", "desktop.ini", "icon\r", "__macosx"})


def is_hidden(name: str) -> bool:
    """Whether an entry is hidden or left by a file manager."""
    return name.startswith(".") or name.casefold() in _CLUTTER


def walk(folder: Path) -> list[Path]:
    """All files under a folder, in the order of their paths; each real folder only once.

    A link to a folder above is not followed: it would bring in what belongs to other classes.
    """
    collected: list[Path] = []
    seen: set[str] = set()
    for top, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(top)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(n for n in folders if not is_hidden(n) and not _leads_up(top, n))
        collected += [Path(top, name) for name in files if not is_hidden(name)]
    return sorted(collected, key=lambda path: path.relative_to(folder).parts)


def _leads_up(top: str, name: str) -> bool:
    path = Path(top, name)
    return path.is_symlink() and path.resolve() in Path(top).resolve().parents


def list_pictures(folder: Path, suffixes: Iterable[str] = PICTURE_SUFFIXES) -> list[Path]:
    """All files under a folder whose names are those of images."""
    wanted = frozenset(suffixes)
    return [path for path in walk(folder) if path.suffix.casefold() in wanted]


def list_subfolders(folder: Path) -> list[Path]:
    """The visible folders directly inside a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not is_hidden(p.name))


def list_loose_files(folder: Path) -> list[Path]:
    """The visible files directly inside a folder, sorted by name."""
    return sorted(p for p in folder.iterdir() if p.is_file() and not is_hidden(p.name))


def make_relative(path: Path, root: Path) -> str:
    """A path as it is named in messages: relative to the root, with forward slashes.

    Bytes of a file name that are no UTF-8 become question marks, so that it can be printed.
    """
    return path.relative_to(root).as_posix().encode(errors="replace").decode()


def find_root(path: Path, *marks: str) -> Path | None:
    """The folder that holds all `marks`: `path` itself, or one folder below it."""
    if not path.is_dir():
        return None
    candidates = [path, *list_subfolders(path)]
    return next((c for c in candidates if all((c / mark).exists() for mark in marks)), None)
