"""Whose images are whose: patients by number, and how many images the largest of them has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import ImageSet

Ints = npt.NDArray[np.int64]
UNKNOWN = -1


@dataclass(frozen=True)
class PatientCount:
    """How many patients some images are of, the images of the largest, and images of nobody."""

    patients: int
    largest: int
    unknown: int = 0

    @staticmethod
    def of(numbers: Ints) -> PatientCount:
        """Over the patients' numbers of some images."""
        sizes = np.unique(numbers[numbers != UNKNOWN], return_counts=True)[1]
        largest = int(sizes.max()) if len(sizes) else 0
        return PatientCount(len(sizes), largest, int((numbers == UNKNOWN).sum()))

    def to_json(self) -> dict[str, int]:
        """As a ledger keeps it."""
        return {"patients": self.patients, "largest": self.largest}


def number_patients(images: ImageSet) -> Ints | None:
    """The number of each image's patient, `UNKNOWN` without a name; None if nobody has one."""
    if images.patients is None:
        return None
    known = np.char.strip(images.patients) != ""
    numbers = np.unique(images.patients, return_inverse=True)[1].astype(np.int64)
    return np.where(known, numbers, UNKNOWN) if known.any() else None


def count_patients(images: ImageSet, rows: Mapping[str, Ints]) -> dict[str, PatientCount]:
    """The patients among each site's rows; nothing where no image names one."""
    numbers = number_patients(images)
    if numbers is None:
        return {}
    return {name: PatientCount.of(numbers[own]) for name, own in rows.items()}
