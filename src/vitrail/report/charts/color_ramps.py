"""Colors of maps: from dark to bright for what is active, from blue to red for what has a sign."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ramp = tuple[tuple[int, int, int], ...]

# Lightness rises all the way, so that the order survives gray paper and color-blind eyes.
HEAT: Ramp = ((58, 16, 96), (120, 28, 109), (176, 52, 88), (222, 84, 52), (247, 141, 22),
              (252, 200, 56), (250, 240, 150))  # fmt: skip
SIGNED: Ramp = ((16, 66, 130), (88, 150, 200), (190, 214, 230), (247, 246, 244), (244, 200, 176),
                (214, 104, 84), (130, 16, 40))  # fmt: skip


def color_levels(ramp: Ramp, levels: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Levels from 0 to 1 of any shape as RGB, straight between the colors of the ramp."""
    at = np.linspace(0.0, 1.0, len(ramp))
    clipped = np.clip(np.nan_to_num(levels), 0.0, 1.0)
    channels = [np.interp(clipped, at, [color[i] for color in ramp]) for i in range(3)]
    colors: npt.NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return colors
