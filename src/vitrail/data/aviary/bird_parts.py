"""What a bird looks like: a body all birds share, and four variants of every part.

Every function gives distances in the bird's own coordinates: the body lies around (0, 0), the
head at (0.43, -0.36), the beak to the right and the tail to the left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vitrail.data.aviary.bird_classes import PARTS
from vitrail.data.aviary.bird_shapes import (
    Canvas,
    Plane,
    Point,
    blend,
    ellipse,
    intersection,
    polygon,
    taper,
    union,
)

Shape = Callable[[Plane, Plane], Plane]
HEAD: Point = (0.43, -0.36)


@dataclass(frozen=True)
class Colors:
    """The colors of every bird, [N, 3] each, drawn without regard to its class."""

    lead: Plane
    body: Plane
    wing: Plane
    tail: Plane
    crest: Plane
    beak: Plane
    belly: Plane
    pattern: Plane
    bar: Plane
    leg: Plane


def body(u: Plane, v: Plane) -> Plane:
    """Breast, back and head in one outline."""
    trunk = ellipse(u, v, (0.0, 0.05), (0.56, 0.38), -0.35)
    return blend(trunk, ellipse(u, v, HEAD, (0.27, 0.26)), 0.14)


def wing(u: Plane, v: Plane) -> Plane:
    """A folded wing, pointed to the back."""
    return taper(u, v, (0.0, -0.06), (-0.54, 0.12), 0.2, 0.03)


def belly(u: Plane, v: Plane) -> Plane:
    """The light patch from the throat down, inside the body."""
    patch = ellipse(u, v, (0.26, 0.24), (0.5, 0.27), -0.7)
    return intersection(patch, body(u, v) + np.float32(0.035))


def _cone(u: Plane, v: Plane) -> Plane:
    return polygon(u, v, ((0.62, -0.49), (0.92, -0.34), (0.62, -0.21)))


def _needle(u: Plane, v: Plane) -> Plane:
    return taper(u, v, (0.64, -0.36), (1.18, -0.31), 0.07, 0.02)


def _hook(u: Plane, v: Plane) -> Plane:
    return union(
        taper(u, v, (0.62, -0.38), (0.84, -0.36), 0.12, 0.09),
        taper(u, v, (0.86, -0.35), (0.84, -0.1), 0.08, 0.01),
    )


def _broad(u: Plane, v: Plane) -> Plane:
    return union(
        taper(u, v, (0.64, -0.37), (0.98, -0.4), 0.15, 0.16),
        taper(u, v, (0.98, -0.4), (1.12, -0.2), 0.15, 0.04),
    )


def _spike(u: Plane, v: Plane) -> Plane:
    return polygon(u, v, ((0.26, -0.5), (0.36, -1.08), (0.56, -0.52)))


def _crown(u: Plane, v: Plane) -> Plane:
    tips = ((0.2, -0.83), (0.43, -0.9), (0.66, -0.83))
    return union(*(taper(u, v, (0.42, -0.52), tip, 0.05, 0.07) for tip in tips))


def _plume(u: Plane, v: Plane) -> Plane:
    return union(
        taper(u, v, (0.5, -0.58), (0.18, -0.7), 0.08, 0.1),
        taper(u, v, (0.18, -0.7), (-0.12, -0.5), 0.1, 0.02),
    )


def _bar(at: float) -> Shape:
    return lambda u, v: taper(u, v, (at, -0.26), (at - 0.1, 0.24), 0.055, 0.055)


def _bars(u: Plane, v: Plane) -> Plane:
    return union(_bar(0.1)(u, v), _bar(-0.17)(u, v))


def _dots(u: Plane, v: Plane) -> Plane:
    middles = ((0.08, -0.1), (-0.2, 0.06), (-0.12, -0.1), (0.03, 0.06))
    return union(*(ellipse(u, v, at, (0.065, 0.065)) for at in middles))


def _short(u: Plane, v: Plane) -> Plane:
    return polygon(u, v, ((-0.3, 0.08), (-0.76, 0.12), (-0.8, 0.32), (-0.3, 0.32))[::-1])


def _long(u: Plane, v: Plane) -> Plane:
    return taper(u, v, (-0.36, 0.18), (-1.16, 0.42), 0.12, 0.05)


def _fork(u: Plane, v: Plane) -> Plane:
    return union(
        taper(u, v, (-0.34, 0.16), (-1.06, 0.0), 0.11, 0.02),
        taper(u, v, (-0.34, 0.2), (-0.94, 0.56), 0.11, 0.02),
    )


def _fan(u: Plane, v: Plane) -> Plane:
    return polygon(u, v, ((-0.28, 0.22), (-0.7, 0.68), (-0.96, 0.46), (-1.0, 0.12), (-0.8, -0.14)))


def _spots(u: Plane, v: Plane) -> Plane:
    pitch = np.float32(0.2)
    row = np.floor(v / pitch)
    x = (u + row * pitch / 2) % pitch - pitch / 2
    y = v % pitch - pitch / 2
    distance: Plane = np.sqrt(x * x + y * y) - np.float32(0.062)
    return distance


def _stripes(across: Plane) -> Plane:
    pitch, half = np.float32(0.18), np.float32(0.04)
    distance: Plane = np.abs(across % pitch - pitch / 2) - half
    return distance


def _bands(u: Plane, v: Plane) -> Plane:
    return _stripes(v + np.float32(0.03) + np.float32(0.1) * u)


def _streaks(u: Plane, v: Plane) -> Plane:
    return _stripes(u + np.float32(0.4) * v)


# For every part: the middle and reach of its window, its variants (None draws nothing).
BEAK = ((0.88, -0.33), 0.36, (_cone, _needle, _hook, _broad))
CREST = ((0.3, -0.76), 0.48, (None, _spike, _crown, _plume))
BAR = ((-0.08, -0.02), 0.34, (None, _bar(-0.04), _bars, _dots))
TAIL = ((-0.72, 0.26), 0.54, (_short, _long, _fork, _fan))
BELLY = ((0.3, 0.2), 0.48, (None, _spots, _bands, _streaks))
Part = tuple[Point, float, tuple[Shape | None, ...]]


def paint_bird(canvas: Canvas, variants: npt.NDArray[np.int64], colors: Colors) -> None:
    """Paint every bird of the canvas, back to front, with the variants [B, parts] it has."""
    everyone = np.arange(len(variants))
    _paint_variants(canvas, TAIL, "tail", variants, colors.tail, colors.lead)
    _paint_variants(canvas, CREST, "crest", variants, colors.crest, colors.lead)
    area = canvas.window(everyone, (0.1, -0.03), 0.68)
    legs = union(
        taper(area.u, area.v, (0.08, 0.3), (0.1, 0.66), 0.035, 0.03),
        taper(area.u, area.v, (-0.08, 0.3), (-0.06, 0.66), 0.035, 0.03),
    )
    canvas.paint(area, legs, colors.leg, colors.leg, line=0.0)
    canvas.paint(area, body(area.u, area.v), colors.body, colors.lead)
    area = canvas.window(everyone, BELLY[0], BELLY[1])
    index = 1 + PARTS.index("belly")
    canvas.paint(area, belly(area.u, area.v), colors.belly, colors.lead, index, line=0.0)
    _paint_variants(canvas, BELLY, "belly", variants, colors.pattern, None, belly)
    area = canvas.window(everyone, (-0.14, 0.05), 0.48)
    canvas.paint(area, wing(area.u, area.v), colors.wing, colors.lead)
    _paint_variants(canvas, BAR, "wing bar", variants, colors.bar, None, wing)
    _paint_variants(canvas, BEAK, "beak", variants, colors.beak, colors.lead)
    _paint_eye(canvas, everyone)


def _paint_variants(
    canvas: Canvas,
    part: Part,
    name: str,
    variants: npt.NDArray[np.int64],
    fill: Plane,
    lead: Plane | None,
    within: Shape | None = None,
) -> None:
    """Paint each variant of a part on the birds that have it, clipped to `within` if given."""
    center, reach, shapes = part
    index = PARTS.index(name)
    for variant, shape in enumerate(shapes):
        rows = np.flatnonzero(variants[:, index] == variant)
        if shape is None or not len(rows):
            continue
        area = canvas.window(rows, center, reach)
        distance = shape(area.u, area.v)
        if within is not None:
            distance = intersection(distance, within(area.u, area.v) + np.float32(0.02))
        line = 0.0 if lead is None else 0.035
        canvas.paint(area, distance, fill, fill if lead is None else lead, 1 + index, line)


def _paint_eye(canvas: Canvas, rows: npt.NDArray[np.int64]) -> None:
    area = canvas.window(rows, (0.5, -0.41), 0.13)
    rings = (
        (0.095, 0.97, (0.5, -0.41)),
        (0.062, 0.05, (0.515, -0.41)),
        (0.02, 1.0, (0.535, -0.435)),
    )
    for radius, shade, at in rings:
        color = np.full((len(rows), 3), shade, dtype=np.float32)
        canvas.paint(area, ellipse(area.u, area.v, at, (radius, radius)), color, color, line=0.0)
