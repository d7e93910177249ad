"""Tiny-ImageNet as it lies on disk: `train/nXXXX/images`, `val/val_annotations.txt`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Box, Record, Records
from vitrail.data.sources.listing import find_root, list_pictures, list_subfolders, make_relative
from vitrail.data.sources.word_lines import read_lines
from vitrail.errors import DataError
from vitrail.rng import Key


@SOURCES.register("tiny-imagenet")
def tiny_imagenet(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Training images by folder, validation images (the test part) by their annotation file.

    Classes are named by the first word of `words.txt`, in the order of their WordNet ids.
    """
    root = find_root(path, "train", "val/val_annotations.txt")
    if root is None:
        raise DataError("there is no train folder with a val/val_annotations.txt", where=str(path))
    folders = list_subfolders(root / "train")
    if not folders:
        raise DataError("there are no class folders here", where=str(root / "train"))
    words = _words(root, [folder.name for folder in folders])
    rows = [
        row for folder in folders for row in _read_train_images(root, folder, words[folder.name])
    ]
    for cells in read_lines(root / "val" / "val_annotations.txt", 2):
        image = root / "val" / "images" / cells[0]
        label = words.get(cells[1], cells[1])
        rows.append(
            Record(make_relative(image, root), image, label, split="test", box=_box(cells[2:6]))
        )
    return Records(rows, tuple(words[folder.name] for folder in folders))


def _read_train_images(root: Path, folder: Path, label: str) -> list[Record]:
    listed = folder / f"{folder.name}_boxes.txt"
    boxes = {c[0]: _box(c[1:5]) for c in read_lines(listed, 5)} if listed.is_file() else {}
    images = list_pictures(folder / "images")
    return [
        Record(make_relative(p, root), p, label, split="train", box=boxes.get(p.name))
        for p in images
    ]


def _words(root: Path, ids: list[str]) -> dict[str, str]:
    """A readable name per WordNet id; two ids with one name keep the id behind it."""
    named: dict[str, str] = {}
    if (root / "words.txt").is_file():
        for line in (root / "words.txt").read_text(encoding="utf-8", errors="replace").splitlines():
            wnid, _, text = line.partition("\t")
            named[wnid] = text.split(",")[0].strip()
    names = {wnid: named.get(wnid) or wnid for wnid in ids}
    counts = Counter(names.values())
    return {wnid: f"{n} ({wnid})" if counts[n] > 1 else n for wnid, n in names.items()}


def _box(cells: list[str]) -> Box | None:
    if len(cells) < 4:
        return None
    x0, y0, x1, y1 = (float(cell) for cell in cells)
    return (x0, y0, x1, y1)
