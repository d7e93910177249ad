"""What a site sees for itself: whether the model it just received has unlearned a class.

The figures stay at the site. A drop can have honest reasons, and a hostile coordinator or site is
one of the others.
"""

from __future__ import annotations

import json
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.files import report_write_errors

CLASS_WATCH_FILE = "class-watch.jsonl"
LARGEST_CHANCE = 0.001
"""A drop is told where chance makes one as large this rarely, class by class."""
_LEAST_DROP, _LOOK_BACK = 0.25, 3


def watch_classes(
    folder: Path,
    round_: int,
    labels: npt.NDArray[np.int64],
    guessed: npt.NDArray[np.int64],
    classes: tuple[str, ...],
) -> list[str]:
    """Write down how many images of each class are right, and say which classes have dropped.

    A young model swings from class to class, so a drop is one below the worst of the last three
    models before it.
    """
    count = np.bincount(labels, minlength=len(classes))
    right = np.bincount(labels[labels == guessed], minlength=len(classes))
    before = [line["right"] for line in read_watch(folder) if _comes_before(line, round_, count)]
    drops = []
    if len(before) >= _LOOK_BACK:
        worst = np.array(before[-_LOOK_BACK:]).min(0)
        for name, was, now, total in zip(classes, worst.tolist(), right.tolist(), count.tolist()):
            if is_sudden_drop(was, now, total):
                drops.append(f"{name}: {was} of {total} right before, {now} now")
    line = {"round": round_, "right": right.tolist(), "count": count.tolist(), "drops": drops}
    path = folder / CLASS_WATCH_FILE
    with report_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
    return drops


def _comes_before(line: dict[str, Any], round_: int, count: npt.NDArray[np.int64]) -> bool:
    """Whether a line is of an earlier model on the same images."""
    return bool(line["round"] < round_ and line["count"] == count.tolist())


def is_sudden_drop(before: int, now: int, total: int) -> bool:
    """Whether so many fewer of the same images are right as chance hardly explains (Fisher 1935,
    one-sided), and a quarter of them at least."""
    if total == 0 or before - now < _LEAST_DROP * total:
        return False
    right = before + now
    ways = sum(
        comb(total, k) * comb(total, right - k) for k in range(max(0, right - total), now + 1)
    )
    return ways / comb(2 * total, right) <= LARGEST_CHANCE


def read_watch(folder: Path) -> list[dict[str, Any]]:
    """What a site has seen, round by round; a torn line is left out."""
    path, lines = folder / CLASS_WATCH_FILE, []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines
