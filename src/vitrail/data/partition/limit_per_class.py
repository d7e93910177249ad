"""Scant data: a federation that trains on a few images of each class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vitrail.errors import ConfigError
from vitrail.rng import Key

Ints = npt.NDArray[np.int64]


def limit_per_class(
    trains: Sequence[Ints], names: Sequence[str], labels: Ints, most: int, key: Key
) -> list[Ints]:
    """Each site's training rows with at most `most` of a class left, over all sites together.

    Which ones is drawn class by class, so a smaller number keeps a part of what a larger one
    keeps. Test images are no business of this function.
    """
    every = np.sort(np.concatenate(list(trains)))
    kept = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels[every]):
        members = every[labels[every] == label]
        kept[key.at(int(label)).numpy().permutation(members)[:most]] = True
    limited = [rows[kept[rows]] for rows in trains]
    for name, rows in zip(names, limited, strict=True):
        if not len(rows):
            raise ConfigError(
                f"site {name!r} has no training image left with {most} of each class",
                where="partition.per_class",
                hint="Use a larger number, fewer sites or a larger alpha.",
            )
    return limited
