"""CIFAR-10 and CIFAR-100 as they lie on disk, in the binary version."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Record, Records
from vitrail.data.sources.listing import find_root
from vitrail.errors import DataError
from vitrail.rng import Key

_PIXELS = 3 * 32 * 32


@SOURCES.register("cifar10")
def cifar10(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """`data_batch_1.bin` ... `data_batch_5.bin` and `test_batch.bin`: label, then pixels."""
    root = _root(path, "data_batch_1.bin", "data_batch_1", "CIFAR-10")
    train = sorted(root.glob("data_batch_*.bin"))
    files = [(file, "train") for file in train] + [(root / "test_batch.bin", "test")]
    names = _names(
        root / "batches.meta.txt", "airplane automobile bird cat deer dog frog horse ship truck"
    )
    rows, _ = _read(files, 1, 0)
    return Records(rows, names, files=tuple(file for file, _ in files))


@SOURCES.register("cifar100")
def cifar100(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """`train.bin` and `test.bin`: coarse label, fine label, pixels.

    The fine label is used unless `data.label` is "coarse"; the other one is the extra column.
    """
    root = _root(path, "train.bin", "train", "CIFAR-100")
    files = [(root / "train.bin", "train"), (root / "test.bin", "test")]
    coarse = data.label == "coarse"
    rows, heads = _read(files, 2, 0 if coarse else 1)
    names = _names(root / f"{'coarse' if coarse else 'fine'}_label_names.txt", "")
    other = {"fine" if coarse else "coarse": heads[:, 1 if coarse else 0].tolist()}
    return Records(rows, names, files=tuple(file for file, _ in files), columns=other)


def _root(path: Path, mark: str, pickled: str, title: str) -> Path:
    root = find_root(path, mark)
    if root is not None:
        return root
    if find_root(path, pickled) is not None:
        raise DataError(
            f"this is the Python version of {title}, which is pickle and can run code",
            where=str(path),
            hint="Use the binary version, the archive that is called `-binary`.",
        )
    raise DataError(f"there is no {mark} here, so this is not {title}", where=str(path))


def _names(path: Path, default: str) -> tuple[str, ...] | None:
    if path.is_file():
        default = path.read_text(encoding="utf-8", errors="replace")
    names = tuple(default.split())
    return names or None


def _read(
    files: list[tuple[Path, str]], head: int, which: int
) -> tuple[list[Record], np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """All records of all files; a file whose length does not fit is cut off or something else."""
    rows: list[Record] = []
    heads = [np.zeros((0, head), np.uint8)]
    for file, split in files:
        if not file.is_file():
            continue
        raw = np.fromfile(file, np.uint8)
        if len(raw) == 0 or len(raw) % (head + _PIXELS):
            raise DataError(
                f"is cut off: its {len(raw)} bytes are no multiple of {head + _PIXELS}",
                where=str(file),
            )
        table = raw.reshape(-1, head + _PIXELS)
        images = table[:, head:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        labels = table[:, which].tolist()
        heads.append(table[:, :head])
        rows += [
            Record(f"{file.name}[{i}]", images[i], label, split=split)
            for i, label in enumerate(labels)
        ]
    return rows, np.concatenate(heads)
