"""A box that fits a mark: at full resolution, from the site's own images.

The units say that a class stands apart and roughly where. Pixel by pixel the class's images are
then compared with the site's other images: a mark moves the mean there, and makes images alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.audit.detection.feature_layout import Share

Floats = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]
_FEWEST = 3
_MARGIN, _LEAST_MARGIN = 0.5, 0.08  # of the coarse box and of the image, on every side
_NOISE = 4.0  # squared gray levels: what reading and rounding do
_LEVEL = 0.35  # of the largest divergence in the window: where a mark ends
_MOST = 0.3  # of the image: what covers more is no place in it
_CLEAR = 4.0  # times the usual divergence, which the box must have for a mark to be there


@dataclass(frozen=True)
class TightPlace:
    """A box (x0, y0, x1, y1) in pixels; `sharpness` is the mean divergence in it over the median
    of the whole image."""

    box: tuple[int, int, int, int]
    sharpness: float

    @property
    def is_mark(self) -> bool:
        """Whether the place stands out in pixels, as things do that were added to an image."""
        return self.sharpness >= _CLEAR


def find_tight_place(
    of_class: Pixels, others: Pixels, coarse: Share | None = None
) -> TightPlace | None:
    """The rectangle in which images [N, H, W, C] of the class stand apart most from others.

    It is sought around the coarse place, or in the whole image where there is none; None where
    there are too few images, or where what stands apart is no place.
    """
    if len(of_class) < _FEWEST or len(others) < _FEWEST:
        return None
    divergence = _smooth(compute_divergence(of_class, others))
    height, width = divergence.shape
    x0, y0, x1, y1 = _make_window(coarse, height, width)
    window = divergence[y0:y1, x0:x1]
    usual = max(float(np.median(divergence)), 1e-6)
    level = usual + _LEVEL * max(float(np.quantile(window, 0.999)) - usual, 0.0)
    left, top, right, bottom = find_largest_rectangle(window - level)
    if right <= left or bottom <= top:
        return None
    if (right - left) * (bottom - top) > _MOST * height * width:
        return None
    box = (x0 + left, y0 + top, x0 + right, y0 + bottom)
    inside = divergence[box[1] : box[3], box[0] : box[2]]
    return TightPlace(box, float(inside.mean()) / usual)


def compute_divergence(of_class: Pixels, others: Pixels) -> Floats:
    """How far two normal distributions of each pixel are apart (Kullback and Leibler 1951), the
    mean over channels, [H, W]."""
    one, two = (np.asarray(stack, np.float64) for stack in (of_class, others))
    mean, spread = one.mean(0), one.var(0) + _NOISE
    usual, wide = two.mean(0), two.var(0) + _NOISE
    ratio = spread / wide
    divergence: Floats = ((ratio + (mean - usual) ** 2 / wide - 1 - np.log(ratio)) / 2).mean(-1)
    return divergence


def find_largest_rectangle(values: Floats) -> tuple[int, int, int, int]:
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


def _smooth(values: Floats) -> Floats:
    padded = np.pad(values, 1, mode="edge")
    height, width = values.shape
    parts = [padded[y : y + height, x : x + width] for y in range(3) for x in range(3)]
    smooth: Floats = np.mean(parts, 0)
    return smooth


def _make_window(coarse: Share | None, height: int, width: int) -> tuple[int, int, int, int]:
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
