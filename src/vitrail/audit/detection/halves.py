"""Each site's images in two halves: on A a direction is sought, on B it is tested."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import ImageSet
from vitrail.rng import Key

Labels = npt.NDArray[np.int64]
LEAST = 6  # images (patients, where they are known) of a class below which nothing is said of it
_EVEN = 12  # from so many on both halves are equal; below, B has more, which the test needs


@dataclass(frozen=True)
class Halves:
    """Rows of a site in A and in B; `group` numbers those that are one patient's.

    Images of one patient are alike, so a patient counts once: with the mean of its images.
    """

    a: npt.NDArray[np.int64]
    b: npt.NDArray[np.int64]
    group: npt.NDArray[np.int64]


def name_subjects(images: ImageSet, rows: Labels) -> npt.NDArray[np.str_] | None:
    """Whose images count once: a patient's, or nearly equal ones where no patient is known."""
    if images.patients is not None:
        return images.patients[rows]
    return None if images.groups is None else images.groups[rows].astype(np.str_)


def split_halves(labels: Labels, patients: npt.NDArray[np.str_] | None, key: Key) -> Halves:
    """Patients of each class dealt out by a key that everybody knows, so that no site can choose.

    A patient with images of several classes is in one half with all of them.
    """
    names = np.arange(len(labels)).astype(str) if patients is None else np.asarray(patients)
    unknown = np.char.strip(names) == ""
    names = np.where(unknown, np.char.add("row ", np.arange(len(labels)).astype(str)), names)
    _, group = np.unique(names, return_inverse=True)
    half = np.full(group.max(initial=-1) + 1, -1, np.int64)
    for label in np.unique(labels):
        members = np.unique(group[labels == label])
        order = key.at("halves", int(label)).numpy().permutation(members)
        count = len(members) // 2 if len(members) >= _EVEN else max(2, len(members) // 3)
        free = [one for one in order.tolist() if half[one] < 0]
        missing = max(0, count - int((half[members] == 0).sum()))
        half[free[:missing]] = 0
        half[free[missing:]] = 1
    rows = np.arange(len(labels))
    return Halves(rows[half[group] == 0], rows[half[group] == 1], group.astype(np.int64))


def average_groups(
    values: npt.NDArray[np.float64], labels: Labels, group: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], Labels]:
    """The mean row of each patient in each class, and its class."""
    order = np.lexsort((group, labels))
    keys = np.stack([labels, group])[:, order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (keys[:, 1:] != keys[:, :-1]).any(0)
    starts = np.flatnonzero(fresh)
    if len(starts) == len(order):  # nobody has two
        return values[order], labels[order]
    sums = np.add.reduceat(values[order], starts, axis=0)
    counts = np.diff([*starts, len(order)]).astype(np.float64)
    return sums / counts.reshape(-1, *([1] * (values.ndim - 1))), keys[0][starts]
