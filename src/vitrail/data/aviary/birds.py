"""The embedded data set: birds in a stained-glass manner, drawn by our own code from a seed.

Classes differ in parts only (beak, crest, wing bar, tail, belly). Pose, place, plumage colors
and light are drawn without regard to the class. The truth about the parts comes with the
images: `extra["part_boxes"]` [N, parts, 4] as (x0, y0, x1, y1) in pixels, NaN where a part
cannot be seen, and `extra["part_mask"]` [N, S, S], the index of the part plus one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail import rng
from vitrail.config.schema import Data
from vitrail.data.aviary import bird_scene as scene
from vitrail.data.aviary.bird_classes import PARTS, draw_variants, find_differences, name_classes
from vitrail.data.aviary.bird_parts import paint_bird
from vitrail.data.aviary.bird_scene import Rows
from vitrail.data.aviary.bird_shapes import Canvas, Plane
from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import SOURCES
from vitrail.errors import ConfigError

__all__ = ["PARTS", "derive_aviary_key", "draw_birds", "embedded", "find_discriminating_parts"]

Bytes = npt.NDArray[np.uint8]

_TOGETHER = 2**19  # pixels drawn at once: the working set stays near the processor


def derive_aviary_key(seed: int) -> rng.Key:
    """The key that the source "embedded" draws from, by `data.aviary.seed`."""
    return rng.derive_server_key(seed).at("aviary")


def find_discriminating_parts(classes: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which parts tell class a from class b, [classes, classes, parts], by `data.aviary.seed`."""
    return find_differences(draw_variants(classes, derive_aviary_key(seed)))


@SOURCES.register("embedded", needs_path=False)
def embedded(data: Data, path: Path, key: rng.Key) -> ImageSet:  # noqa: ARG001
    """The source "embedded": it has a seed of its own, so that other runs see the same birds."""
    for name in ("path", "classes", "positive"):
        if getattr(data, name) is not None:
            raise ConfigError(
                f'data.source = "embedded" draws its own birds and has no use for data.{name}',
                where=f"data.{name}",
                hint="Leave it out, or name the source of your own images; a federation whose "
                "images are elsewhere is started with `vitrail flower server`.",
            )
    options, size = data.aviary, data.image_size or 64
    birds = draw_birds(options.images, options.classes, derive_aviary_key(options.seed), size)
    if data.channels != 1:
        return birds
    gray = birds.images @ np.array([0.299, 0.587, 0.114], dtype=np.float32) + np.float32(0.5)
    return replace(birds, images=gray.astype(np.uint8)[..., None])


def draw_birds(images: int, classes: int, key: rng.Key, size: int = 64) -> ImageSet:
    """Draw birds of `classes` classes in equal numbers (to within one).

    Image i depends on the key, the classes, the size and i, not on how many are drawn.
    """
    table = draw_variants(classes, key)
    labels = _labels(images, classes, key)
    uniform = key.at("scene").numpy()
    grain = key.at("grain").numpy()
    pictures = np.empty((images, size, size, 3), dtype=np.uint8)
    parts = np.empty((images, size, size), dtype=np.uint8)
    step = max(1, _TOGETHER // size**2)
    for start in range(0, images, step):
        part = slice(start, min(start + step, images))
        r = uniform.random((part.stop - start, 55), dtype=np.float32)
        noise = grain.standard_normal((len(r), size, size), dtype=np.float32)
        pictures[part], parts[part] = _render(table[labels[part]], r, noise)
    return ImageSet(
        images=pictures,
        labels=labels,
        classes=name_classes(table),
        names=np.array([f"bird-{i:06d}" for i in range(images)], dtype=np.str_),
        extra={"part_boxes": _boxes(parts), "part_mask": parts},
        public=True,
    )


def _labels(images: int, classes: int, key: rng.Key) -> Rows:
    """Every class once in each run of `classes` images, shuffled within the run."""
    runs = -(-images // classes)
    order = np.argsort(key.at("labels").numpy().random((runs, classes)), axis=1)
    return order.reshape(-1)[:images].astype(np.int64)


def _render(variants: Rows, r: Plane, noise: Plane) -> tuple[Bytes, Bytes]:
    """Paint one batch; `r` holds the uniform numbers each part of the scene takes."""
    size = noise.shape[1]
    canvas = Canvas(scene.paint_background(r[:, :24], size), scene.make_pose(r[:, 24:29], size))
    scene.paint_branch(canvas, r[:, 29:33])
    paint_bird(canvas, variants, scene.make_colors(r[:, 33:49]))
    return scene.apply_light(canvas.pixels, r[:, 49:55], noise), canvas.parts


def _boxes(mask: Bytes) -> npt.NDArray[np.float32]:
    """The smallest box around the visible pixels of every part."""
    boxes = np.full((len(mask), len(PARTS), 4), np.nan, dtype=np.float32)
    for index in range(len(PARTS)):
        here = mask == index + 1
        for axis, low, high in ((1, 0, 2), (2, 1, 3)):
            line = here.any(axis=axis)
            rows = np.flatnonzero(line.any(axis=1))
            boxes[rows, index, low] = line[rows].argmax(axis=1)
            boxes[rows, index, high] = line.shape[1] - line[rows, ::-1].argmax(axis=1)
    return boxes
