"""What is in a user's images and what is wrong with them, before anything is trained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vitrail.config.schema import Data
from vitrail.data.decoding.bit_depth import BitDepth, measure_depth
from vitrail.data.decoding.decode import Decoder, Header, Payload, UnreadableError, limit_pixels
from vitrail.data.decoding.decode_all import describe_unreadable
from vitrail.data.decoding.payload import map_ordered, read_payloads
from vitrail.data.image_set import ImageSet
from vitrail.data.inspect.contact_sheet import draw_contact_sheet
from vitrail.data.inspect.duplicate_check import find_duplicates, find_split_patients
from vitrail.data.inspect.guess import guess_data
from vitrail.data.labels import resolve_labels
from vitrail.data.load_images import read_source
from vitrail.data.near_duplicates import Bytes, digest_pixels, make_thumbnail
from vitrail.data.records import STOPPING, Problem, Record, Records
from vitrail.data.sources.class_folders import find_site_folders, is_picture
from vitrail.data.sources.dicom import is_dicom
from vitrail.data.split import resolve_splits
from vitrail.errors import DataError
from vitrail.rng import Key

__all__ = ["Check", "check", "draw_contact_sheet", "guess_data"]

_TINY = 16
_HUGE = 8192
_NARROW = 4.0
_SHOWN = 20
_FOLDER_SOURCES = ("folder", "dicom")


@dataclass(frozen=True)
class Check:
    """Counts of everything that was found, and every problem. Patients are only counted."""

    source: str
    images: int
    classes: Mapping[str, int]
    sites: Mapping[str, int] = field(default_factory=dict)
    splits: Mapping[str, int] = field(default_factory=dict)
    patients: int | None = None
    sizes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    layout: str | None = None  # how folders were read, where they can be read in two ways
    depth: BitDepth | None = None  # of images with more than 8 bits, where there are any

    @property
    def ok(self) -> bool:
        """Whether a run with `data.broken = "stop"` would start on these images."""
        return not any(problem.kind in {*STOPPING, "conflict"} for problem in self.problems)

    def lines(self, shown: int = _SHOWN) -> list[str]:
        """The findings as plain lines, the longest lists cut after `shown` entries."""
        text = [f"source: {self.source}", f"images: {self.images}"]
        if self.layout is not None:
            text.append(f"folders: {self.layout}")
        text += _format_counts("classes", self.classes, len(self.classes))
        text += _format_counts("sites", self.sites, shown)
        text += _format_counts("splits", self.splits, shown)
        if self.patients is not None:
            text.append(f"patients: {self.patients}")
        text += _format_counts("sizes", {f"{w} x {h}": n for (w, h), n in self.sizes.items()}, 8)
        text += _format_counts("modes", self.modes, 8)
        if self.depth is not None:
            text.append(f"depth: {self.depth.describe()}")
        kinds = Counter(problem.kind for problem in self.problems)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        text.append(f"problems: {counts or 'none'}")
        ranked = sorted(self.problems, key=lambda p: p.kind not in {*STOPPING, "conflict"})
        text += [f"  {problem.line()}" for problem in ranked[:shown]]
        if len(ranked) > shown:
            text.append(f"  ... and {len(ranked) - shown} more")
        return text


def _format_counts(title: str, counts: Mapping[str, int], shown: int) -> list[str]:
    if not counts:
        return []
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    lines = [f"{title}: {len(ranked)}"]
    lines += [f"  {count:>7}  {name}" for name, count in ranked[:shown]]
    return lines + ([f"  ... and {len(ranked) - shown} more"] if len(ranked) > shown else [])


def check(data: Data, base: Path, key: Key) -> Check:
    """Look at every image: decode it, compare it with all others, count what it belongs to."""
    source = read_source(data, base, key)
    if isinstance(source, ImageSet):
        counts = np.bincount(source.labels, minlength=len(source.classes))
        side = source.images.shape[2], source.images.shape[1]
        return Check(
            data.source,
            len(source),
            dict(zip(source.classes, counts.tolist())),
            sizes={side: len(source)},
        )
    looks = list(_inspect_all(source.rows, source.decoder, data))
    problems = list(source.problems)
    problems += [
        describe_unreadable(r, x) for r, x in zip(source.rows, looks) if isinstance(x, Exception)
    ]
    good = [(row, look) for row, look in zip(source.rows, looks) if isinstance(look, _Inspection)]
    problems += [p for row, look in good for p in _find_suspicious(row, look)]
    labels, more = _label_words(source, data)
    splits, notes = _split_words(source)
    problems += more + notes + find_split_patients(source.rows, splits)
    seen = {i: x for i, x in enumerate(looks) if isinstance(x, _Inspection)}
    copies = list(seen), [x.digest for x in seen.values()], [x.thumbnail for x in seen.values()]
    problems += find_duplicates(*copies, source.rows, labels, splits, data)
    patients = {row.patient for row in source.rows if row.patient is not None}
    depth = measure_depth((look.highest for _, look in good), data)
    problems += [] if depth is None else depth.find_problems()
    return Check(
        data.source,
        len(source.rows),
        _count_words(labels.values()),
        _count_words(row.site for row in source.rows),
        _count_words(splits),
        len(patients) or None,
        Counter((look.header.width, look.header.height) for _, look in good),
        Counter(look.header.mode for _, look in good),
        tuple(problems),
        describe_layout(data, base),
        depth,
    )


def describe_layout(data: Data, base: Path) -> str | None:
    """What folders were taken for, where several of them hold the same folders inside."""
    path = base / Path(data.path or "").expanduser()
    if data.source not in _FOLDER_SOURCES or not path.is_dir():
        return None
    shared = find_site_folders(path, is_dicom if data.source == "dicom" else is_picture)
    if shared is None:
        return None
    other = "class" if data.folders == "site/class" else "site/class"
    return f'{shared.describe()}: read as {data.folders}; data.folders = "{other}" reads them so'


@dataclass(frozen=True)
class _Inspection:
    header: Header
    digest: bytes
    thumbnail: Bytes
    constant: bool
    highest: int | None


def _inspect_all(
    rows: Sequence[Record], decoder: Decoder, data: Data
) -> Iterable[_Inspection | UnreadableError]:
    def look(item: Payload) -> _Inspection:
        header = decoder.probe(item, data)
        picture = decoder.picture(item, data, 0)
        low_high = picture.getextrema()
        flat = all(a == b for a, b in np.atleast_2d(np.array(low_high)))
        highest = decoder.highest(item, data) if header.deep and decoder.highest else None
        (digest,) = digest_pixels([np.asarray(picture)])
        return _Inspection(header, digest, make_thumbnail(picture), flat, highest)

    with limit_pixels(data.max_pixels):
        yield from map_ordered(look, read_payloads(rows))


def _find_suspicious(row: Record, look: _Inspection) -> list[Problem]:
    width, height = look.header.width, look.header.height
    problems = []
    if look.constant:
        problems.append("every pixel has the same value")
    if min(width, height) < _TINY:
        problems.append(f"is tiny ({width} x {height})")
    if max(width, height) > _HUGE:
        problems.append(f"is huge ({width} x {height})")
    if max(width, height) > _NARROW * min(width, height):
        problems.append(f"is very narrow ({width} x {height})")
    return [Problem(row.name, "suspicious", sentence) for sentence in problems]


def _label_words(records: Records, data: Data) -> tuple[dict[int, str], list[Problem]]:
    """The class of each row that has one; labels that cannot be used become a problem."""
    raw, names = [row.label for row in records.rows], [row.name for row in records.rows]
    try:
        resolved = resolve_labels(raw, names, data, records.classes)
    except DataError as err:
        words = {i: _format_label(label) for i, label in enumerate(raw) if label is not None}
        return words, [Problem("labels", "label", err.sentence())]
    words = {int(i): resolved.classes[k] for i, k in zip(resolved.rows, resolved.labels)}
    return words, list(resolved.problems)


def _format_label(label: object) -> str:
    return "|".join(label) or "(none)" if isinstance(label, tuple) else str(label)


def _split_words(records: Records) -> tuple[list[str | None], list[Problem]]:
    try:
        return resolve_splits([row.split for row in records.rows])
    except DataError as err:
        return [None] * len(records.rows), [Problem("split", "label", err.sentence())]


def _count_words(words: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(word for word in words if word is not None))
