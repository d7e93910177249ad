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
import numpy.typing as npt
from torch import Tensor

from vitrail.audit.contrast import contrasts
from vitrail.audit.extract import Extractor, tables_of
from vitrail.audit.finding import LEVEL
from vitrail.audit.null import Null, holm
from vitrail.data.normalize import Normalize
from vitrail.engine.federation import Federation, assemble
from vitrail.engine.sweep import Cell
from vitrail.files import write_json
from vitrail.models.network import make_network
from vitrail.rng import server

TRIAL = "audit"  # tables whose name begins so end here instead of in a comparison


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


def case(cell: Cell, seen: dict[bytes, Tensor] | None = None) -> Case:
    """Deal out the images, inject the bias, and contrast the sites; nothing is trained.

    `seen` remembers maps of images from one case to the next.
    """
    config = cell.loaded.config
    federation = assemble(cell.loaded)
    channels = int(federation.images.images.shape[3])
    classes = federation.images.classes
    network, _ = make_network(
        config.model,
        "protopnet",
        channels,
        len(classes),
        server(config.run.seed).at("init"),
        cell.loaded.base,
    )
    key = server(config.run.seed).at("audit")
    extractor = Extractor(network, Normalize.of(config, channels), seen)
    tables = tables_of(extractor, federation, key)
    found = {site: contrasts(tables, site) for site in tables}
    scores = tuple((s, classes[c.label], c.score) for s, list_ in found.items() for c in list_)
    if not config.bias:
        return Case(cell.name, "none", config.partition.kind, None, scores, None)
    bias = config.bias[0]
    site, label = bias.sites[0], bias.classes[0]
    where = site if isinstance(site, str) else tuple(federation.sites)[site]
    what = label if isinstance(label, str) else classes[label]
    mine = next((c for c in found[where] if classes[c.label] == what), None)
    hit = None
    if mine is not None and mine.place is not None:
        hit = _inside(federation, where, classes.index(what), mine.place)
    return Case(cell.name, bias.kind, config.partition.kind, (where, what), scores, hit)


def _inside(
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


def cases(
    grid: Sequence[Cell], folder: Path, tell: Callable[[int, int, str], None] | None = None
) -> list[Case]:
    """Every cell of a grid, those that were done before from their files."""
    found = []
    seen: dict[bytes, Tensor] = {}
    for number, cell in enumerate(grid):
        file = folder / f"{cell.name}.json"
        if not file.exists():
            if tell is not None:
                tell(number, len(grid), cell.name)
            write_json(file, vars(case(cell, seen)))
        found.append(_read(json.loads(file.read_text(encoding="utf-8"))))
    return found


def _read(raw: dict[str, Any]) -> Case:
    truth = None if raw["truth"] is None else (raw["truth"][0], raw["truth"][1])
    scores = tuple((s, c, float(v)) for s, c, v in raw["scores"])
    return Case(raw["name"], raw["kind"], raw["partition"], truth, scores, raw["hit"])


def null_of(found: Sequence[Case], about: str) -> Null:
    """The null that unbiased federations give."""
    return Null.of([s for case in found if case.truth is None for *_, s in case.scores], about)


@dataclass(frozen=True)
class Trial:
    """The figures of the claims, for one set of federations."""

    biased: int
    judged: int  # biased ones whose site has images enough to say anything of the class
    unbiased: int
    auc: float
    first: int
    named: int
    inside: tuple[int, int]  # marks found whose center was right, of those with a place
    false_alarms: int

    def text(self) -> str:
        """As lines for a terminal and the docs."""
        low, high = exact_interval(self.false_alarms, self.unbiased)
        at, to = exact_interval(self.first, self.judged)
        return "\n".join(
            [
                f"{self.biased} biased federations ({self.judged} with images enough at the site), "
                f"{self.unbiased} unbiased",
                f"AUC per site and class            {self.auc:.3f}",
                f"origin (site and class) first     {self.first}/{self.judged} "
                f"(95 % interval {at:.2f} to {to:.2f})",
                f"verdict `biased` for the origin   {self.named}/{self.judged}",
                f"center inside the mark            {self.inside[0]}/{self.inside[1]}",
                f"unbiased federations with alarm   {self.false_alarms}/{self.unbiased} "
                f"(95 % interval {low:.3f} to {high:.3f})",
            ]
        )


def summarize(found: Sequence[Case], null: Null) -> Trial:
    """AUC over sites and classes, origin first, the right place, false alarms.

    Where the biased site knows two classes only, the other one is told from the marked one by
    the mark just as well: a consequence, which is not counted.
    """
    good: list[float] = []
    bad: list[float] = []
    first = named = alarms = judged = right = placed = 0
    for item in found:
        scores = {(site, label): score for site, label, score in item.scores}
        scores = {key: s for key, s in scores.items() if not _consequence(key, item)}
        p_values = holm([null.p_value(s) for s in scores.values()])
        sure = [key for key, p in zip(scores, p_values, strict=True) if p < LEVEL]
        if item.truth is None:
            alarms += bool(sure)
        elif item.truth in scores:
            judged += 1
            bad.append(scores[item.truth])
            first += max(scores, key=lambda key: scores[key]) == item.truth
            named += item.truth in sure
            if item.truth in sure and item.hit is not None:
                placed += 1
                right += item.hit >= 0.5
        good += [score for key, score in scores.items() if key != item.truth]
    return Trial(
        biased=sum(item.truth is not None for item in found),
        judged=judged,
        unbiased=sum(item.truth is None for item in found),
        auc=auc(np.array(bad), np.array(good)),
        first=first,
        named=named,
        inside=(right, placed),
        false_alarms=alarms,
    )


def _consequence(key: tuple[str, str], item: Case) -> bool:
    """Whether a class stands out only because it is all that the marked class is compared with."""
    if item.truth is None or key == item.truth or key[0] != item.truth[0]:
        return False
    return sum(site == key[0] for site, _, _ in item.scores) == 2


def auc(positive: npt.NDArray[np.float64], negative: npt.NDArray[np.float64]) -> float:
    """The chance that a positive scores higher than a negative, ties counting half."""
    if not len(positive) or not len(negative):
        return float("nan")
    above = (positive[:, None] > negative).mean()
    ties = (positive[:, None] == negative).mean()
    return float(above + ties / 2)


def exact_interval(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval for a share."""
    from scipy.stats import beta  # slow to import, seldom needed

    if count == 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(tail, hits, count - hits + 1))
    high = 1.0 if hits == count else float(beta.ppf(1 - tail, hits + 1, count - hits))
    return low, high
