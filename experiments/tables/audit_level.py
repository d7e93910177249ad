"""How often honest sites that differ are called `biased`: a toy of the audit, thousands at once.

`python -m experiments.tables.audit_level OUT.jsonl [FEDERATIONS]` draws, for each cell, federations
whose sites differ by chance in every class and feature, and as a fifth of as many with a mark; it
goes on where it stopped, and prints level and power of the interval. The exact test is left out, as
if it had spoken each time, so the verdict is rarer than what is printed.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.tables.markdown import to_markdown
from vitrail.audit.detection.prediction_interval import compute_limits
from vitrail.metrics.binomial import exact_interval

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
_FEATURES = 40
_PLACES, _WHOLE = 8, 8  # places of four features, and features of the whole image
_MARK = 2.0  # standard deviations in each of the four features of one place
_IMAGES, _BATCH = 40, 4_000_000
SPREADS, SITES, CLASSES = (0.1, 0.2, 0.3, 0.5), (3, 4, 8, 16), (2, 4, 10)


@dataclass(frozen=True)
class Cell:
    """Federations of one kind: `spread` is by how many standard deviations of one image the means
    of honest sites differ, by Student's t with 4 degrees of freedom where `heavy`."""

    spread: float
    sites: int
    classes: int
    unequal: bool
    mark: float = 0.0
    heavy: bool = False


