"""A federation in simulation: images, who holds which, and what was done to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vitrail.config.debias_section import Debias
from vitrail.config.load import Loaded
from vitrail.config.schema import Data
from vitrail.data.annotated_images import Unshared, hide_regions, list_unshared
from vitrail.data.bias.inject import Side, inject
from vitrail.data.duplicates import group_duplicates
from vitrail.data.harmonize import harmonize_sites
from vitrail.data.image_set import ImageSet
from vitrail.data.kept_images import load_kept
from vitrail.data.load_images import load_with_problems
from vitrail.data.partition.partition import SiteRows, make_partition
from vitrail.data.patients import PatientCount, count_patients
from vitrail.data.records import Problem
from vitrail.errors import ConfigError, DataError, suggest_name
from vitrail.methods import METHODS
from vitrail.poisoning.poison_images import poison_images
from vitrail.registry import load_plugins
from vitrail.rng import Key, derive_server_key

POOLED = "pooled"
Pin = Callable[[ImageSet], ImageSet]
SERVER = "*"  # whose row in the metrics is that of the global model on the server's test images


@dataclass(frozen=True)
class Federation:
    """All images of a simulated federation and how they are dealt out."""

    images: ImageSet
    sites: dict[str, SiteRows]
    server_test: npt.NDArray[np.int64]
    regions: npt.NDArray[np.float32] | None
    skipped: int
    original: ImageSet | None = None  # the images before a bias, where one was injected
    left_out: int = 0  # training images that are in the data's own test part as well
    unshared: Unshared | None = None  # what people said must not leave
    read: ImageSet | None = None  # the images as they were read, where something changed them

    @property
    def images_as_read(self) -> ImageSet:
        """What lies at the site: what pins and lifetime ledgers know an image by."""
        return self.images if self.read is None else self.read

    def pool_sites(self) -> Federation:
        """All sites as one: what a centralized run trains on."""
        train = np.concatenate([site.train for site in self.sites.values()])
        test = np.concatenate([site.test for site in self.sites.values()])
        one = {POOLED: SiteRows(POOLED, np.sort(train), np.sort(test))}
        return replace(self, sites=one)

    def count_patients(self) -> dict[str, PatientCount]:
        """The patients that each site trains on; empty where nobody names them."""
        return count_patients(self.images, {name: s.train for name, s in self.sites.items()})

    def counts(self) -> dict[str, object]:
        """How many images of each class each site has: what the partition picture shows."""
        labels, classes = self.images.labels, self.images.classes
        return {
            "classes": list(classes),
            "sites": list(self.sites),
            "train": [
                np.bincount(labels[s.train], minlength=len(classes)).tolist()
                for s in self.sites.values()
            ],
            "test": [
                np.bincount(labels[s.test], minlength=len(classes)).tolist()
                for s in self.sites.values()
            ],
            "server_test": len(self.server_test),
        }

    def digest(self) -> str:
        """A fingerprint of pixels, labels and parts, so that a resume notices other data."""
        found = hashlib.blake2b(digest_size=16)
        for array in (self.images.images, self.images.labels, self.server_test):
            found.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
        for name, rows in self.sites.items():
            found.update(name.encode())
            found.update(rows.train.tobytes() + b"/" + rows.test.tobytes())
        return found.hexdigest()


def assemble(loaded: Loaded, pin: Pin | None = None) -> Federation:
    """Load the images, deal them out to sites, inject the biases asked for."""
    config = loaded.config
    load_plugins(config.run.plugins, loaded.base, loaded.stored)
    key = derive_server_key(config.run.seed)
    images, problems = _load_images(config.data, loaded.base, key.at("data"), pin)
    read = images
    parts = make_partition(images, config.partition, config.data, key.at("partition"))
    sites = {site.name: site for site in parts.sites}
    if SERVER in sites:
        raise DataError(f"no site can be called {SERVER!r}", where="partition.column")
    for site in sites.values():
        if len(site.train) == 0:
            raise DataError(
                f"site {site.name!r} has no training image",
                where="partition",
                hint="Use fewer sites, a larger alpha or a smaller test_fraction.",
            )
    regions = original = None
    if config.bias:
        original = images
        rows: dict[str, dict[Side, npt.NDArray[np.int64]]] = {
            s.name: {"train": s.train, "push": s.train, "test": s.test} for s in parts.sites
        }
        injected = inject(images, rows, config.bias, key.at("bias"))
        images, regions = injected.images, injected.regions
        sites = {name: _make_biased_rows(name, sides) for name, sides in injected.rows.items()}
    if config.hostile:
        original = images if original is None else original
        images = poison_images(images, sites, config.hostile, key.at("bias"))
    every = dict(sites)
    known = None if config.partition.kind == "one" else tuple(sites)
    sites = _drop_left_out(sites, config.debias, known)
    sites = _drop_withdrawn(sites, config.partition.without)
    images = harmonize_sites(images, tuple(sites.values()), config.debias)
    drawn, alone = config.data.annotations, config.partition.kind == "one"
    images = hide_regions(images, every, drawn, alone)
    unshared = list_unshared(images, every, drawn, alone)
    skipped, server = len(problems), parts.server_test
    return Federation(
        images,
        sites,
        server,
        regions,
        skipped,
        original,
        parts.left_out,
        unshared,
        None if read is images else read,
    )


def _load_images(
    data: Data, base: Path, key: Key, pin: Pin | None
) -> tuple[ImageSet, list[Problem]]:
    """The images with their copies known, and what was wrong with them."""

    def load() -> tuple[ImageSet, list[Problem]]:
        images, problems = load_with_problems(data, base, key)
        return group_duplicates(images if pin is None else pin(images), data), problems

    return load() if pin is not None else load_kept(data, base, key, load)


def _drop_left_out(
    sites: dict[str, SiteRows], debias: Debias, known: Sequence[str] | None
) -> dict[str, SiteRows]:
    """The sites without those that are to be left out; whoever is named must be `known`, where
    that can be told: a site of a real federation has nobody's images but its own."""
    for name in debias.suspected:
        if known is not None and name not in known:
            raise ConfigError(
                f"there is no site {name!r}",
                where="debias.findings",
                hint=suggest_name(name, known),
            )
    staying = {name: rows for name, rows in sites.items() if name not in debias.left_out}
    if not staying:
        raise ConfigError("every site would be left out", where="debias.findings")
    return staying


def _drop_withdrawn(sites: dict[str, SiteRows], without: Sequence[str]) -> dict[str, SiteRows]:
    """The sites without those that withdrew; the images of the others stay as they were dealt."""
    for name in without:
        if name not in sites:
            raise ConfigError(
                f"there is no site {name!r}",
                where="partition.without",
                hint=suggest_name(name, sites),
            )
    staying = {name: rows for name, rows in sites.items() if name not in without}
    if not staying:
        raise ConfigError("every site would be left out", where="partition.without")
    return staying


def load_federation(loaded: Loaded, pin: Pin | None = None) -> Federation:
    """The federation as its method plays it: all sites as one where images are pooled.

    `pin` takes of the images that there are those that a run began with.
    """
    federation = assemble(loaded, pin)
    return federation.pool_sites() if METHODS[loaded.config.method.name].pooled else federation


def _make_biased_rows(name: str, sides: Mapping[Side, npt.NDArray[np.int64]]) -> SiteRows:
    """A site's rows after injection; push rows only where they are not the training rows."""
    push = None if np.array_equal(sides["push"], sides["train"]) else sides["push"]
    return SiteRows(name, sides["train"], sides["test"], push)
