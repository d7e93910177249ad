"""The public images of a federation: held by the server, of the sites' size and channels."""

from __future__ import annotations

from pathlib import Path

from vitrail.config.schema import Data
from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import SOURCES, load
from vitrail.errors import DataError, VitrailError
from vitrail.rng import Key

SECTION = "data.public"


def load_public(config: Data, base: Path, shape: tuple[int, int, int], key: Key) -> ImageSet:
    """The images that `[data.public]` describes, which must have the shape [H, W, C] of the sites'.

    They are never converted unless the section says so itself; a source that draws its images
    draws them at whatever size is wanted.
    """
    if not SOURCES.needs_path(config.source):
        wanted = {"image_size": config.image_size or shape[0]}
        if config.channels is None and shape[2] == 1:
            wanted["channels"] = 1
        config = config.model_copy(update=wanted)
    try:
        images = load(config, base, key)
    except VitrailError as err:
        err.where = err.where.replace("data.", f"{SECTION}.", 1) if err.where else SECTION
        err.args = (err.sentence(),)
        raise
    if images.images.shape[1:] != shape:
        raise DataError(
            f"public images are {_format_shape(images.images.shape[1:])} and the sites' are "
            f"{_format_shape(shape)}",
            where=SECTION,
            hint=f"Set {SECTION}.image_size = {shape[0]} and {SECTION}.channels = {shape[2]} to "
            "have them converted, or name other images.",
        )
    return images


def _format_shape(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]} {'gray' if shape[2] == 1 else 'RGB'}"