def draw_effects(cell: Cell, count: int, draw: np.random.Generator) -> tuple[Floats, Floats]:
    """Means and excesses [2, count, pairs] on the B halves, and their squared errors."""
    shape = (count, cell.sites, cell.classes)
    images = np.full(shape, _IMAGES)
    if cell.unequal:
        images = np.clip(np.rint(_IMAGES * np.exp(draw.normal(0, 0.8, shape))), 6, 160).astype(int)
    a = np.where(images >= 12, images // 2, np.maximum(2, images // 3))
    b = images - a
    full = (*shape, _FEATURES)
    truth = draw.standard_t(4, full) / np.sqrt(2) if cell.heavy else draw.normal(0, 1, full)
    truth *= cell.spread
    truth[:, 0, 0, 8:12] += cell.mark
    seen = truth + draw.normal(0, 1, full) / np.sqrt(a)[..., None]
    weights, center, common = _choose_directions(seen, a)
    # [count, site asked about, class, site that tells]
    means = np.einsum("rqcf,rkcf->rkcq", truth, weights) - center[..., None]
    effects = np.concatenate(
        [
            _compute_effects(means[part], b[part], draw)
            for part in _split(count, cell.sites * cell.sites * cell.classes * int(b.max()))
        ],
        1,
    )
    effects = (effects * (1 - common)).reshape(2, count, -1)
    return effects, (1 / b + 1 / (b.sum(1, keepdims=True) - b)).reshape(count, -1)


def _split(count: int, size: int) -> list[slice]:
    step = max(1, _BATCH // size)
    return [slice(start, start + step) for start in range(0, count, step)]


def _make_candidates() -> tuple[Floats, Counts]:
    """Which features each candidate has, and its family: places, the whole, single features."""
    rows = [np.arange(4 * k, 4 * k + 4) for k in range(_PLACES)]
    rows += [np.arange(32, 40)] + [np.array([32 + k]) for k in range(_WHOLE)]
    members = np.zeros((len(rows), _FEATURES))
    for at, columns in enumerate(rows):
        members[at, columns] = 1
    return members, np.array([0] * _PLACES + [1] + [2] * _WHOLE)


def _choose_directions(seen: Floats, counts: Counts) -> tuple[Floats, Floats, Floats]:
    """As `choose_directions` does, for many federations: weights, centers, common shares."""
    members, family = _make_candidates()
    shape = seen.shape[:3]
    delta, error = _compute_shifts(seen, counts)
    flat = delta.reshape(shape[0], -1, _FEATURES)
    errors = error.reshape(shape[0], -1, 1)
    roots = np.sqrt(np.minimum(flat**2 / errors, 100) @ members.T / members.sum(1))
    middle = np.median(roots, 1, keepdims=True)
    spread = 1.4826 * np.median(np.abs(roots - middle), 1)
    usual = np.stack([np.median(spread[:, family == g], 1) for g in range(3)], 1)[:, family]
    mixed = (roots.shape[1] * spread**2 + 8 * usual**2) / (roots.shape[1] + 8)
    standing = (roots - middle) / np.sqrt(np.maximum(mixed, 1e-4))[:, None]
    common = np.empty((*shape, len(members)))
    for label in range(shape[2]):
        rest = np.median(np.delete(delta, label, 2), 2)
        own = delta[:, :, label]
        share = (own * rest) @ members.T / np.maximum(own**2 @ members.T, 1e-12)
        common[:, :, label] = np.clip(share, 0, 1)
    common = common.reshape(standing.shape)
    best = (standing * (1 - common)).argmax(2)
    size = np.maximum(np.abs(flat) - np.sqrt(errors), 0)
    kept = np.sign(flat) * size * members[best]
    weights = np.where(kept.any(2, keepdims=True), kept, flat * members[best])
    weights /= np.linalg.norm(weights, axis=2, keepdims=True)
    center = ((seen.reshape(flat.shape) - flat) * weights).sum(2)
    shared = np.take_along_axis(common, best[..., None], 2)[..., 0]
    return weights.reshape(seen.shape), center.reshape(shape), shared.reshape(shape)


def _compute_shifts(seen: Floats, counts: Counts) -> tuple[Floats, Floats]:
    """Each site's means minus those of the others, and the squared error."""
    delta, error = np.empty_like(seen), np.empty(counts.shape)
    for site in range(seen.shape[1]):
        others, many = np.delete(seen, site, 1), np.delete(counts, site, 1)
        total = many.sum(1)
        if others.shape[1] < 3:
            middle = (others * many[..., None]).sum(1) / total[..., None]
        else:
            middle = np.median(others, 1)
        delta[:, site] = seen[:, site] - middle
        worse = 1.0 if others.shape[1] < 3 else np.pi / 2
        error[:, site] = 1 / counts[:, site] + worse / total
    return delta, error


def _compute_effects(means: Floats, counts: Counts, draw: np.random.Generator) -> Floats:
    """Both effects of normal scalars with these means, [2, federations, sites, classes]."""
    sites = means.shape[1]
    scalars = draw.standard_normal((*means.shape, int(counts.max())), dtype=np.float32)
    level = np.arcsinh(scalars + means[..., None].astype(np.float32))
    held = np.arange(level.shape[-1]) < counts.transpose(0, 2, 1)[:, None, :, :, None]
    held = np.broadcast_to(held, level.shape)
    own = np.eye(sites, dtype=bool)[None, :, None, :]
    pool = held & ~own[..., None]
    total = pool.sum((-1, -2))
    order = np.sort(np.where(pool, level, np.inf).reshape(*total.shape, -1), -1)
    at = np.maximum(np.ceil(0.8 * total).astype(int) - 1, 0)
    edge = np.take_along_axis(order, at[..., None], -1)[..., None]
    effects = []
    for scores in (level, np.maximum(level - edge, 0)):
        by_site = np.where(held, scores, 0).sum(-1) / held.sum(-1)
        average = np.where(pool, scores, 0).sum((-1, -2)) / total
        spread = (np.where(pool, scores, 0) ** 2).sum((-1, -2)) / total - average**2
        center = np.nanmedian(np.where(own, np.nan, by_site), -1) if sites > 3 else average
        here = np.where(own, by_site, 0).sum(-1)
        effects.append((here - center) / np.sqrt(np.maximum(spread, 0.02)))
    return np.stack(effects).astype(np.float64)


def count_outside(cell: Cell, count: int, seed: int = 0) -> tuple[int, int]:
    """In how many of so many federations a pair lies outside, and in how many the marked one."""
    numbers = [int(100 * cell.spread), cell.sites, cell.classes, cell.unequal, cell.heavy]
    draw = np.random.default_rng([seed, *numbers, int(10 * cell.mark)])
    effects, errors = draw_effects(cell, count, draw)
    labels = np.tile(np.arange(cell.classes), cell.sites)
    limits = compute_limits(effects, errors, labels.tolist())
    outside: npt.NDArray[np.bool_] = np.any(effects > limits, axis=0)
    return int(outside.any(1).sum()), int(outside[:, 0].sum())


def list_cells() -> list[Cell]:
    """All that the table has."""
    grid = itertools.product(SPREADS, SITES, CLASSES, (False, True))
    heavy = [Cell(0.3, sites, 4, False, heavy=True) for sites in SITES]
    return [Cell(*at) for at in grid] + heavy


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Level with its exact interval, and power, a row for each spread and number of sites."""
    lines = []
    for spread, sites, heavy in itertools.product(SPREADS, SITES, (False, True)):
        part = [r for r in rows if (r["spread"], r["sites"], r["heavy"]) == (spread, sites, heavy)]
        for unequal in (False, True):
            cells = {r["classes"]: r for r in part if r["unequal"] == unequal}
            if cells:
                words = ["heavy-tailed"] * heavy + ["unequal" if unequal else "equal"]
                line = [f"{spread:g}", str(sites), ", ".join(words)]
                lines.append(line + [_format(cells.get(c)) for c in CLASSES])
    head = ["differ by (SD)", "sites", "images", *(f"{c} classes" for c in CLASSES)]
    print(to_markdown(head, lines))


def _format(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    low, high = (100 * v for v in exact_interval(row["alarms"], row["count"]))
    rate, power = 100 * row["alarms"] / row["count"], 100 * row["hits"] / row["marked"]
    return f"{rate:.1f} ({low:.1f} to {high:.1f}); {power:.0f}"


def main(out: Path, count: int = 1000) -> None:
    """Draw what is missing, print what there is."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {tuple(r[n] for n in Cell.__annotations__ if n != "mark") for r in rows}
    with out.open("a", encoding="utf-8") as file:
        for cell in list_cells():
            names = {n: getattr(cell, n) for n in Cell.__annotations__ if n != "mark"}
            if tuple(names.values()) in done:
                continue
            marked = Cell(**names, mark=_MARK)
            alarms, _ = count_outside(cell, count)
            _, hits = count_outside(marked, count // 5)
            rows.append({**names, "count": count, "alarms": alarms, "hits": hits})
            rows[-1]["marked"] = count // 5
            file.write(json.dumps(rows[-1]) + "\n")
            file.flush()
    print_table(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1000)
