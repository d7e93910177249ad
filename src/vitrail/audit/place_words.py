"""Where a finding lies: in pixels of the original images, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from vitrail.audit.counterfactual.regions import Region
from vitrail.audit.site_view import SiteView
from vitrail.explain.evidence import Box, to_original

_MOST = 0.5  # of the image: what covers more is no place in it


def compute_median_box(boxes: Tensor | None) -> Box | None:
    """The median box over a class's images, edge by edge; None for what is no place."""
    if boxes is None or not len(boxes):
        return None
    x0, y0, x1, y1 = boxes.median(0).values.tolist()
    return int(x0), int(y0), int(x1), int(y1)


def compute_original_box(view: SiteView, rows: Sequence[int], boxes: Tensor | None) -> Box | None:
    """The same in pixels of the original images, each mapped back by its own size.

    Boxes that lie in the border around an image have no place in it and are left out.
    """
    if boxes is None or view.sizes is None:
        return compute_median_box(boxes)
    side = (view.images.shape[1], view.images.shape[2])
    boxes_in_originals = []
    for row, (x0, y0, x1, y1) in zip(rows, boxes.tolist(), strict=True):
        width, height = view.sizes[row].tolist()
        place = to_original((x0, y0, x1, y1), side, (height, width), view.local.card["resize"])
        if place is not None:
            boxes_in_originals.append(place)
    if not boxes_in_originals:
        return None
    edges = np.sort(np.array(boxes_in_originals), axis=0)[(len(boxes_in_originals) - 1) // 2]
    return int(edges[0]), int(edges[1]), int(edges[2]), int(edges[3])


def describe_place(region: Region, side: tuple[int, int]) -> str:
    """Such as "the lower left of the image"; `side` is height and width."""
    box = compute_median_box(region.boxes)
    if region.kind == "anywhere":
        return "something that lies elsewhere in each image"
    if box is None:
        return "the color of the image as a whole"
    height, width = side
    x0, y0, x1, y1 = box
    if (x1 - x0) * (y1 - y0) > _MOST * height * width:
        return "most of the image"
    across = _name_third((x0 + x1) / 2, width, "left", "right")
    down = _name_third((y0 + y1) / 2, height, "upper", "lower")
    if not down and not across:
        return "the center of the image"
    if not across:
        return "the top of the image" if down == "upper" else "the bottom of the image"
    return f"the {down} {across} of the image" if down else f"the {across} of the image"


def _name_third(middle: float, length: int, low: str, high: str) -> str:
    if middle < length / 3:
        return low
    return high if middle > 2 * length / 3 else ""
