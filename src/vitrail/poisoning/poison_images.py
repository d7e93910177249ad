"""What hostile sites do to their own training images and labels before a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vitrail.config.hostile_section import Hostile
from vitrail.config.schema import Bias
from vitrail.data.bias.marks import stamp
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError, suggest_name
from vitrail.poisoning.attack import POISONINGS
from vitrail.rng import Key

Rows = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]


def resolve_name(item: str | int, names: Sequence[str], noun: str, where: str) -> int:
    """A name or a position as a position."""
    if isinstance(item, str) and item in names:
        return list(names).index(item)
    if isinstance(item, int) and 0 <= item < len(names):
        return item
    hint = suggest_name(str(item), tuple(names)[:20])
    raise ConfigError(f"there is no {noun} {item!r}", where=where, hint=hint)


def list_hostile_sites(hostile: Hostile, sites: Sequence[str]) -> tuple[str, ...]:
    """The names of a section's sites, each once."""
    places = [resolve_name(site, sites, "site", "hostile.sites") for site in hostile.sites]
    return tuple(sites[place] for place in dict.fromkeys(places))


def check_hostile(hostile: Sequence[Hostile], sites: Sequence[str], classes: Sequence[str]) -> None:
    """Refuse unknown names, sites with two attacks, and attacks that cannot be meant."""
    seen: set[str] = set()
    for section in hostile:
        attack = POISONINGS[section.attack]
        names = list_hostile_sites(section, sites)
        if twice := sorted(seen & set(names)):
            raise ConfigError(f"site {twice[0]!r} has two attacks", where="hostile.sites")
        seen |= set(names)
        target = resolve_name(section.target, classes, "class", "hostile.target")
        if section.source is not None:
            source = resolve_name(section.source, classes, "class", "hostile.source")
            if source == target:
                raise ConfigError("source and target are the same class", where="hostile.source")
        if section.start > 1 and (attack.flips or attack.marks):
            raise ConfigError(
                f"{section.attack!r} works through images, which are there from the first round",
                where="hostile.start",
                hint="Leave it at 1.",
            )
    if hostile and len(seen) >= len(sites):
        raise ConfigError("every site would be hostile", where="hostile.sites")


def put_trigger(images: Pixels, hostile: Hostile, key: Key) -> Pixels:
    """Images with a section's trigger on them."""
    mark = Bias(
        kind=hostile.trigger, size=hostile.size, position=hostile.position, color=hostile.color
    )
    return stamp(images, mark, key)[0]


def flip_labels(labels: Rows, hostile: Hostile, classes: Sequence[str]) -> Rows:
    """Wrong labels: one class as the target, or the order of all classes turned around."""
    if hostile.source is None:
        return len(classes) - 1 - labels
    source = resolve_name(hostile.source, classes, "class", "hostile.source")
    target = resolve_name(hostile.target, classes, "class", "hostile.target")
    return np.where(labels == source, target, labels)


def poison_images(
    images: ImageSet, sites: Mapping[str, SiteRows], hostile: Sequence[Hostile], key: Key
) -> ImageSet:
    """The images of a federation after hostile sites have changed their training part."""
    check_hostile(hostile, tuple(sites), images.classes)
    pixels, labels = images.images, images.labels
    for number, section in enumerate(hostile):
        attack = POISONINGS[section.attack]
        for site in list_hostile_sites(section, tuple(sites)):
            rows = sites[site].train
            if attack.flips:
                labels = labels if labels is not images.labels else labels.copy()
                labels[rows] = flip_labels(labels[rows], section, images.classes)
            if attack.marks:
                labels = labels if labels is not images.labels else labels.copy()
                pixels = pixels if pixels is not images.images else np.array(pixels)
                chosen = choose_poisoned(section, rows, key.at("hostile", number, site))
                pixels[chosen] = put_trigger(pixels[chosen], section, key)
                target = resolve_name(section.target, images.classes, "class", "hostile.target")
                labels[chosen] = target
    return replace(images, images=pixels, labels=labels)


def choose_poisoned(hostile: Hostile, rows: Rows, key: Key) -> Rows:
    """The share of a site's training rows that carries the trigger."""
    count = int(hostile.share * len(rows) + 0.5)
    return np.sort(key.numpy().permutation(rows)[:count])
