"""A box that fits a mark: at full resolution, from the site's own images.

The units say that a class stands apart and roughly where. Pixel by pixel the class's images are
then compared with the site's other images. A mark makes many images of the class alike at a
pixel, whatever the others show there; also where only some of them carry it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from vitrail.audit.detection.feature_layout import Share

Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]
Edges = tuple[int, int, int, int]
_FEWEST = 3
_MARGIN, _LEAST_MARGIN = 0.5, 0.08  # of the coarse box and of the image, on every side
_ALIKE = (10, 30)  # gray levels in every channel: the same thing, or one that shines through
_MODES, _OTHERS = 32, 64  # images at most that are compared
_LEVEL, _EDGE = 0.35, 0.5  # of the largest agreement in the window: for finding, for fitting
_REACH = 0.02  # of the image's side: strokes as close as this are one thing
_MOST = 0.3  # of the image: what covers more is no place in it
_CLEAR = 9.0  # nats in the mean of a box: beyond all of 80 classes without a mark (at most 8.4)


@dataclass(frozen=True)
class TightPlace:
    """A box (x0, y0, x1, y1) in pixels; `sharpness` is the mean agreement in it, in nats."""

    box: Edges
    sharpness: float

    @property
    def is_mark(self) -> bool:
        """Whether images of the class agree there as only things do that were added to them."""
        return self.sharpness >= _CLEAR


def find_tight_place(
    of_class: Pixels, others: Pixels, coarse: Share | None = None
) -> TightPlace | None:
    """The box in which images [N, H, W, C] of the class agree most and others do not.

    It is sought around the coarse place, or in the whole image where there is none; None where
    there are too few images, or where what stands apart is no place.
    """
    if len(of_class) < _FEWEST or len(others) < _FEWEST:
        return None
    agreement = compute_agreement(of_class, others)
    smooth = _smooth(agreement)
    height, width = agreement.shape
    x0, y0, x1, y1 = _make_window(coarse, height, width)
    window = smooth[y0:y1, x0:x1]
    usual = float(np.median(smooth))
    rise = float(np.quantile(window, 0.995)) - usual
    if rise <= 0:
        return None
    rough = find_largest_rectangle(window - usual - _LEVEL * rise)
    if rough[2] <= rough[0] or rough[3] <= rough[1]:
        return None
    reach = max(1, round(_REACH * min(height, width)))
    left, top, right, bottom = fit_box(window > usual + _EDGE * rise, rough, reach)
    if (right - left) * (bottom - top) > _MOST * height * width:
        return None
    box = (x0 + left, y0 + top, x0 + right, y0 + bottom)
    inside = agreement[box[1] : box[3], box[0] : box[2]]
    return TightPlace(box, float(inside.mean()))


def compute_agreement(of_class: Pixels, others: Pixels) -> Floats:
    """How surely some value of each pixel is more frequent in the class than in others, [H, W].

    The logarithm of the likelihood ratio of two shares, one for both against one for each (Wilks
    1938), in nats: of images that are alike some image of the class there, the best over those.
    """
    one = of_class[_choose_rows(len(of_class), _MODES)].astype(np.int16)
    two = others[_choose_rows(len(others), _OTHERS)].astype(np.int16)
    count, rest = len(one) - 1, len(two)
    best: Floats = np.zeros(one.shape[1:3])
    for image in one:
        near, far = (np.abs(stack - image).max(-1) for stack in (one, two))
        for alike in _ALIKE:
            own = (near <= alike).sum(0) - 1.0  # not counting itself
            other = (far <= alike).sum(0).astype(np.float64)
            both = (own + other) / (count + rest)
            ratio = _compute_likelihood(own / count, both, count)
            ratio += _compute_likelihood(other / rest, both, rest)
            best = np.maximum(best, np.where(own * rest > other * count, ratio, 0.0))
    return best


def _compute_likelihood(share: Floats, under: Floats, count: int) -> Floats:
    """The logarithm of how much likelier an observed share is under itself than under another."""
    tiny = 1e-12
    yes = share * np.log(np.maximum(share, tiny) / np.maximum(under, tiny))
    no = (1 - share) * np.log(np.maximum(1 - share, tiny) / np.maximum(1 - under, tiny))
    ratio: Floats = count * (yes + no)
    return ratio


def fit_box(is_inside: npt.NDArray[np.bool_], rough: Edges, reach: int) -> Edges:
    """The bounds of all pixels that hang together with a rough box, gaps of `reach` bridged."""
    left, top, right, bottom = rough
    near = ndimage.binary_dilation(is_inside, np.ones((2 * reach + 1, 2 * reach + 1)))
    parts, _ = ndimage.label(near)
    touched = np.unique(parts[top:bottom, left:right])
    rows, columns = np.nonzero(is_inside & np.isin(parts, touched[touched > 0]))
    if not len(rows):
        return rough
    return int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1


def find_largest_rectangle(values: Floats) -> Edges:
    """The rectangle (x0, y0, x1, y1) with the largest sum (Kadane's sweep over pairs of rows)."""
    height, width = values.shape
    sums = np.concatenate([np.zeros((1, width)), values.cumsum(0)])
    best, box = 0.0, (0, 0, 0, 0)
    for top in range(height):
        strips = sums[top + 1 :] - sums[top]  # [bottoms, width]
        upto = np.concatenate([np.zeros((len(strips), 1)), strips.cumsum(1)], 1)
        least = np.minimum.accumulate(upto, 1)
        gain = upto - least
        at = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[at] > best:
            bottom, right = int(at[0]), int(at[1])
            left = int(np.argmin(upto[bottom, : right + 1]))
            best, box = float(gain[at]), (left, top, right, top + 1 + bottom)
    return box


def _choose_rows(count: int, most: int) -> npt.NDArray[np.int64]:
    """At most so many of some rows, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _smooth(values: Floats) -> Floats:
    padded = np.pad(values, 1, mode="edge")
    height, width = values.shape
    parts = [padded[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    smooth: Floats = np.mean(parts, 0)
    return smooth


def _make_window(coarse: Share | None, height: int, width: int) -> Edges:
    if coarse is None:
        return 0, 0, width, height
    x0, y0, x1, y1 = coarse
    wide = max((x1 - x0) * _MARGIN, _LEAST_MARGIN)
    high = max((y1 - y0) * _MARGIN, _LEAST_MARGIN)
    return (
        int(max(0.0, x0 - wide) * width),
        int(max(0.0, y0 - high) * height),
        int(np.ceil(min(1.0, x1 + wide) * width)),
        int(np.ceil(min(1.0, y1 + high) * height)),
    )
