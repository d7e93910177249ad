"""What a user plugs into sharing: regions that are never shared, and distances between images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.errors import ConfigError
from vitrail.registry import Registry

Pixels = npt.NDArray[np.uint8]
Box = Sequence[float]  # x0, y0, x1, y1 as shares of width and height
Detector = Callable[[Pixels], npt.NDArray[np.bool_]]  # [N, H, W, C] -> [N, H, W], True: never
Embedding = Callable[[Tensor], Tensor]  # [N, H, W, C] in [0, 1] -> [N, D]

DETECTORS: Registry[Detector] = Registry("detector", "method.detector")
EMBEDDINGS: Registry[Embedding] = Registry("embedding", "method.embedding")


@EMBEDDINGS.register("pixels")
def pixels(images: Tensor) -> Tensor:
    """The image itself: distances are those between pixels."""
    return images.flatten(1)


def inside(box: Box, height: int, width: int) -> Tensor:
    """The pixels whose middle lies in a box, [H, W] of bool; a box that holds none is an error."""
    x0, y0, x1, y1 = box
    x = (torch.arange(width) + 0.5) / width
    y = (torch.arange(height) + 0.5) / height
    found = ((y >= y0) & (y < y1))[:, None] & ((x >= x0) & (x < x1))
    if not bool(found.any()):
        raise ConfigError(
            f"the box {list(box)} holds no pixel of an image of {width} x {height}",
            where="method",
            hint="Boxes are [x0, y0, x1, y1] as shares of width and height, from 0 to 1.",
        )
    return found


def embedded(name: str, images: Tensor) -> Tensor:
    """Images [N, H, W, C] in a user's coordinates, [N, D]."""
    found = torch.as_tensor(EMBEDDINGS[name](images))
    if found.dim() != 2 or len(found) != len(images) or not found.is_floating_point():
        raise ConfigError(
            f"it gives {found.dtype} of shape {list(found.shape)}, not floating numbers of shape "
            f"[{len(images)}, D]",
            where=f"embedding {name!r}",
        )
    return found


def never_shared(images: Pixels, boxes: Sequence[Box], detector: str | None) -> Tensor:
    """Where boxes or a detector forbid every pixel, [N, H, W] of bool."""
    count, height, width = images.shape[:3]
    found = torch.zeros(count, height, width, dtype=torch.bool)
    for box in boxes:
        found |= inside(box, height, width)
    if detector is not None and count:
        seen = np.asarray(DETECTORS[detector](images))
        if seen.shape != images.shape[:3] or seen.dtype != np.bool_:
            raise ConfigError(
                f"it gives {seen.dtype} of shape {list(seen.shape)}, not bool of shape "
                f"{list(images.shape[:3])}",
                where=f"detector {detector!r}",
            )
        found |= torch.from_numpy(seen)
    return found
