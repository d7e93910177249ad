"""Which features of an image belong together: a unit is what one direction is learned on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

Kind = Literal["place", "image-wide", "anywhere"]
Share = tuple[float, float, float, float]  # x0, y0, x1, y1 as shares of width and height
_JOINT = 48  # features at most whose correlations are told
_WINDOWS = (1, 2, 4)  # cells a side: marks have several sizes


@dataclass(frozen=True)
class Unit:
    """Some columns of the features: one place or the whole image, in one family.

    `box` is where the unit looks, None for what is image-wide or anywhere. `joint` says that
    sites also tell how its features go together: few of them, and closely related.
    """

    family: str
    kind: Kind
    columns: npt.NDArray[np.int64]
    box: Share | None = None
    joint: bool = False


@dataclass(frozen=True)
class Block:
    """The features of one family, [N, ...], and the units in it by columns of the flat block."""

    values: Tensor  # [N, columns]
    units: tuple[Unit, ...]


def make_place_block(family: str, maps: Tensor) -> Block:
    """Maps [N, D, h, w]: a unit for every window of 1, 2 and 4 cells a side, overlapping."""
    _, depth, height, width = maps.shape
    at = np.arange(depth * height * width).reshape(depth, height, width)
    units = []
    for side in _WINDOWS:
        if side > 1 and side >= min(height, width):
            continue
        step = max(1, side // 2)
        for y in range(0, height - side + 1, step):
            for x in range(0, width - side + 1, step):
                box = (x / width, y / height, (x + side) / width, (y + side) / height)
                columns = at[:, y : y + side, x : x + side].reshape(-1)
                units.append(Unit(family, "place", columns, box))
    return Block(maps.flatten(1), tuple(units))


def make_whole_block(family: str, kind: Kind, values: Tensor) -> Block:
    """Features [N, D] of an image as a whole: one unit."""
    width = values.shape[1]
    return Block(values, (Unit(family, kind, np.arange(width), joint=width <= _JOINT),))


def join_units(blocks: Sequence[Block]) -> tuple[Unit, ...]:
    """The units of several blocks that stand side by side."""
    units, start = [], 0
    for block in blocks:
        for unit in block.units:
            units.append(replace(unit, columns=unit.columns + start))
        start += block.values.shape[1]
    return tuple(units)
