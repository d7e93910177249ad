"""How well the audit does on federations whose bias is known: the table behind its claims.

With a frozen backbone the score depends on the images and the backbone alone, so no federation
has to be trained for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.audit.counterfactual.overlap import iou
from vitrail.audit.detection.contrast import Contrast
from vitrail.audit.detection.exchange import Exchange, compute_site_features
from vitrail.audit.detection.feature_layout import Unit
from vitrail.audit.detection.features import FeatureExtractor
from vitrail.audit.detection.halves import name_subjects
from vitrail.audit.detection.tight_place import find_tight_place
from vitrail.config.schema import Bias, Config
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation, assemble
from vitrail.files import write_json
from vitrail.models.network import make_network
from vitrail.rng import Key, derive_server_key
from vitrail.sweep.cells import Cell


@dataclass(frozen=True)
class PairScore:
    """What the audit says of one class of one site."""

    site: str
    label: str
    score: float
    raw_p: float
    verdict: str


@dataclass(frozen=True)
class Case:
    """One federation: what was injected where, and what the audit says of every pair."""

    name: str
    kind: str
    partition: str
    truth: tuple[str, str] | None
    scores: tuple[PairScore, ...]
    hit: float | None  # the share of marked images in whose mark the named center lies
    overlap: float | None = None  # mean intersection over union of the box with the marks
    detail: str = ""  # what tells marks of one kind apart

    @property
    def mark(self) -> str:
        """The kind of mark with its strength, size and position."""
        return f"{self.kind} {self.detail}".strip()


def run_case(cell: Cell, seen: dict[bytes, Tensor] | None = None) -> Case:
    """Deal out the images, inject the bias, and contrast the sites; nothing is trained.

    `seen` remembers maps of images from one case to the next.
    """
    config = cell.loaded.config
    federation = assemble(cell.loaded)
    channels = int(federation.images.images.shape[3])
    network, _ = make_network(
        config.model,
        "protopnet",
        channels,
        len(federation.images.classes),
        derive_server_key(config.run.seed).at("init"),
        cell.loaded.base,
    )
    key = derive_server_key(config.run.seed).at("audit", "features")
    extractor = FeatureExtractor(network, Normalize.of(config, channels), key, seen)
    return judge_federation(cell.name, config, federation, extractor)


def compare_federation(
    federation: Federation, extractor: FeatureExtractor, key: Key
) -> tuple[list[Contrast], tuple[Unit, ...]]:
    """Both steps of the exchange, played in one place."""
    images = federation.images
    units = extractor.get_units(images.images)
    sites = {}
    for site, rows in federation.sites.items():
        held = np.concatenate([rows.train, rows.test])
        patients = name_subjects(images, held)
        sites[site] = compute_site_features(
            extractor,
            images.images[held],
            images.labels[held],
            patients,
            len(images.classes),
            key.at(site),
        )
    exchange = Exchange({name: site.summarize(units) for name, site in sites.items()}, units)
    told = {name: site.count(exchange.directions) for name, site in sites.items()}
    return exchange.compare(told, key.at("permutations")), units


def judge_federation(
    name: str, config: Config, federation: Federation, extractor: FeatureExtractor
) -> Case:
    """What the audit says of every site and class, beside what was injected."""
    classes = federation.images.classes
    key = derive_server_key(config.run.seed).at("audit")
    contrasts, units = compare_federation(federation, extractor, key)
    scores = tuple(
        PairScore(c.site, classes[c.label], c.score, c.raw_p, c.verdict) for c in contrasts
    )
    if not config.bias:
        return Case(name, "none", config.partition.kind, None, scores, None)
    bias = config.bias[0]
    site, label = bias.sites[0], bias.classes[0]
    where = site if isinstance(site, str) else tuple(federation.sites)[site]
    what = label if isinstance(label, str) else classes[label]
    pair = (where, classes.index(what))
    contrast = next((c for c in contrasts if (c.site, c.label) == pair), None)
    hit = overlap = None
    if contrast is not None:
        hit, overlap = _compare_place(federation, contrast, units)
    return Case(
        name,
        bias.kind,
        config.partition.kind,
        (where, what),
        scores,
        hit,
        overlap,
        _describe_bias(bias),
    )


def _describe_bias(bias: Bias) -> str:
    """Such as "0.2 random" for a mark of that size, or "x 0.5" for one of half strength."""
    words = [] if bias.kind in ("color", "brightness", "blur") else [f"{bias.size:g}"]
    if bias.strength < 1:
        words.append(f"x {bias.strength:g}")
    if bias.position == "random":
        words.append("random")
    return " ".join(words)


def _compare_place(
    federation: Federation, contrast: Contrast, units: tuple[Unit, ...]
) -> tuple[float | None, float | None]:
    """The share of the class's marked images in whose mark the box's center lies, and the mean
    intersection over union; None without marks at one place, or without a box."""
    images, rows = federation.images, federation.sites[contrast.site]
    held = np.concatenate([rows.train, rows.test])
    of_class = images.labels[held] == contrast.label
    marks = None if federation.regions is None else federation.regions[held[of_class]]
    if marks is None or np.isnan(marks[:, 0]).all() or np.nanstd(marks[:, 0]) > 1:
        return None, None
    unit = contrast.find_unit(units)
    tight = find_tight_place(
        images.images[held[of_class]], images.images[held[~of_class]], unit.box
    )
    if tight is None:
        return 0.0, 0.0
    x0, y0, x1, y1 = tight.box
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    marks = marks[~np.isnan(marks[:, 0])]
    inside = (marks[:, 0] <= x) & (x <= marks[:, 2]) & (marks[:, 1] <= y) & (y <= marks[:, 3])
    shared = [iou(tight.box, (int(a), int(b), int(c), int(d))) for a, b, c, d in marks]
    return float(inside.mean()), float(np.mean(shared))


def run_cases(
    grid: Sequence[Cell], folder: Path, tell: Callable[[int, int, str], object] | None = None
) -> list[Case]:
    """Every cell of a grid, those that were done before from their files."""
    cases = []
    seen: dict[bytes, Tensor] = {}
    for number, cell in enumerate(grid):
        file = folder / f"{cell.name}.json"
        if not file.exists():
            if tell is not None:
                tell(number, len(grid), cell.name)
            write_json(file, asdict(run_case(cell, seen)))
        cases.append(_read(json.loads(file.read_text(encoding="utf-8"))))
    return cases


def _read(raw: dict[str, Any]) -> Case:
    truth = None if raw["truth"] is None else (raw["truth"][0], raw["truth"][1])
    scores = tuple(PairScore(**entry) for entry in raw["scores"])
    return Case(**{**raw, "truth": truth, "scores": scores})
