"""Equal and nearly equal images, and patients on both sides of a split, named one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitrail.config.schema import Data
from vitrail.data.near_duplicates import Bytes, find_equal, find_near_pairs, join_groups
from vitrail.data.records import Problem, Record

_NAMED = 3  # patients


def find_duplicates(
    places: Sequence[int],
    digests: Sequence[bytes],
    thumbnails: Sequence[Bytes],
    rows: Sequence[Record],
    labels: Mapping[int, str],
    splits: Sequence[str | None],
    data: Data,
) -> list[Problem]:
    """Every image that equals an earlier one, or nearly, and what the two do not agree on.

    `places` are the rows that the digests and thumbnails are of.
    """
    if not places:
        return []
    first = find_equal(digests)
    unique = np.unique(first)
    near = unique[find_near_pairs(np.stack([thumbnails[i] for i in unique]))]
    groups = join_groups(len(first), near, np.stack([first, np.arange(len(first))], 1))
    leader = find_equal(str(group).encode() for group in groups.tolist())
    problems = []
    for at in np.flatnonzero(leader != np.arange(len(leader))).tolist():
        equal = first[at] != at
        one, other = places[at], places[int(first[at] if equal else leader[at])]
        clash = equal and labels.get(one) != labels.get(other) and data.conflicts == "stop"
        sentence = f"is {'the same' if equal else 'nearly the same'} image as {rows[other].name}"
        sentence += _describe_differences(one, other, rows, labels, splits)
        problems.append(Problem(rows[one].name, "conflict" if clash else "duplicate", sentence))
    return problems


def _describe_differences(
    one: int,
    other: int,
    rows: Sequence[Record],
    labels: Mapping[int, str],
    splits: Sequence[str | None],
) -> str:
    text = ""
    if labels.get(one) != labels.get(other):
        text += f", with another label ({labels.get(one)}, not {labels.get(other)})"
    if rows[one].patient != rows[other].patient:
        text += ", of another patient"
    if rows[one].site != rows[other].site:
        text += f", at another site ({rows[one].site}, not {rows[other].site})"
    if splits[one] != splits[other]:
        text += ", in another split"
    return text


def find_split_patients(rows: Sequence[Record], splits: Sequence[str | None]) -> list[Problem]:
    """The patients whom the data itself puts on both sides: a run would stop at them."""
    sides: dict[str, set[str | None]] = {}
    for row, split in zip(rows, splits):
        if row.patient is not None and row.patient.strip():
            sides.setdefault(row.patient, set()).add(split)
    both = {patient for patient, seen in sides.items() if len(seen) > 1}
    if not both:
        return []
    named = [row.name for row in rows if row.patient in both][:_NAMED]
    sentence = (
        f"{len(both)} patients have images in both train and test: those of {', '.join(named)}"
        f"{', ...' if len(both) > _NAMED else ''}"
    )
    return [Problem("split", "label", sentence)]
