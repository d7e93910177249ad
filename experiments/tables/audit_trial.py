"""How well the audit does on federations whose bias is known: the table behind its claims.

With a frozen backbone the score depends on the images and the backbone alone, so no federation
has to be trained for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vitrail.audit.detection.contrast import compute_contrasts
from vitrail.audit.detection.extractor import Extractor, compute_separabilities
from vitrail.config.schema import Bias, Config
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation, assemble
from vitrail.files import write_json
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.sweep.cells import Cell


@dataclass(frozen=True)
class Case:
    """One federation: what was injected where, and the score of every site and class.

    `scores` are (site, class, score).
    """

    name: str
    kind: str
    partition: str
    truth: tuple[str, str] | None
    scores: tuple[tuple[str, str, float], ...]
    hit: float | None  # the share of marked images in whose mark the named center lies
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
    extractor = Extractor(network, Normalize.of(config, channels), seen)
    return judge_federation(cell.name, config, federation, extractor)


def judge_federation(
    name: str, config: Config, federation: Federation, extractor: Extractor
) -> Case:
    """What the audit's contrasts say of every site and class, beside what was injected."""
    classes = federation.images.classes
    tables = compute_separabilities(
        extractor, federation, derive_server_key(config.run.seed).at("audit")
    )
    contrasts = {site: compute_contrasts(tables, site) for site in tables}
    scores = tuple(
        (s, classes[one.label], one.score) for s, of_site in contrasts.items() for one in of_site
    )
    if not config.bias:
        return Case(name, "none", config.partition.kind, None, scores, None)
    bias = config.bias[0]
    site, label = bias.sites[0], bias.classes[0]
    where = site if isinstance(site, str) else tuple(federation.sites)[site]
    what = label if isinstance(label, str) else classes[label]
    contrast = next((one for one in contrasts[where] if classes[one.label] == what), None)
    hit = None
    if contrast is not None and contrast.place is not None:
        hit = _compute_share_inside(federation, where, classes.index(what), contrast.place)
    return Case(
        name, bias.kind, config.partition.kind, (where, what), scores, hit, _describe_bias(bias)
    )


def _describe_bias(bias: Bias) -> str:
    """Such as "0.2 random" for a mark of that size, or "x 0.5" for one of half strength."""
    words = [] if bias.kind in ("color", "brightness", "blur") else [f"{bias.size:g}"]
    if bias.strength < 1:
        words.append(f"x {bias.strength:g}")
    if bias.position == "random":
        words.append("random")
    return " ".join(words)


def _compute_share_inside(
    federation: Federation, site: str, label: int, place: tuple[float, float]
) -> float | None:
    """The share of the class's marked images in whose mark a place lies; None without marks."""
    rows = np.concatenate([federation.sites[site].train, federation.sites[site].test])
    rows = rows[federation.images.labels[rows] == label]
    if federation.regions is None:
        return None
    marks = federation.regions[rows]
    marks = marks[~np.isnan(marks[:, 0])]
    if not len(marks):
        return None
    height, width = federation.images.images.shape[1:3]
    x, y = place[0] * width, place[1] * height
    inside = (marks[:, 0] <= x) & (x <= marks[:, 2]) & (marks[:, 1] <= y) & (y <= marks[:, 3])
    return float(inside.mean())


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
            write_json(file, vars(run_case(cell, seen)))
        cases.append(_read(json.loads(file.read_text(encoding="utf-8"))))
    return cases


def _read(raw: dict[str, Any]) -> Case:
    truth = None if raw["truth"] is None else (raw["truth"][0], raw["truth"][1])
    scores = tuple((s, c, float(v)) for s, c, v in raw["scores"])
    return Case(**{**raw, "truth": truth, "scores": scores})
