"""How well the audit's box fits a mark whose region is known: no training, no features.

`python -m experiments.tables.place_table FOLDER [dev]` prints it. FOLDER has the real images.
All choices of `tight_place.py` were made on the development marks and sources (`dev`); the table is
of marks and sources that were not looked at.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from experiments.tables.audit_bank import SOURCES
from experiments.tables.markdown import to_markdown
from vitrail.audit.counterfactual.overlap import iou
from vitrail.audit.detection.feature_layout import Share
from vitrail.audit.detection.tight_place import find_tight_place
from vitrail.config.load import parse
from vitrail.config.schema import Bias
from vitrail.data.bias.marks import stamp
from vitrail.data.load_images import load_with_problems
from vitrail.metrics.binomial import exact_interval
from vitrail.rng import Key, derive_server_key

DEVELOPMENT = (
    ("patch", "emoji", "text", "ruler", "electrode", "tape"), ("cifar10", "nih_chest", "aviary")
)  # fmt: skip
REPORTED = (
    ("cross", "ring", "barcode", "triangle", "code"), ("cub50", "smiles", "tiny_imagenet20")
)  # fmt: skip
_LENGTH = {"ruler": 4.0, "tape": 2.0}  # as many times as high
AREAS, SHARES = (0.005, 0.01, 0.02, 0.04), (1.0, 0.5)
_LIMIT = 700
_UNMARKED = 40  # classes without a mark, a source
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Fit:
    """One class of one site: what was drawn, and how the box fits."""

    kind: str
    area: float
    share: float
    known: bool  # whether the coarse cell was given
    center: bool
    overlap: float
    is_mark: bool


def load_source(name: str, folder: Path) -> tuple[Pixels, npt.NDArray[np.int64]]:
    """Images and labels of one source."""
    data: dict[str, Any] = {"source": "parquet", **SOURCES[name]}
    data |= {"duplicates": "ignore", "conflicts": "allow", "limit": _LIMIT}
    if "path" in data:
        data["path"] = str(folder / data["path"])
    loaded = parse({"data": data})
    images = load_with_problems(loaded.config.data, loaded.base, derive_server_key(1).at(name))[0]
    return np.array(images.images), images.labels


def draw_site(images: Pixels, labels: npt.NDArray[np.int64], key: Key) -> tuple[Pixels, Pixels]:
    """12 to 49 images of one class, and 40 to 149 of others."""
    draw = key.at("site").numpy()
    label = int(draw.integers(0, labels.max() + 1))
    rows = draw.permutation(np.flatnonzero(labels == label))[: int(draw.integers(12, 50))]
    rest = draw.permutation(np.flatnonzero(labels != label))[: int(draw.integers(40, 150))]
    return np.array(images[rows]), images[rest]


def draw_cell(box: npt.NDArray[np.float32], height: int, width: int, key: Key) -> Share:
    """A window of 1 or 2 of 5 x 5 to 8 x 8 cells that holds the mark's center."""
    draw = key.at("cell").numpy()
    cells, side = int(draw.integers(5, 9)), int(draw.integers(1, 3))
    at = [(box[0] + box[2]) / 2 / width, (box[1] + box[3]) / 2 / height]
    x, y = (int(np.clip(int(v * cells), 0, cells - side)) for v in at)
    return x / cells, y / cells, (x + side) / cells, (y + side) / cells


