"""What people said must not leave, obeyed by every method that shares images."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from vitrail.local.inputs import Inputs, Rows


def drop_withheld(inputs: Inputs, rows: Rows) -> Rows:
    """The rows without images that are not to be shared at all."""
    if inputs.unshared is None:
        return rows
    whole = (inputs.unshared[:, 1:] == (0.0, 0.0, 1.0, 1.0)).all(1)
    return rows[~np.isin(rows, inputs.unshared[whole, 0].astype(np.int64))]


def find_withheld_pixels(inputs: Inputs, rows: Rows) -> Tensor:
    """Which pixels of some rows are not to be shared, [N, H, W] of bool."""
    height, width = inputs.images.shape[1:3]
    withheld = torch.zeros(len(rows), height, width, dtype=torch.bool)
    if inputs.unshared is None:
        return withheld
    places = {int(row): at for at, row in enumerate(rows)}
    for row, x0, y0, x1, y1 in inputs.unshared.tolist():
        at = places.get(int(row))
        if at is not None:
            top, bottom = int(np.floor(y0 * height)), int(np.ceil(y1 * height))
            left, right = int(np.floor(x0 * width)), int(np.ceil(x1 * width))
            withheld[at, top:bottom, left:right] = True
    return withheld
