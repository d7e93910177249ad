"""From raw labels to classes: integers, words, or lists of findings told apart by one of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.records import Problem, RawLabel
from vitrail.errors import DataError, suggest_name
from vitrail.rng import Key

REST = "rest"
NO_FINDING = "no finding"

_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class ResolvedLabels:
    """Labels as indices into `classes`; `rows` are the raw rows that have one, in order."""

    rows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    findings: tuple[frozenset[str], ...] | None
    problems: tuple[Problem, ...]


def tidy(text: str) -> str:
    """A label as it is compared: one spelling of accents, single blanks, none at the ends."""
    printable = text.encode(errors="replace").decode()
    return " ".join(unicodedata.normalize("NFC", printable).split())


def resolve_labels(
    raw: Sequence[RawLabel], names: Sequence[str], data: Data, known: Sequence[str] | None = None
) -> ResolvedLabels:
    """Turn raw labels into class indices; `known` are class names that the layout brought.

    Rows without a label are problems; rows that `data.negatives` leaves out are not.
    """
    problems = [
        Problem(name, "label", "has no label")
        for name, label in zip(names, raw)
        if _is_blank(label)
    ]
    rows = [i for i, label in enumerate(raw) if not _is_blank(label)]
    lists = any(isinstance(raw[i], tuple) for i in rows)
    findings: list[frozenset[str]] | None = None
    if lists or data.positive is not None:
        sets = [_findings(raw[i], data, known) for i in rows]
        rows, words, findings = _select_against_rest(rows, sets, data)
        known = (REST, tidy(data.positive or ""))
    else:
        words = _words([raw[i] for i in rows], [names[i] for i in rows], data, known)
    classes = _classes(words, data, known, problems)
    _refuse_unknown(words, [names[i] for i in rows], classes)
    index = {name: i for i, name in enumerate(classes)}
    labels = np.array([index[word] for word in words], np.int64)
    _refuse_empty(labels, classes, data, problems)
    kept = None if findings is None else tuple(findings)
    return ResolvedLabels(np.array(rows, np.int64), labels, classes, kept, tuple(problems))


def undersample(labels: npt.NDArray[np.int64], key: Key) -> npt.NDArray[np.int64]:
    """Rows to keep so that every class present has as many as the smallest, order kept."""
    if len(labels) == 0:
        return np.zeros(0, np.int64)
    present, counts = np.unique(labels, return_counts=True)
    generator = key.at("undersample").numpy()
    kept = [
        generator.choice(np.flatnonzero(labels == label), counts.min(), replace=False)
        for label in present
    ]
    return np.sort(np.concatenate(kept)).astype(np.int64)


def _is_blank(label: RawLabel) -> bool:
    return label is None or (isinstance(label, str) and not label.strip())


def _rename(text: str, data: Data) -> str:
    word = tidy(text)
    for old, new in data.rename.items():
        if tidy(old) == word:
            return tidy(new)
    return word


def _findings(label: RawLabel, data: Data, known: Sequence[str] | None) -> frozenset[str]:
    """All findings of one image; a single label is a list of one."""
    if isinstance(label, int) and known is not None and 0 <= label < len(known):
        label = known[label]
    several = label if isinstance(label, tuple) else (str(label),)
    return frozenset(_rename(text, data) for text in several if text.strip())


def _select_against_rest(
    rows: list[int], sets: list[frozenset[str]], data: Data
) -> tuple[list[int], list[str], list[frozenset[str]]]:
    """One finding against others: `rest`, `none` (no finding at all), or one named finding."""
    seen = frozenset().union(*sets)
    if data.positive is None:
        raise DataError(
            "the labels are lists of findings",
            where="data.positive",
            hint=f"Name the finding to tell from the rest. {suggest_name('', seen)}",
        )
    positive, other = tidy(data.positive), tidy(data.negatives)
    for word, where in ((positive, "data.positive"), (other, "data.negatives")):
        if word not in seen and not (where == "data.negatives" and word in (REST, "none")):
            raise DataError(f"no image has {word!r}", where=where, hint=suggest_name(word, seen))
    kept: list[int] = []
    words: list[str] = []
    findings: list[frozenset[str]] = []
    for row, present in zip(rows, sets):
        if positive not in present:
            real = {word for word in present if word.casefold() != NO_FINDING}
            if (other == "none" and real) or (other not in (REST, "none") and other not in present):
                continue
        kept.append(row)
        words.append(positive if positive in present else REST)
        findings.append(present)
    return kept, words, findings


def _words(
    raw: list[RawLabel], names: list[str], data: Data, known: Sequence[str] | None
) -> list[str]:
    """One word per image; an integer is an index where names exist, else its own name."""
    table = known if known is not None else data.classes
    if table is not None and all(_INTEGER.fullmatch(name) for name in table) and known is None:
        table = None
    numbers = [label for label in raw if isinstance(label, int)]
    if table is not None and numbers:
        _refuse_outside(raw, names, 0, len(table) - 1)
        raw = [table[label] if isinstance(label, int) else label for label in raw]
    words = [_rename(str(label), data) for label in raw]
    if table is None and words and all(_INTEGER.fullmatch(word) for word in words):
        _refuse_outside([int(word) for word in words], names, 0, None)
        words = [str(int(word)) for word in words]
    return words


def _refuse_outside(
    raw: Sequence[RawLabel], names: Sequence[str], low: int, high: int | None
) -> None:
    bad = [
        i
        for i, label in enumerate(raw)
        if isinstance(label, int) and (label < low or (high is not None and label > high))
    ]
    if bad:
        shown = ", ".join(f"row {i} ({names[i]}) has {raw[i]}" for i in bad[:3])
        span = f"0..{high}" if high is not None else "0 and up"
        raise DataError(
            f"{_count(bad, 'label')} outside of {span}: {shown}",
            where="data.label",
            hint="Correct them, or give them names in [data.rename].",
        )


def _count(items: Sequence[object], noun: str) -> str:
    return f"{len(items)} {noun}{'s are' if len(items) != 1 else ' is'}"


def _classes(
    words: list[str], data: Data, known: Sequence[str] | None, problems: list[Problem]
) -> tuple[str, ...]:
    """The names in order: the user's, the layout's, else sorted (numbers by value)."""
    if data.classes is not None:
        fixed = tuple(tidy(name) for name in data.classes)
        if len(set(fixed)) < len(fixed):
            raise DataError("a class is named twice", where="data.classes")
        return fixed
    if known is not None:
        return tuple(dict.fromkeys(_rename(name, data) for name in known))
    present = set(words)
    if not all(_INTEGER.fullmatch(word) for word in present):
        return tuple(sorted(present))
    numbers = sorted(int(word) for word in present)
    gaps = sorted(set(range(numbers[-1] + 1)) - set(numbers))[:5] if numbers else []
    if gaps and numbers[-1] < 10_000:
        text = ", ".join(map(str, gaps))
        problems.append(
            Problem("labels", "suspicious", f"the numbers have gaps: nobody has {text}")
        )
    return tuple(map(str, numbers))


def _refuse_unknown(words: list[str], names: list[str], classes: tuple[str, ...]) -> None:
    unknown = sorted(set(words) - set(classes))
    if unknown:
        first = words.index(unknown[0])
        raise DataError(
            f"{_count(unknown, 'label')} not among the classes; the first is {unknown[0]!r} "
            f"(row {first}, {names[first]})",
            where="data.classes",
            hint=suggest_name(unknown[0], classes),
        )


def _refuse_empty(
    labels: npt.NDArray[np.int64], classes: tuple[str, ...], data: Data, problems: list[Problem]
) -> None:
    """A class that the user named must have images; one that a layout named is only noted."""
    held = set(labels.tolist())
    empty = [name for i, name in enumerate(classes) if i not in held]
    if empty and data.classes is not None and not data.partial:
        raise DataError(
            f"no image has the class {empty[0]!r}"
            + (f", nor {len(empty) - 1} other classes" if len(empty) > 1 else ""),
            where="data.classes",
            hint="Take it out, or correct its spelling.",
        )
    if len(held) < 2 and not (held and data.partial):
        only = classes[next(iter(held))] if held else "none"
        raise DataError(
            f"all {len(labels)} images have one class only ({only!r})",
            where="data.label",
            hint="A classifier needs at least two classes.",
        )
    problems.extend(Problem(name, "suspicious", "no image has this class") for name in empty)