def draw_shape(name: str, side: int) -> npt.NDArray[np.float64]:
    """How opaque a shape is that occurs nowhere else in this project, [side, side] in 0..1."""
    fine = 8 * side
    picture = Image.new("L", (fine, fine))
    pen = ImageDraw.Draw(picture)
    if name == "cross":
        third = fine // 3
        pen.rectangle((third, 0, 2 * third, fine), fill=255)
        pen.rectangle((0, third, fine, 2 * third), fill=255)
    elif name == "ring":
        pen.ellipse((0, 0, fine - 1, fine - 1), outline=255, width=fine // 5)
    elif name == "barcode":
        for at, width in ((0, 1), (2, 2), (5, 1), (7, 1), (9, 3), (13, 1), (15, 1)):
            pen.rectangle((at * fine // 16, 0, (at + width) * fine // 16 - 1, fine), fill=255)
    elif name == "triangle":  # lets half of the light through
        pen.polygon([(0, fine - 1), (fine - 1, fine - 1), (fine // 2, 0)], fill=128)
    else:  # a code of three signs
        pen.text((0, 0), "7R3", fill=255, font=ImageFont.load_default(fine // 2))
        picture = picture.crop(picture.getbbox()).resize((fine, fine))
    return np.asarray(picture.resize((side, side), Image.Resampling.BOX), np.float64) / 255


def put_shape(
    images: Pixels, name: str, area: float, at: tuple[float, float], color: tuple[int, ...]
) -> npt.NDArray[np.float32]:
    """Draw a shape into images, in place; its box in each."""
    height, width, channels = images.shape[1:]
    side = max(2, round(math.sqrt(area * height * width)))
    x, y = (int(np.clip(round(v * n - side / 2), 0, n - side)) for v, n in zip(at, (width, height)))
    cover = draw_shape(name, side)[:, :, None]
    paint = np.array(color if channels == 3 else [np.mean(color)], np.float64)
    part = images[:, y : y + side, x : x + side]
    images[:, y : y + side, x : x + side] = np.rint(cover * paint + (1 - cover) * part)
    return np.tile(np.array([x, y, x + side, y + side], np.float32), (len(images), 1))


def fit_marks(
    kinds: Sequence[str], sources: Sequence[str], folder: Path, repeats: int
) -> Iterator[Fit]:
    """Every mark on every source, its box sought around a coarse cell and in the whole image."""
    for source in sources:
        images, labels = load_source(source, folder)
        for kind in kinds:
            for area in AREAS:
                for share in SHARES:
                    for repeat in range(repeats):
                        key = derive_server_key(11).at(source, kind, str((area, share)), repeat)
                        yield from _fit_mark(images, labels, kind, area, share, key)


def _fit_mark(
    images: Pixels, labels: npt.NDArray[np.int64], kind: str, area: float, share: float, key: Key
) -> Iterator[Fit]:
    own, rest = draw_site(images, labels, key)
    draw = key.at("mark").numpy()
    x, y = (float(v) for v in draw.uniform(0.05, 0.95, 2))
    color = tuple(int(v) for v in draw.integers(0, 256, 3))
    marked = int(share * len(own) + 0.5)
    if kind in DEVELOPMENT[0]:
        size = math.sqrt(area * _LENGTH.get(kind, 1.0))
        bias = Bias(kind=kind, size=min(1.0, size), position=(x, y), color=color)
        own[:marked], boxes = stamp(own[:marked], bias, key.at("stamp"), np.arange(marked))
    else:
        boxes = put_shape(own[:marked], kind, area, (x, y), color)
    own = own[key.at("order").numpy().permutation(len(own))]
    truth = tuple(round(float(v)) for v in boxes[0])
    height, width = own.shape[1:3]
    for cell in (draw_cell(boxes[0], height, width, key), None):
        tight = find_tight_place(own, rest, cell)
        box = (0, 0, 0, 0) if tight is None else tight.box
        middle = ((box[0] + box[2]) / 2, (box[1] + box[3]) / 2)
        inside = truth[0] <= middle[0] <= truth[2] and truth[1] <= middle[1] <= truth[3]
        yield Fit(
            kind, area, share, cell is not None, tight is not None and inside,
            iou(box, (truth[0], truth[1], truth[2], truth[3])),
            tight is not None and tight.is_mark,
        )  # fmt: skip


def count_false_marks(sources: Sequence[str], folder: Path) -> tuple[int, int]:
    """Classes without any mark in which one is seen, of how many."""
    seen = 0
    for source in sources:
        images, labels = load_source(source, folder)
        for number in range(_UNMARKED):
            own, rest = draw_site(images, labels, derive_server_key(12).at(source, number))
            tight = find_tight_place(own, rest)
            seen += tight is not None and tight.is_mark
    return seen, _UNMARKED * len(sources)


def print_table(fits: Sequence[Fit]) -> None:
    """Rows by area and share, columns by whether the coarse cell is known."""
    rows = []
    groups: list[tuple[str, list[Fit]]] = [("all", list(fits))]
    groups += [
        (kind, [f for f in fits if f.kind == kind]) for kind in sorted({f.kind for f in fits})
    ]
    groups += [(f"{area:.1%}", [f for f in fits if f.area == area]) for area in AREAS]
    groups += [(f"share {share:g}", [f for f in fits if f.share == share]) for share in SHARES]
    for name, group in groups:
        cells = [name, str(len(group) // 2)]
        for known in (True, False):
            part = [f for f in group if f.known == known]
            cells.append(f"{np.mean([f.center for f in part]):.0%}")
            cells.append(f"{np.median([f.overlap for f in part]):.2f}")
        cells.append(f"{np.mean([f.is_mark for f in group if not f.known]):.0%}")
        rows.append(cells)
    head = ["marks", "classes", "center in", "overlap", "center in, anywhere", "overlap, anywhere"]
    print(to_markdown([*head, "seen as a mark"], rows))


def main(folder: Path, development: bool, repeats: int) -> None:
    """Print the table, and how often a mark is seen where there is none."""
    kinds, sources = DEVELOPMENT if development else REPORTED
    print_table(list(fit_marks(kinds, sources, folder, repeats)))
    seen, count = count_false_marks(sources, folder)
    low, high = exact_interval(seen, count)
    print(f"\na mark seen in {seen} of {count} classes without one ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "dev" in sys.argv[2:], 2)
