"""What is done about equal images: they stay on one side of a split, and agree on their label."""

from __future__ import annotations

import numpy as np

from vitrail.config.schema import Data
from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import SOURCES
from vitrail.data.near_duplicates import Ints, digest_pixels, find_equal, find_groups, with_groups
from vitrail.errors import DataError


def group_duplicates(images: ImageSet, data: Data) -> ImageSet:
    """The images with the groups of those that are equal, or nearly, as `[data]` asks.

    A source that draws its images draws each of them anew; there it is not looked.
    """
    if not SOURCES.needs_path(data.source) or not len(images):
        return images
    if data.duplicates == "together":
        first, groups = find_groups(images.images)
    elif data.conflicts == "stop":
        first, groups = find_equal(digest_pixels(images.images)), None
    else:
        return images
    if data.conflicts == "stop":
        refuse_conflicts(images, first, data)
    return images if groups is None else with_groups(images, groups)


def refuse_conflicts(images: ImageSet, first: Ints, data: Data) -> None:
    """Refuse equal images of different classes: one of the labels is wrong, and nobody knows which.

    `first` is for every image the first one that is equal.
    """
    rows = np.flatnonzero(images.labels != images.labels[first])
    if len(rows):
        row, other = int(rows[0]), int(first[rows[0]])
        names = images.names, images.classes, images.labels
        one, two = (f"{names[0][i]} is {names[1][names[2][i]]}" for i in (other, row))
        raise DataError(
            f"{len(rows)} images are equal to one of another class: {one} and {two}",
            where=str(data.path or data.source),
            hint='`vitrail data check PATH` lists them; data.conflicts = "allow" keeps them.',
        )


def describe_duplicates(images: ImageSet, left_out: int) -> list[str]:
    """What was done about equal images, for the log."""
    if images.groups is None:
        return []
    copies = len(images) - len(np.unique(images.groups))
    lines = [f"{copies} images nearly equal others and are on their side of every split"]
    if left_out:
        lines.append(f"{left_out} training images are in the test part as well and were left out")
    return [f"{line} (data.duplicates)" for line in lines]
