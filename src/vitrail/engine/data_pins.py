"""The images of a run at a site are pinned when it begins there: what comes later waits.

Noise hides a release once. Were the same message answered again on other images with the same
noise, the difference of both answers would tell what changed. So noise depends on a digest of the
images, and a run goes on with the images it began with, or not at all. Digests are made under the
site's secret: whoever knows all images but one could try candidates for that one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import DataError
from vitrail.files import write_json
from vitrail.rng import Key

PINS_FILE = "pinned-images.json"
_PART = 512  # images that are read at once


def digest_images(
    images: npt.NDArray[np.uint8], labels: npt.NDArray[np.int64], rows: SiteRows, secret: Key
) -> str:
    """A digest of a site's images and labels, in training and in test."""
    hasher = hashlib.blake2b(key=secret.at("images of a site").secret(), digest_size=16)
    for part in (rows.train, rows.test):
        hasher.update(len(part).to_bytes(8, "little") + labels[part].tobytes())
        for start in range(0, len(part), _PART):
            hasher.update(np.ascontiguousarray(images[part[start : start + _PART]]).data)
    return hasher.hexdigest()


def digest_each_image(images: ImageSet, secret: Key) -> list[str]:
    """A digest of each image with its class, patient and part."""
    key = secret.at("images one by one").secret()
    digests = []
    for row in range(len(images)):
        facts = [images.classes[images.labels[row]], *_list_facts(images, row)]
        hasher = hashlib.blake2b(json.dumps(facts).encode(), key=key, digest_size=16)
        hasher.update(np.ascontiguousarray(images.images[row]).data)
        digests.append(hasher.hexdigest())
    return digests


def _list_facts(images: ImageSet, row: int) -> list[str | None]:
    columns = (images.patients, images.splits, images.sites)
    return [None if column is None else str(column[row]) for column in columns]


def write_pins(images: ImageSet, folder: Path, secret: Key) -> None:
    """Write down the images that a run begins with."""
    names = [str(name) for name in images.names]
    pins = list(zip(names, digest_each_image(images, secret), strict=True))
    write_json(folder / PINS_FILE, {"classes": list(images.classes), "images": pins})


def take_pinned(images: ImageSet, folder: Path, secret: Key) -> ImageSet:
    """The images that the run began with, in their order; all of them where nothing is pinned.

    New ones wait for the next run; one that changed or is gone is refused.
    """
    file = folder / PINS_FILE
    if not file.exists():
        return images
    pinned = json.loads(file.read_text(encoding="utf-8"))
    digests = digest_each_image(images, secret)
    places: dict[str, list[int]] = {}
    for row, name in enumerate(images.names):
        places.setdefault(str(name), []).append(row)
    rows, changed, gone = [], list[str](), list[str]()
    for name, digest in pinned["images"]:
        left = places.get(name, [])
        same = [row for row in left if digests[row] == digest]
        if same:
            rows.append(same[0])
            left.remove(same[0])
        else:
            (changed if left else gone).append(name)
    if changed or gone:
        raise _refuse(changed, gone)
    taken = images.take(np.array(rows, np.int64))
    classes = tuple(pinned["classes"])
    numbers = [classes.index(images.classes[label]) for label in taken.labels]
    return replace(taken, labels=np.array(numbers, np.int64), classes=classes)


def _refuse(changed: list[str], gone: list[str]) -> DataError:
    kinds = [f"{len(n)} {word} ({n[0]})" for word, n in (("changed", changed), ("gone", gone)) if n]
    return DataError(
        f"of the images that this run began with, {' and '.join(kinds)}",
        where="data",
        hint="Put them back as they were, or start a new run: noise hides a release once.",
    )
