"""CheXpert as it lies on disk: `train.csv`, `valid.csv`, 14 findings of 1, 0, -1 or blank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitrail.config.schema import Data
from vitrail.data.load_images import SOURCES
from vitrail.data.records import Problem, Record, Records
from vitrail.data.sources.csv_tables import Columns, read_csv, require_column
from vitrail.data.sources.listing import find_root
from vitrail.errors import DataError
from vitrail.rng import Key

_FACTS = {"Sex": "sex", "Age": "age", "Frontal/Lateral": "frontal_lateral", "AP/PA": "view"}
_PATIENT = re.compile(r"patient\d+")


@SOURCES.register("chexpert")
def chexpert(data: Data, path: Path, key: Key) -> Records:  # noqa: ARG001
    """A list of findings per X-ray, the patient out of its path.

    Uncertain findings (-1) count as absent; with `data.uncertain = "drop"` an X-ray on which
    `data.positive` is uncertain is left out.
    """
    root = find_root(path, "train.csv")
    if root is None:
        raise DataError("there is no train.csv here", where=str(path))
    rows: list[Record] = []
    problems: list[Problem] = []
    facts: dict[str, list[object]] = {name: [] for name in _FACTS.values()}
    for name, split in (("train.csv", "train"), ("valid.csv", "val")):
        if not (root / name).is_file():
            continue
        columns = read_csv(root / name)
        kept, dropped = _keep_certain(columns, data, root / name)
        if dropped:
            text = f"{dropped} X-rays are left out, because {data.positive} is uncertain on them"
            problems.append(Problem(name, "suspicious", text))
        rows += _rows(columns, kept, split, root, root / name)
        for column, short in _FACTS.items():
            values: Sequence[Any] = columns.get(column) or [None] * len(columns["Path"])
            facts[short] += [values[i] for i in kept]
    return Records(rows, problems=tuple(problems), columns=dict(facts))


def _keep_certain(columns: Columns, data: Data, table: Path) -> tuple[list[int], int]:
    count = len(columns[require_column("Path", columns, "the X-ray", table)])
    if data.uncertain != "drop" or data.positive is None:
        return list(range(count)), 0
    values = columns[require_column(data.positive, columns, "data.positive", table)]
    kept = [i for i in range(count) if _number(values[i], table) != -1]
    return kept, count - len(kept)


def _rows(columns: Columns, kept: list[int], split: str, root: Path, table: Path) -> list[Record]:
    findings = [name for name in columns if name and name != "Path" and name not in _FACTS]
    rows = []
    for i in kept:
        file = str(columns["Path"][i])
        positive = tuple(name for name in findings if _number(columns[name][i], table) == 1)
        patient = _PATIENT.search(file)
        who = patient.group() if patient else None
        rows.append(Record(file, _locate(root, file), positive, patient=who, split=split))
    return rows


def _number(cell: str | None, table: Path) -> float:
    try:
        return 0.0 if cell is None else float(cell)
    except ValueError:
        raise DataError(f"{cell!r} is no finding (1, 0, -1, blank)", where=str(table)) from None


def _locate(root: Path, file: str) -> Path:
    """The table's paths begin with the name of the release, which may be `root` or inside it."""
    inner = Path(*Path(file).parts[1:])
    candidates = (root / inner, root / file, root.parent / file)
    return next((path for path in candidates if path.is_file()), candidates[0])
