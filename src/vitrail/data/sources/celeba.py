"""CelebA as it lies on disk: one attribute is the label, the person is the patient."""

from __future__ import annotations

from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Record, Records
from vitrail.data.sources.csv_tables import read_csv, require_column
from vitrail.data.sources.listing import find_root
from vitrail.data.sources.word_lines import read_lines
from vitrail.errors import DataError
from vitrail.rng import Key

_SPLITS = {"0": "train", "1": "val", "2": "test"}
_FOLDERS = ("img_align_celeba", "img_align_celeba/img_align_celeba", "images", "img_celeba")


@SOURCES.register("celeba")
def celeba(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """Faces with and without the attribute that `data.label` names, such as "Smiling"."""
    root = find_root(path, "list_attr_celeba.txt") or find_root(path, "list_attr_celeba.csv")
    if root is None:
        raise DataError("there is no list_attr_celeba.txt or .csv here", where=str(path))
    labels = _attribute(root, data.label)
    people = _pairs(root / "identity_CelebA")
    parts = _pairs(root / "list_eval_partition")
    folder = next((root / f for f in reversed(_FOLDERS) if (root / f).is_dir()), root)
    if (root / _FOLDERS[1]).is_dir():
        folder = root / _FOLDERS[1]
    rows = []
    for name, has in labels.items():
        label = data.label if has == "1" else f"not {data.label}"
        split = _SPLITS.get(parts.get(name, ""))
        rows.append(Record(name, folder / name, label, patient=people.get(name), split=split))
    return Records(rows, (f"not {data.label}", data.label))


def _attribute(root: Path, wanted: str) -> dict[str, str]:
    """File name to "1" or "-1" of one attribute."""
    table = root / "list_attr_celeba.csv"
    if table.is_file():
        columns = read_csv(table)
        require_column(wanted, list(columns)[1:], "data.label", table)
        files = next(iter(columns.values()))
        return {str(name): str(has) for name, has in zip(files, columns[wanted])}
    text = root / "list_attr_celeba.txt"
    lines = read_lines(text, 1)
    if len(lines) < 3:
        raise DataError(
            "is too short: a count, the attributes, then one line a face", where=str(text)
        )
    place = lines[1].index(require_column(wanted, lines[1], "data.label", text)) + 1
    if any(len(line) != len(lines[1]) + 1 for line in lines[2:]):
        raise DataError(f"not every line has {len(lines[1])} attributes", where=str(text))
    return {line[0]: line[place] for line in lines[2:]}


def _pairs(stem: Path) -> dict[str, str]:
    """A two-column file, .txt or .csv; empty if there is none."""
    if stem.with_suffix(".txt").is_file():
        return {line[0]: line[1] for line in read_lines(stem.with_suffix(".txt"), 2)}
    if stem.with_suffix(".csv").is_file():
        first, second = list(read_csv(stem.with_suffix(".csv")).values())[:2]
        return {str(name): str(value) for name, value in zip(first, second)}
    return {}
