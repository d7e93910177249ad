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


def make_box_mask(box: Box, height: int, width: int) -> Tensor:
    """The pixels whose middle lies in a box, [H, W] of bool; a box that holds none is an error."""
    x0, y0, x1, y1 = box
    x = (torch.arange(width) + 0.5) / width
    y = (torch.arange(height) + 0.5) / height
    inside = ((y >= y0) & (y < y1))[:, None] & ((x >= x0) & (x < x1))
    if not bool(inside.any()):
        raise ConfigError(
            f"the box {list(box)} holds no pixel of an image of {width} x {height}",
            where="method",
            hint="Boxes are [x0, y0, x1, y1] as shares of width and height, from 0 to 1.",
        )
    return inside


def embed_images(name: str, images: Tensor) -> Tensor:
    """Images [N, H, W, C] in a user's coordinates, [N, D]."""
    points = torch.as_tensor(EMBEDDINGS[name](images))
    if points.dim() != 2 or len(points) != len(images) or not points.is_floating_point():
        raise ConfigError(
            f"it gives {points.dtype} of shape {list(points.shape)}, not floating numbers "
            f"of shape [{len(images)}, D]",
            where=f"embedding {name!r}",
        )
    return points


def find_forbidden_pixels(images: Pixels, boxes: Sequence[Box], detector: str | None) -> Tensor:
    """Where boxes or a detector forbid every pixel, [N, H, W] of bool."""
    count, height, width = images.shape[:3]
    forbidden = torch.zeros(count, height, width, dtype=torch.bool)
    for box in boxes:
        forbidden |= make_box_mask(box, height, width)
    if detector is not None and count:
        detected = np.asarray(DETECTORS[detector](images))
        if detected.shape != images.shape[:3] or detected.dtype != np.bool_:
            raise ConfigError(
                f"it gives {detected.dtype} of shape {list(detected.shape)}, not bool of shape "
                f"{list(images.shape[:3])}",
                where=f"detector {detector!r}",
            )
        forbidden |= torch.from_numpy(detected)
    return forbidden
