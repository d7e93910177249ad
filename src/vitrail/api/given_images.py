"""Images as a notebook has them: a path, a picture, or arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from vitrail.data.decoding.decode import UnreadableError
from vitrail.data.decoding.resize import resize_image
from vitrail.errors import DataError
from vitrail.report.explain_images import Gallery
from vitrail.runs.open_image import SHOWN, OpenedImage
from vitrail.runs.opened_run import Run
from vitrail.runs.predict_images import Predictions, predict, predict_probabilities

GivenImages = str | Path | Image.Image | npt.NDArray[np.uint8] | Sequence[Any]


def predict_given(
    run: Run, images: GivenImages, site: str | None, overrides: Sequence[str]
) -> Predictions:
    """Probabilities of whatever was given, one row an image."""
    if isinstance(images, str | Path):
        return predict(run, images, site, overrides)
    pictures = _list_pictures(images)
    model = run.model(site)
    squares = [_to_square(run, picture) for picture in pictures]
    side, depth = int(run.card["image_size"]), int(run.card["channels"])
    pixels = np.stack(squares) if squares else np.empty((0, side, side, depth), np.uint8)
    names = tuple(f"image {number}" for number in range(len(pictures)))
    probabilities = predict_probabilities(model, pixels)
    return Predictions(names, probabilities, model.classes, ("",) * len(names))


def open_given_image(run: Run, image: GivenImages) -> tuple[str, OpenedImage]:
    """One image and its name."""
    if isinstance(image, str | Path):
        for name, opened in Gallery.find(run, Path(image)).open():
            if isinstance(opened, UnreadableError):
                raise DataError(f"{name} {opened}", where=str(image))
            return name, opened
        raise DataError("there is no image here", where=str(image))
    pictures = _list_pictures(image)
    if len(pictures) != 1:
        raise DataError(
            f"one image is explained at a time, and these are {len(pictures)}",
            hint="Ask for them one after the other.",
        )
    shown = pictures[0].copy()
    shown.thumbnail((SHOWN, SHOWN), Image.Resampling.LANCZOS)
    size = (pictures[0].height, pictures[0].width)
    return "image", OpenedImage(size, _to_square(run, pictures[0]), shown)


def _to_square(run: Run, picture: Image.Image) -> npt.NDArray[np.uint8]:
    side, depth = int(run.card["image_size"]), int(run.card["channels"])
    picture = picture.convert("L" if depth == 1 else "RGB")
    square = resize_image(picture, side, run.card["resize"])
    return np.asarray(square, np.uint8).reshape(side, side, depth)


def _list_pictures(images: Any) -> list[Image.Image]:
    """Pictures of arrays or pictures; what is neither is refused."""
    if isinstance(images, Image.Image):
        return [images]
    if isinstance(images, np.ndarray):
        if images.dtype != np.uint8:
            raise DataError(
                f"pixels must be whole numbers from 0 to 255 (uint8), and these are {images.dtype}",
                hint="Scale them: (255 * x).astype('uint8').",
            )
        if images.ndim in (2, 3) and (images.ndim == 2 or images.shape[-1] in (1, 3)):
            images = images[None]
        if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[-1] not in (1, 3)):
            raise DataError(
                f"an array of shape {images.shape} holds no images",
                hint="Give [H, W], [H, W, C] or [N, H, W, C] with 1 or 3 channels.",
            )
        squeezed = (a[..., 0] if a.ndim == 3 and a.shape[-1] == 1 else a for a in images)
        return [Image.fromarray(a) for a in squeezed]
    if isinstance(images, Sequence) and not isinstance(images, str | bytes):
        return [picture for one in images for picture in _list_pictures(one)]
    raise DataError(
        f"{type(images).__name__} is no image",
        hint="Give a path, a PIL image, or an array of uint8.",
    )
