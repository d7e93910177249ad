"""Shapes as signed distances, and the canvas that paints them for many birds at once.

A distance is negative inside, in units of the bird, where u points to the beak and v down. A
shape is evaluated only in a small window around it, which is what makes drawing fast.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Plane = npt.NDArray[np.floating[Any]]  # float32 throughout; mypy cannot follow that
Point = tuple[float, float]


def ellipse(u: Plane, v: Plane, center: Point, radii: Point, tilt: float = 0.0) -> Plane:
    """Distance to an ellipse; exact on its outline, to first order elsewhere."""
    c, s = math.cos(tilt), math.sin(tilt)
    x, y = u - center[0], v - center[1]
    a = ((x * c + y * s) / radii[0]) ** 2
    b = ((y * c - x * s) / radii[1]) ** 2
    reach = np.sqrt(a + b)
    slope = np.sqrt(a / radii[0] ** 2 + b / radii[1] ** 2) + np.float32(1e-6)
    # At the very middle 0 / 0 is left over; it is as deep inside as the ellipse is narrow.
    return np.where(reach < 1e-3, np.float32(-min(radii)), reach * (reach - 1) / slope)


def taper(u: Plane, v: Plane, start: Point, end: Point, wide: float, narrow: float) -> Plane:
    """Distance to a rounded stroke whose half-width goes from `wide` to `narrow`."""
    du, dv = end[0] - start[0], end[1] - start[1]
    x, y = u - start[0], v - start[1]
    along = np.clip((x * du + y * dv) / (du * du + dv * dv), 0, 1)
    return np.sqrt((x - along * du) ** 2 + (y - along * dv) ** 2) - (wide + (narrow - wide) * along)


def polygon(u: Plane, v: Plane, corners: tuple[Point, ...]) -> Plane:
    """Distance to a convex polygon, corners clockwise on the screen; its corners stay sharp."""
    sides = [_side(u, v, a, b) for a, b in zip(corners, corners[1:] + corners[:1])]
    return functools.reduce(np.maximum, sides)


def _side(u: Plane, v: Plane, a: Point, b: Point) -> Plane:
    du, dv = b[0] - a[0], b[1] - a[1]
    length = math.hypot(du, dv)
    return (u - a[0]) * (dv / length) - (v - a[1]) * (du / length)


def union(*shapes: Plane) -> Plane:
    """Everything that is in one of the shapes."""
    return functools.reduce(np.minimum, shapes)


def intersection(shape: Plane, other: Plane) -> Plane:
    """What of a shape lies inside another."""
    both: Plane = np.maximum(shape, other)
    return both


def blend(a: Plane, b: Plane, width: float) -> Plane:
    """The union of two shapes with the crease between them filled, over about `width`."""
    mix = np.clip(np.float32(0.5) + (b - a) / (2 * width), 0, 1)
    return b + (a - b) * mix - width * mix * (1 - mix)


@dataclass(frozen=True)
class Pose:
    """Where each bird is: center and unit in pixels, tilt, and 1 or -1 for right or left."""

    x: Plane
    y: Plane
    scale: Plane
    tilt: Plane
    facing: Plane

    def pixels(self, point: Point) -> tuple[Plane, Plane]:
        """Where a point of the bird lies in every image."""
        c, s = np.cos(self.tilt), np.sin(self.tilt)
        u, v = np.float32(point[0]), np.float32(point[1])
        forward, down = self.scale * (c * u - s * v), self.scale * (s * u + c * v)
        return self.x + self.facing * forward, self.y + down


@dataclass(frozen=True)
class Window:
    """A square of pixels in some of the images, and the bird's coordinates there."""

    rows: npt.NDArray[np.int64]
    flat: npt.NDArray[np.int32]  # [rows, side, side], positions in one flattened channel
    u: Plane
    v: Plane


class Canvas:
    """Float images [3, B, S, S] with a map of the parts [B, S, S], painted back to front."""

    def __init__(self, pixels: Plane, pose: Pose) -> None:
        self.pixels = pixels
        self.pose = pose
        self.size = pixels.shape[-1]
        self.parts = np.zeros(pixels.shape[1:], dtype=np.uint8)

    def window(self, rows: npt.NDArray[np.int64], center: Point, reach: float) -> Window:
        """The pixels within `reach` of a point of the bird, for the birds at `rows`.

        The side depends on the size of the image only, so that a bird never depends on the
        birds it happens to be drawn together with.
        """
        side = min(self.size, math.ceil(2 * reach * LARGEST * self.size) + 2)
        x, y = (np.round(at[rows] - side / 2).astype(np.int64) for at in self.pose.pixels(center))
        left, top = np.clip(x, 0, self.size - side), np.clip(y, 0, self.size - side)
        pixel = np.arange(side, dtype=np.int32)
        middle, pose = pixel + np.float32(0.5), self.pose
        dx = (middle + (left - pose.x[rows])[:, None]) * (pose.facing / pose.scale)[rows, None]
        dy = (middle + (top - pose.y[rows])[:, None]) / pose.scale[rows, None]
        dx, dy = (d.astype(np.float32) for d in (dx[:, None, :], dy[:, :, None]))
        c, s = (f(pose.tilt[rows])[:, None, None] for f in (np.cos, np.sin))
        corner = ((rows * self.size + top) * self.size + left).astype(np.int32)[:, None, None]
        flat = corner + pixel[:, None] * np.int32(self.size) + pixel
        return Window(rows, flat, dx * c + dy * s, dy * c - dx * s)

    def paint(
        self,
        window: Window,
        shape: Plane,
        fill: Plane,
        lead: Plane,
        part: int = 0,
        line: float = 0.035,
    ) -> None:
        """Fill a shape with one color an image, inside an outline of lead of half-width `line`."""
        distance = shape * self.pose.scale[window.rows][:, None, None]
        border = (np.float32(line) * self.pose.scale)[window.rows]
        hit = np.flatnonzero(distance < border[:, None, None] + np.float32(0.5))
        local, at = hit // shape.shape[-1] ** 2, window.flat.reshape(-1)[hit]
        near, border, rows = distance.reshape(-1)[hit], border[local], window.rows[local]
        outer = np.clip(border - near + np.float32(0.5), 0, 1)
        inner = np.clip(np.float32(0.5) - border - near, 0, 1)
        for channel in range(3):
            plane = self.pixels[channel].reshape(-1)
            old, edge, glass = plane[at], lead[:, channel][rows], fill[:, channel][rows]
            plane[at] = old + outer * (edge - old) + inner * (glass - edge)
        # What covers a part hides it: later shapes overwrite the map, with 0 if they are no part.
        self.parts.reshape(-1)[at[outer > 0.5]] = part


SMALLEST, LARGEST = 0.28, 0.37
"""Pixels per unit of the bird as a share of the side of the image, from and to."""
