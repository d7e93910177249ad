"""What does not depend on the class of a bird: its pose, its colors, the place and the light."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vitrail.data.aviary.bird_parts import Colors
from vitrail.data.aviary.bird_shapes import LARGEST, SMALLEST, Canvas, Plane, Pose

Rows = npt.NDArray[np.int64]


def hsv_to_rgb(hue: Plane, saturation: Plane, value: Plane) -> Plane:
    """Colors [N, 3] from hue (any real number, a turn is 1), saturation and value."""
    sector = (hue[:, None] * 6 + np.array([0, 4, 2], dtype=np.float32)) % 6
    pure = np.clip(np.abs(sector - 3) - 1, 0, 1)
    return np.asarray(value[:, None] * (1 - saturation[:, None] * (1 - pure)), dtype=np.float32)


def make_pose(r: Plane, size: int) -> Pose:
    """Position, scale, tilt and facing from uniform numbers [N, 5], inside the picture."""
    scale = (SMALLEST + (LARGEST - SMALLEST) * r[:, 2]) * size
    facing = np.where(r[:, 4] < 0.5, -1, 1)
    room = np.maximum(0.05 * size, size / 2 - 1.12 * scale)
    x = size / 2 + (2 * r[:, 0] - 1) * room
    # A crest reaches higher than legs reach down.
    y = scale + r[:, 1] * (size - 1.8 * scale)
    columns = (x, y, scale, (2 * r[:, 3] - 1) * 0.35, facing)
    return Pose(*(np.asarray(column, dtype=np.float32) for column in columns))


def make_colors(r: Plane) -> Colors:
    """Plumage from uniform numbers [N, 16]: every color is free of the class."""
    hue, accent = r[:, 0], r[:, 1]
    light_value, dark_value = 0.82 + 0.18 * r[:, 3], 0.18 + 0.22 * r[:, 4]
    # A dark pattern on a light belly, or the other way round.
    belly, on_belly = np.where(r[:, 2] < 0.5, (light_value, dark_value), (dark_value, light_value))
    saturation, value = 0.4 + 0.5 * r[:, 5], 0.45 + 0.4 * r[:, 6]
    return Colors(
        lead=hsv_to_rgb(r[:, 15], 0.5 * r[:, 14], 0.04 + 0.1 * r[:, 7]),
        body=hsv_to_rgb(hue, saturation, value),
        wing=hsv_to_rgb(hue + 0.16 * (r[:, 8] - 0.5), saturation, value * 0.62),
        tail=hsv_to_rgb(np.where(r[:, 8] < 0.5, hue, accent), saturation, value * 0.85),
        crest=hsv_to_rgb(np.where(r[:, 9] < 0.5, hue, accent), saturation, value),
        beak=hsv_to_rgb(0.02 + 0.14 * r[:, 10], 0.9 * r[:, 11], 0.35 + 0.6 * r[:, 12]),
        belly=hsv_to_rgb(accent, 0.1 + 0.4 * r[:, 13], belly),
        pattern=hsv_to_rgb(hue + 0.3 * r[:, 10], 0.1 + 0.5 * r[:, 14], on_belly),
        bar=hsv_to_rgb(accent, 0.35 * r[:, 9], 0.85 + 0.15 * r[:, 13]),
        leg=hsv_to_rgb(0.06 + 0.06 * r[:, 10], 0.6 * r[:, 11], 0.25 + 0.3 * r[:, 12]),
    )


def paint_background(r: Plane, size: int) -> Plane:
    """Pictures [3, N, S, S] of a place, from uniform numbers [N, 24]: sky, foliage or glass."""
    ramp = np.linspace(0, 1, size, dtype=np.float32)[:, None]
    top = hsv_to_rgb(r[:, 1], 0.15 + 0.5 * r[:, 2], 0.45 + 0.5 * r[:, 3]).T[:, :, None, None]
    bottom = hsv_to_rgb(r[:, 4], 0.6 * r[:, 5], 0.6 + 0.4 * r[:, 6]).T[:, :, None, None]
    place = np.repeat(top + (bottom - top) * ramp, size, axis=3)
    kind = np.floor(r[:, 0] * 3)
    for number, paint in enumerate((_clouds, _foliage, _panes)):
        rows = np.flatnonzero(kind == number)
        place[:, rows] = paint(np.take(place, rows, axis=1), r[rows])
    return place


def _grid(size: int) -> tuple[Plane, Plane]:
    steps = (np.arange(size, dtype=np.float32) + 0.5) / size
    return steps[None, None, :], steps[None, :, None]


def _clouds(place: Plane, r: Plane) -> Plane:
    """Three soft bright spots, one of them perhaps the sun."""
    x, y = _grid(place.shape[-1])
    for i in (7, 10, 13):
        at_x, at_y, wide = (r[:, i + j, None, None] for j in range(3))
        # A soft spot is a product of two bells, and bells of one variable are cheap.
        across, down = (x - at_x) / (0.12 + 0.2 * wide), (y - at_y) / (0.06 + 0.1 * wide)
        place += np.exp(-(across**2)) * np.exp(-(down**2)) * (1 - place) * np.float32(0.6)
    return place


def _foliage(place: Plane, r: Plane) -> Plane:
    """Six leaves of neighboring hues, behind one another."""
    size = place.shape[-1]
    x, y = _grid(size)
    for i in range(7, 19, 2):
        a, b = r[:, i, None, None], r[:, i + 1, None, None]
        turn = np.pi * (a * 7 + b * 5)
        c, s = np.cos(turn), np.sin(turn)
        along, over = c * (x - a) + s * (y - b), c * (y - b) - s * (x - a)
        # The overlap of two discs is a leaf with two tips.
        radius = 0.24 + 0.08 * np.sin(9 * turn)
        leaf = np.sqrt(along**2 + (np.abs(over) + np.float32(0.14)) ** 2) - radius
        shade = hsv_to_rgb(
            r[:, 19] + 0.2 * r[:, i], 0.35 + 0.5 * r[:, 20], 0.25 + 0.5 * r[:, i + 1]
        )
        hit = np.flatnonzero(leaf * size < 0.5)
        cover, rows = np.clip(0.5 - leaf.reshape(-1)[hit] * size, 0, 1), hit // size**2
        for channel in range(3):
            plane = place[channel].reshape(-1)
            old = plane[hit]
            plane[hit] = old + cover * (shade[:, channel][rows] - old)
    return place


def _panes(place: Plane, r: Plane) -> Plane:
    """Four cuts across a window: panes of different brightness with lead between them."""
    size = place.shape[-1]
    x, y = _grid(size)
    gain = np.ones((len(r), size, size), dtype=np.float32)
    lead = np.zeros_like(gain)
    for i in range(7, 19, 3):
        turn, at_x, at_y = (r[:, i + j, None, None] for j in range(3))
        cut = (np.cos(np.pi * turn) * (x - at_x) + np.sin(np.pi * turn) * (y - at_y)) * size
        gain *= 1 + np.float32(0.14) * np.clip(cut, -1, 1)
        lead = np.maximum(lead, np.clip(np.float32(1.2) - np.abs(cut), 0, 1))
    return place * (gain * (1 - np.float32(0.8) * lead))


def paint_branch(canvas: Canvas, r: Plane) -> None:
    """A branch under the feet of four birds in five, from uniform numbers [N, 4]."""
    rows = np.flatnonzero(r[:, 0] < 0.8)
    area = canvas.window(rows, (0.0, 0.7), 4.0)
    # The branch keeps to the bird's feet and takes a slope of its own.
    slope = ((r[rows, 1] - 0.5) * 0.5)[:, None, None]
    bark = hsv_to_rgb(0.05 + 0.05 * r[:, 2], 0.3 + 0.4 * r[:, 2], 0.2 + 0.35 * r[:, 3])
    shape = np.abs(area.v - slope * area.u - np.float32(0.7)) - np.float32(0.08)
    canvas.paint(area, shape, bark, np.float32(0.4) * bark)


def apply_light(pictures: Plane, r: Plane, noise: Plane) -> npt.NDArray[np.uint8]:
    """Brightness, tint, a gradient of light and grain, from uniform numbers [N, 6]; then 8 bits.

    Takes pictures [3, N, S, S] and gives images [N, S, S, 3].
    """
    x, y = _grid(pictures.shape[-1])
    turn = 2 * np.pi * r[:, 0, None, None]
    slope = 1 + 0.3 * r[:, 1, None, None] * (np.cos(turn) * (x - 0.5) + np.sin(turn) * (y - 0.5))
    gain = (255 * (0.75 + 0.35 * r[:, 2, None, None]) * slope).astype(np.float32)
    grain = noise * (255 * 0.035 * r[:, 4, None, None]).astype(np.float32) + np.float32(0.5)
    warm = 0.12 * (r[:, 3, None, None] - np.float32(0.5))
    images = np.empty((len(r), *noise.shape[1:], 3), dtype=np.uint8)
    for channel, tint in enumerate((1 + warm, np.ones_like(warm), 1 - warm)):
        images[..., channel] = np.clip(pictures[channel] * (gain * tint) + grain, 0, 255)
    return images
