"""One image of any kind for a run's model: a file, its bytes, an array or a picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from vitrail.config.schema import Data
from vitrail.data.annotated_images import hide_common_regions
from vitrail.data.decoding.decode import Decoder, Payload, UnreadableError, limit_pixels
from vitrail.data.decoding.resize import resize_image
from vitrail.data.records import Record, Records
from vitrail.errors import DataError
from vitrail.runs.new_images import find_images, find_payload
from vitrail.runs.opened_run import Run

SHOWN = 480  # pixels of the longer side that a page keeps of an image
AnyImage: TypeAlias = "str | Path | bytes | Image.Image | npt.NDArray[np.generic]"


@dataclass(frozen=True)
class OpenedImage:
    """An image as it was read: the square the model sees, and a copy to show."""

    size: tuple[int, int]  # height and width of the original
    square: npt.NDArray[np.uint8]  # [S, S, C]
    shown: Image.Image


def open_image(item: Payload, decoder: Decoder, data: Data) -> OpenedImage:
    """One image of any size and color mode, brought to the run's as in training."""
    side, mode = int(data.image_size or 0), "L" if data.channels == 1 else "RGB"
    header = decoder.probe(item, data)
    picture = decoder.picture(item, data, side).convert(mode)
    square = np.asarray(resize_image(picture, side, data.resize), np.uint8).reshape(side, side, -1)
    square = hide_common_regions(square, data.annotations)
    full = decoder.picture(item, data, SHOWN // 2)
    full.thumbnail((SHOWN, SHOWN), Image.Resampling.LANCZOS)
    return OpenedImage((header.height, header.width), square, full)


def open_any_image(run: Run, image: AnyImage, name: str = "image") -> OpenedImage:
    """Open an image for a run; whatever is wrong with it is one sentence."""
    if isinstance(image, OpenedImage):
        return image
    records, data = _find_one(run, image, name)
    try:
        with limit_pixels(data.max_pixels):
            payload = records.rows[0].image
            assert isinstance(payload, Path | bytes | np.ndarray)
            return open_image(payload, records.decoder, data)
    except UnreadableError as err:
        raise DataError(f"this image {err}", where=records.rows[0].name) from None


def _find_one(run: Run, image: AnyImage, name: str) -> tuple[Records, Data]:
    """The image as the only record of a source."""
    if isinstance(image, str | Path):
        records, data = find_images(run, Path(image))
        if len(records) != 1 or not isinstance(records.rows[0].image, Path):
            raise DataError(
                f"these are {len(records)} images, and one is asked about", where=str(image)
            )
        return records, data
    if isinstance(image, Image.Image):
        image = np.asarray(image if image.mode in ("L", "RGB", "I;16") else image.convert("RGB"))
    return find_payload(run, Record(name, image, None))
