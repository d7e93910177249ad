"""CUB-200-2011 as it lies on disk, with its boxes and part locations."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Box, Point, Record, Records
from vitrail.data.sources.listing import find_root
from vitrail.data.sources.word_lines import read_lines
from vitrail.errors import DataError
from vitrail.rng import Key


@SOURCES.register("cub200")
def cub200(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """`images.txt` and the files beside it, which name images by number."""
    root = find_root(path, "images.txt", "image_class_labels.txt")
    if root is None:
        raise DataError("there is no images.txt with an image_class_labels.txt", where=str(path))
    names = _class_names(root)
    labels = _column(root / "image_class_labels.txt")
    splits = _column(root / "train_test_split.txt")
    boxes = _boxes(root / "bounding_boxes.txt")
    parts = _parts(root / "parts" / "part_locs.txt")
    rows = []
    for number, file in read_lines(root / "images.txt", 2, 2):
        train = splits.get(number)
        rows.append(
            Record(
                file,
                root / "images" / file,
                names.get(labels.get(number, ""), labels.get(number)),
                split=None if train is None else ("train" if train == "1" else "test"),
                box=boxes.get(number),
                parts=parts.get(number),
            )
        )
    return Records(rows, tuple(names.values()) or None)


def _class_names(root: Path) -> dict[str, str]:
    """Names by number, without the number in front unless two would then be equal."""
    full = _column(root / "classes.txt")
    short = {number: name.split(".", 1)[-1] for number, name in full.items()}
    return short if len(set(short.values())) == len(short) else full


def _column(path: Path) -> dict[str, str]:
    return {line[0]: line[1] for line in read_lines(path, 2, 2)} if path.is_file() else {}


def _boxes(path: Path) -> dict[str, Box]:
    boxes: dict[str, Box] = {}
    for number, *cells in read_lines(path, 5) if path.is_file() else ():
        x, y, width, height = (float(cell) for cell in cells[:4])
        boxes[number] = (x, y, x + width, y + height)
    return boxes


def _parts(path: Path) -> dict[str, tuple[Point, ...]]:
    points: dict[str, dict[int, Point]] = defaultdict(dict)
    for number, part, x, y, visible in read_lines(path, 5) if path.is_file() else ():
        points[number][int(part)] = (float(x), float(y)) if visible == "1" else None
    count = max((max(known) for known in points.values()), default=0)
    return {n: tuple(known.get(i) for i in range(1, count + 1)) for n, known in points.items()}
