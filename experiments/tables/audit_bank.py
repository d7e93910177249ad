"""Images of real sources with their features, dealt out to federations of any size: no training.

Features are computed once an image; a federation is a way to deal the same images out, so that a
thousand of them take minutes. Used by `audit_quiet`, `audit_natural` and `audit_detection`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.exchange import Exchange, Pair, SiteFeatures
from vitrail.audit.detection.features import FeatureExtractor
from vitrail.audit.detection.halves import split_halves
from vitrail.audit.detection.histogram import Counts
from vitrail.config.load import parse
from vitrail.config.schema import Model
from vitrail.data.image_set import ImageSet
from vitrail.data.load_images import load_with_problems
from vitrail.data.normalize import Normalize
from vitrail.models.network import make_network
from vitrail.rng import Key, derive_server_key

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
SOURCES: dict[str, dict[str, Any]] = {
    "aviary": {"source": "embedded", "image_size": 64, "aviary": {"images": 1500, "classes": 4}},
    "cub50": {"path": "cub50.parquet", "image_size": 96},
    "cifar10": {"source": "npz", "path": "cifar10.npz", "limit": 2000, "keep": 4},
    "smiles": {"path": "smiles.parquet", "image_size": 64, "channels": 1, "limit": 1500},
    "tiny_imagenet20": {"path": "tiny_imagenet20.parquet", "image_size": 64, "keep": 5},
    "nih_chest": {
        "path": "nih_chest.parquet", "image_size": 96, "channels": 1, "positive": "Effusion",
        "patient": "patient", "balance": True,
    },
}  # fmt: skip
_GROUP = {"cub50": 8}  # species together, or a site has too few of each
_IMAGES = 1500


@dataclass
class Bank:
    """Images of one source, with their features by one backbone."""

    images: ImageSet
    labels: Rows
    extractor: FeatureExtractor
    features: Floats

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.labels.max()) + 1


def load_bank(
    name: str, folder: Path, backbone: str, most: int = _IMAGES, classes: int | None = None
) -> Bank:
    """Load a source, at most so many images of its first classes, and compute their features."""
    data = {"source": "parquet", **SOURCES[name], "duplicates": "ignore", "conflicts": "allow"}
    if "path" in data:
        data["path"] = str(folder / data["path"])
    loaded = parse({"data": data})
    images = load_with_problems(loaded.config.data, loaded.base, derive_server_key(1).at(name))[0]
    labels = images.labels // _GROUP.get(name, 1)
    rows = np.flatnonzero(labels < (classes or len(labels)))
    rows = np.sort(derive_server_key(1).at(name).numpy().permutation(rows)[:most])
    return make_bank(images.take(rows), labels[rows], backbone)


def make_bank(images: ImageSet, labels: Rows, backbone: str) -> Bank:
    """Compute the features of images."""
    channels = int(images.images.shape[3])
    pretrained: dict[str, Any] = {}
    if backbone.startswith("efficientnet"):
        pretrained = {"weights": "imagenet", "frozen": True, "until": "stage5"}
    network, _ = make_network(
        Model(backbone=backbone, **pretrained), "protopnet", channels, 2,
        derive_server_key(1).at("init"),
    )  # fmt: skip
    key = derive_server_key(1).at("audit", "features")
    extractor = FeatureExtractor(network, Normalize.from_name("unit", channels), key)
    return Bank(images, labels, extractor, extractor(images.images).numpy().astype(np.float64))


def deal(bank: Bank, sites: int, skew: bool, key: Key) -> list[Rows]:
    """Images to sites: patients together, IID or Dirichlet 0.3."""
    draw = key.at("deal").numpy()
    holder = draw.integers(0, sites, len(bank.labels))
    if skew:
        for label in range(bank.classes):
            of_class = np.flatnonzero(bank.labels == label)
            holder[of_class] = draw.choice(sites, len(of_class), p=draw.dirichlet([0.3] * sites))
    if bank.images.patients is not None:
        _, group = np.unique(bank.images.patients, return_inverse=True)
        first = np.zeros(group.max() + 1, np.int64)
        first[group[::-1]] = holder[::-1]
        holder = first[group]
    return [np.flatnonzero(holder == site) for site in range(sites)]


def compare_sites(
    bank: Bank, sites: Sequence[Rows], key: Key, changed: Mapping[int, Floats] | None = None
) -> list[Contrast]:
    """What the audit says of images dealt out so; `changed` are features of single images."""
    exchange, told = tell_tables(bank, sites, key, changed)
    return exchange.compare(told, key.at("permutations"))


def tell_tables(
    bank: Bank, sites: Sequence[Rows], key: Key, changed: Mapping[int, Floats] | None = None
) -> tuple[Exchange, dict[str, dict[Pair, Counts]]]:
    """What sites tell each other: summaries of their A halves and histograms of their B halves."""
    units = bank.extractor.get_units(bank.images.images)
    changed, held = changed or {}, {}
    for number, rows in enumerate(sites):
        features = bank.features[rows]
        for at, row in enumerate(rows.tolist()):
            if row in changed:
                features[at] = changed[row]
        patients = None if bank.images.patients is None else bank.images.patients[rows]
        halves = split_halves(bank.labels[rows], patients, key.at("halves", number))
        held[f"s{number:02}"] = SiteFeatures(
            features, bank.labels[rows], halves.a, halves.b, halves.group, bank.classes
        )
    exchange = Exchange({n: s.summarize(units) for n, s in held.items()}, units)
    told = {n: s.count(exchange.directions) for n, s in held.items()}
    return exchange, told
