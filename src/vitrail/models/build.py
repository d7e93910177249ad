"""Networks by name: a backbone alone, or as a plain classifier with a linear head."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import vitrail.models.backbones  # noqa: F401  registers the backbones
from vitrail import rng
from vitrail.errors import ConfigError
from vitrail.models.backbone import BACKBONES, Backbone, Norm


def build(
    name: str,
    classes: int,
    in_channels: int = 3,
    width: int | None = None,
    norm: Norm = "batch",
    key: rng.Key | None = None,
) -> Backbone:
    """A plain classifier: the backbone and its family's linear layer, images to logits.

    The same key gives the same weights to the bit; without one they come from torch's global
    generator. The backbone's weights do not depend on the number of classes.
    """
    if classes < 1:
        raise ConfigError(f"a classifier needs at least one class, not {classes}")
    with _seed_from(key):
        return build_backbone(name, in_channels, width, norm).with_classifier(classes)


def build_backbone(
    name: str,
    in_channels: int = 3,
    width: int | None = None,
    norm: Norm = "batch",
    key: rng.Key | None = None,
) -> Backbone:
    """The backbone alone, images to a map of features."""
    if in_channels < 1:
        raise ConfigError(f"images need at least one channel, not {in_channels}")
    builder = BACKBONES[name]
    with _seed_from(key):
        return builder(in_channels, width, norm)


def _seed_from(key: rng.Key | None) -> AbstractContextManager[None]:
    return nullcontext() if key is None else rng.seed_torch(key)
