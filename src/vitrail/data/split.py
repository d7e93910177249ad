"""The words that data sets use for their parts, brought to "train" and "test"."""

from __future__ import annotations

from collections.abc import Sequence

from vitrail.data.records import Problem
from vitrail.errors import DataError

_TRAIN = frozenset({"train", "training", "trn", "tr"})
_VALID = frozenset({"val", "valid", "validation", "validate", "dev"})
_TEST = frozenset({"test", "testing", "tst", "te", "eval", "evaluation"})
SPLIT_WORDS = _TRAIN | _VALID | _TEST


def resolve_splits(words: Sequence[str | None]) -> tuple[list[str | None], list[Problem]]:
    """Each word as "train" or "test", or None everywhere if nobody said anything.

    Validation images are the test part where there is no other; beside a test part they are
    trained on, which is noted.
    """
    if all(word is None for word in words):
        return [None] * len(words), []
    plain = [None if word is None else word.strip().casefold() for word in words]
    known = SPLIT_WORDS
    for i, word in enumerate(plain):
        if word is not None and word not in known:
            raise DataError(
                f"row {i} belongs to the split {words[i]!r}",
                where="data.split",
                hint="Write train, test or val.",
            )
    has_test = any(word in _TEST for word in plain)
    validation = sum(word in _VALID for word in plain)
    missing = sum(word is None for word in plain)
    result: list[str | None] = []
    for word in plain:
        tested = word in _TEST or (word in _VALID and not has_test)
        result.append("test" if tested else "train")
    notes = []
    if has_test and validation:
        text = f"{validation} validation images are trained on, because there is also a test part"
        notes.append(Problem("split", "suspicious", text))
    if missing:
        text = f"{missing} images name no split and are trained on"
        notes.append(Problem("split", "suspicious", text))
    return result, notes
