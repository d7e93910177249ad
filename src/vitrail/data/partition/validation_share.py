"""The images that settings are chosen on: a fixed share that no fold and no seed ever tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import ImageSet
from vitrail.data.near_duplicates import join_groups
from vitrail.data.partition.partition_kinds import Ints
from vitrail.errors import ConfigError
from vitrail.rng import derive_server_key

Mask = npt.NDArray[np.bool_]


def reserve_validation(images: ImageSet, units: Ints, held: Mask, share: float | None) -> Mask:
    """About a share of the images of each class that are not `held` for testing, in whole units:
    patients, and copies with each other.

    The draw depends on the images alone, never on a run's seed, so that what one run chose its
    settings on is not what another is tested on.
    """
    reserved = np.zeros(len(images), dtype=bool)
    if share is None:
        return reserved
    rows = np.flatnonzero(~held)
    joined = _join_copies(images, units, rows)
    present, first, count = np.unique(joined[rows], return_index=True, return_counts=True)
    labels = images.labels[rows[first]]
    draw = derive_server_key(0).at("validation").numpy()
    order = draw.permutation(len(present))
    chosen = np.zeros(int(joined.max()) + 1, dtype=bool)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        wanted = share * count[of_class].sum()
        before = np.cumsum(count[of_class]) - count[of_class]
        chosen[present[of_class[before + count[of_class] / 2 <= wanted]]] = True
    reserved[rows] = chosen[joined[rows]]
    if not reserved.any() or reserved[rows].all():
        raise ConfigError(
            f"a share of {share:g} of {len(rows)} images leaves nothing on one side",
            where="partition.validation",
            hint="Use about 0.2, or more images.",
        )
    return reserved


def _join_copies(images: ImageSet, units: Ints, rows: Ints) -> Ints:
    """The number of what each image hangs together with: its patient, and copies of its images."""
    if images.groups is None:
        return units
    count = int(units.max()) + 1
    present, dense = np.unique(images.groups[rows], return_inverse=True)
    joined = join_groups(count + len(present), np.stack([units[rows], count + dense], axis=1))
    return joined[units]
