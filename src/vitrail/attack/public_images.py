"""Public images of an attacker: any data source, at the size of the run's images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.inspect.guess import guess_data
from vitrail.data.load_images import load
from vitrail.errors import DataError
from vitrail.rng import derive_server_key


def read_public_images(path: Path, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    """All images at `path` as uint8 [N, S, S, C], at the size and channels of `shape`.

    It is on whoever calls this to name images that no site holds.
    """
    if not path.exists():
        raise DataError("there are no public images here", where=str(path))
    channels, size, _ = shape
    section: Data = guess_data(path).model_copy(
        update={"image_size": size, "channels": channels, "path": str(path.resolve())}
    )
    return load(section, Path.cwd(), derive_server_key(0).at("public")).images
