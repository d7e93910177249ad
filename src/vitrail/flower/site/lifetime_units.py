"""Whose budget it is: one image, or all images that are known to be of one patient.

A run that names patients and one that does not meet in their images: an image that was ever named
as a patient's counts for that patient in every run, and two names that have an image in common are
one patient.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vitrail.flower.site.lifetime_keys import ImageKeys
from vitrail.release.lifetime_spending import Spending


@dataclass(frozen=True)
class RunSpending:
    """One run: on which images and how many copies of each, whose they are, and what it spent or,
    as long as it is not over, may spend, against whom."""

    run: str
    data: str
    keys: Mapping[str, int] | None  # None: a run from before there was this ledger, on any image
    spending: Spending
    over: bool = False
    patients: Mapping[str, Sequence[str]] = field(default_factory=dict)
    largest: int = 1  # images behind a key of a run whose line does not say whose they are
    against: tuple[str, ...] = ()
    unmatched: bool = False  # by keys that no image has any more: it counts for any


@dataclass(frozen=True)
class Share:
    """Images or patients that were in the same runs, with at most so many images in each of them;
    `planned` is how many a planned run would have."""

    images: int
    runs: tuple[RunSpending, ...]
    sizes: tuple[int, ...] = ()
    spending: Spending = field(default_factory=Spending)
    planned: int = 0


class _Units:
    """Keys that belong together (union by the smaller name)."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def find(self, key: str) -> str:
        """The name of a key's unit."""
        root = key
        while (above := self._parents.get(root, root)) != root:
            root = above
        while (above := self._parents.get(key, key)) != root:
            self._parents[key], key = root, above
        return root

    def join(self, one: str, other: str) -> None:
        """Make two units one."""
        first, second = sorted((self.find(one), self.find(other)))
        self._parents[second] = first


def group_units(runs: Sequence[RunSpending], planned: ImageKeys | None = None) -> list[Share]:
    """Images or patients by the runs they were in: those of a planned run, or all of any run."""
    units = _Units()
    for owners in (*(run.patients for run in runs), planned.patients if planned else {}):
        for patient, images in owners.items():
            for image in images:
                units.join(patient, image)
    counts = [_count_images(run.keys or {}, units, run.largest) for run in runs]
    mine = _count_images(Counter(planned.images), units, 1) if planned else {}
    asked = set(mine) if planned else {unit for count in counts for unit in count}
    grouped: dict[tuple[int, ...], list[str]] = {}
    for unit in asked:
        inside = tuple(
            i
            for i, run in enumerate(runs)
            if run.keys is None or run.unmatched or counts[i].get(unit, 0)
        )
        grouped.setdefault(inside, []).append(unit)
    return [
        _make_share([runs[i] for i in inside], [counts[i] for i in inside], members, mine)
        for inside, members in sorted(grouped.items())
    ]


def _count_images(keys: Mapping[str, int], units: _Units, largest: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for key, copies in keys.items():
        unit = units.find(key)
        counts[unit] = counts.get(unit, 0) + copies * largest
    return counts


def _make_share(
    runs: Sequence[RunSpending],
    counts: Sequence[Mapping[str, int]],
    members: Sequence[str],
    mine: Mapping[str, int],
) -> Share:
    """One sum for units of the same runs: of each run the most images that any of them has."""
    widest = max((count.get(unit, 1) for count in (*counts, mine) for unit in members), default=1)
    sizes = tuple(
        widest if run.keys is None else max(count.get(unit, 1) for unit in members)
        for run, count in zip(runs, counts, strict=True)
    )
    total = Spending()
    for run, size in zip(runs, sizes, strict=True):
        total = total.join(run.spending.take_group(size))
    planned = max((mine.get(unit, 0) for unit in members), default=0)
    return Share(len(members), tuple(runs), sizes, total, planned)
