"""A set of images in memory: uint8 pixels, labels, and what is known about each image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True)
class ImageSet:
    """N images of one size. Rows of every column belong together; `None` means unknown.

    `images` may be a read-only memory map. `boxes` are (x0, y0, x1, y1) in pixels of the
    resized image; `sizes` are the original (width, height), so that boxes can be mapped back.
    """

    images: npt.NDArray[np.uint8]  # [N, H, W, C], C is 1 or 3
    labels: npt.NDArray[np.int64]  # [N], indices into `classes`
    classes: tuple[str, ...]
    names: npt.NDArray[np.str_]  # [N], where each image came from, for messages and CSV files
    sites: npt.NDArray[np.str_] | None = None
    patients: npt.NDArray[np.str_] | None = None
    splits: npt.NDArray[np.str_] | None = None  # "train" or "test"
    groups: npt.NDArray[np.int64] | None = None  # numbers that (nearly) equal images share
    boxes: npt.NDArray[np.float32] | None = None  # [N, 4]
    sizes: npt.NDArray[np.int32] | None = None  # [N, 2], original width and height
    findings: tuple[frozenset[str], ...] | None = None  # all labels of a multi-label image
    extra: Mapping[str, Array] = field(default_factory=dict)  # other columns, row by row
    places: npt.NDArray[np.int64] | None = None  # of each image among the source's records
    bits: int | None = None  # that deep values were read with; None where no image is deep
    public: bool = False  # embedded data: may be shown to anybody

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: npt.NDArray[np.int64]) -> ImageSet:
        """The images at `rows`, in that order, with all their columns."""

        def pick(column: npt.NDArray[Scalar] | None) -> npt.NDArray[Scalar] | None:
            return None if column is None else column[rows]

        return replace(
            self,
            images=self.images[rows],
            labels=self.labels[rows],
            names=self.names[rows],
            sites=pick(self.sites),
            patients=pick(self.patients),
            splits=pick(self.splits),
            groups=pick(self.groups),
            boxes=pick(self.boxes),
            sizes=pick(self.sizes),
            places=pick(self.places),
            findings=None if self.findings is None else tuple(self.findings[i] for i in rows),
            extra={name: column[rows] for name, column in self.extra.items()},
        )
