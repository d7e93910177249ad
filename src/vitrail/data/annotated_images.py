"""What annotations do to images: regions that never count are filled from around them, for
training and testing alike; what may not leave is listed for methods that share images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from vitrail.config.annotation_section import Annotation
from vitrail.data.fill_holes import fill_holes
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError, suggest_name

_CHUNK = 256
Rows = npt.NDArray[np.int64]
Unshared = npt.NDArray[np.float64]  # [K, 5]: a row, and a box as shares of width and height


def hide_regions(
    images: ImageSet, sites: Mapping[str, SiteRows], annotations: Sequence[Annotation], alone: bool
) -> ImageSet:
    """The images with every region that never counts filled from around it.

    `alone`: these are one site's images of a federation, so names of others are not looked up.
    """
    hidden: dict[int, list[Annotation]] = {}
    for one in annotations:
        rows = find_annotated_rows(images, sites, one, alone)
        if one.use == "nothing":
            for row in rows.tolist():
                hidden.setdefault(row, []).append(one)
    if not hidden:
        return images
    pixels = np.array(images.images)
    chosen = sorted(hidden)
    for at in range(0, len(chosen), _CHUNK):
        part = chosen[at : at + _CHUNK]
        holes = np.stack([_make_hole([one.box for one in hidden[r]], pixels.shape) for r in part])
        pixels[part] = fill_regions(pixels[part], holes)
    return replace(images, images=pixels)


def fill_regions(
    pixels: npt.NDArray[np.uint8], holes: npt.NDArray[np.bool_]
) -> npt.NDArray[np.uint8]:
    """Images [N, H, W, C] whose holes [N, H, W] are filled from around them."""
    x = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float()
    hole = torch.from_numpy(holes)[:, None]
    filled = torch.where(hole, fill_holes(x, hole), x).round().clamp(0, 255).to(torch.uint8)
    result: npt.NDArray[np.uint8] = filled.permute(0, 2, 3, 1).numpy()
    return result


def hide_common_regions(
    square: npt.NDArray[np.uint8], annotations: Sequence[Annotation]
) -> npt.NDArray[np.uint8]:
    """A new image [H, W, C] without the regions that never count in anybody's images."""
    boxes = [a.box for a in annotations if a.use == "nothing" and not a.site and not a.image]
    if not boxes:
        return square
    filled: npt.NDArray[np.uint8] = fill_regions(
        square[None], _make_hole(boxes, (1, *square.shape))[None]
    )[0]
    return filled


def list_unshared(
    images: ImageSet, sites: Mapping[str, SiteRows], annotations: Sequence[Annotation], alone: bool
) -> Unshared | None:
    """Every region that must not leave, row by row; None where there is none."""
    lines = [
        (float(row), *one.box)
        for one in annotations
        for row in find_annotated_rows(images, sites, one, alone).tolist()
    ]
    return np.array(lines, np.float64) if lines else None


def find_annotated_rows(
    images: ImageSet, sites: Mapping[str, SiteRows], one: Annotation, alone: bool
) -> Rows:
    """The images that an annotation is about; one that does not exist is never passed over."""
    if one.site and one.site not in sites:
        if alone:
            return np.zeros(0, np.int64)
        raise ConfigError(
            f"there is no site {one.site!r}",
            where="data.annotations",
            hint=suggest_name(one.site, sites),
        )
    rows = np.arange(len(images))
    if one.site:
        held = sites[one.site]
        push = held.train if held.push is None else held.push
        rows = np.unique(np.concatenate([held.train, held.test, push]))
    if one.image:
        rows = rows[images.names[rows] == one.image]
        if not len(rows):
            raise ConfigError(
                f"there is no image {one.image!r}{f' at {one.site}' if one.site else ''}",
                where="data.annotations",
                hint="Names are those of `vitrail data check`; take the annotation out if it went.",
            )
    return rows


def _make_hole(boxes: Sequence[Sequence[float]], shape: Sequence[int]) -> npt.NDArray[np.bool_]:
    """The pixels that some boxes touch, [H, W] of bool: half a letter is a letter."""
    height, width = int(shape[1]), int(shape[2])
    hole = np.zeros((height, width), np.bool_)
    for x0, y0, x1, y1 in boxes:
        top, bottom = int(np.floor(y0 * height)), int(np.ceil(y1 * height))
        left, right = int(np.floor(x0 * width)), int(np.ceil(x1 * width))
        hole[top:bottom, left:right] = True
    return hole
