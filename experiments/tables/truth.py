"""Do prototypes point at the truth? The pointing game, where it is known what tells classes apart.

The embedded birds come with masks of the parts that differ between classes; CUB comes with the
bird's box and points on its parts. Counted is the top prototype of each correct prediction: is
the middle of its box on the truth, and how often would the same box be there by chance?
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from vitrail.data.aviary.birds import find_discriminating_parts
from vitrail.data.image_set import ImageSet
from vitrail.engine.federation import Federation
from vitrail.errors import DataError, RunError
from vitrail.explain.evidence import Box, locate_piece
from vitrail.explain.faithfulness import compute_pointing_chance, points_at_region
from vitrail.metrics.bootstrap import bootstrap
from vitrail.metrics.classification import Floats
from vitrail.metrics.resampled import ratio
from vitrail.models.heads.part_head import Piece, require_part_head
from vitrail.rng import Key, derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

NEAR = 0.1  # of the image's side: how far from an annotated point still counts
_CHUNK = 64
_TAIL = 0.025  # of a 95 % interval, on each side

# The middle of the box is ... The parts that tell a class from its rival are a narrower truth
# than those that tell it from any other class, which soon are all of them.
RIVAL, DIFFERS, ANY = "on a part unlike the rival's", "on a part that differs", "on any part"
INSIDE, CLOSE = "in the box", "near an annotated part"


@dataclass(frozen=True)
class PointedPrediction:
    """Where the top prototype of one correct prediction looked."""

    row: int
    label: int
    rival: int  # the class with the second largest logit
    box: Box


@dataclass(frozen=True)
class TopPiece:
    """The loudest piece of one correct prediction: its box, and the normalized image [C, H, W]."""

    row: int
    label: int
    rival: int
    box: Box
    piece: Piece
    x: torch.Tensor


@dataclass(frozen=True)
class PointingGame:
    """The pointing game of one run: for each kind of truth the rows, the hits (0 or 1) and the
    chance of a hit; images without any true pixel say nothing and are left out."""

    method: str
    source: str
    images: int
    correct: int
    targets: dict[str, tuple[list[int], list[float], list[float]]]


def play_pointing_game(run: Run) -> PointingGame:
    """Every site's own model on its test images, and the global one on the server's."""
    federation = load_run_federation(run)
    masks = _Truth.of(run, federation.images)
    predictions: list[PointedPrediction] = []
    images = 0
    for model, rows in iterate_models(run, federation):
        images += len(rows)
        predictions += locate_top_prototypes(model, federation.images, rows)
    targets = {name: _score_hits(predictions, masks, name) for name in masks.names}
    return PointingGame(
        run.card["method"], run.config.data.source, images, len(predictions), targets
    )


def measure_pointing(run: Run, key: Key | None = None, repeats: int = 1000) -> dict[str, Any]:
    """The pointing game of a run's models on the sites' own test images.

    Every site's own model plays, and the global one on the server's test images. For each kind
    of truth: the rate of hits, the rate by chance (the same box slid everywhere), and their ratio
    with a 95 % bootstrap interval over images (exact binomial limits if all hit or all miss).
    """
    game = play_pointing_game(run)
    draw = (key or derive_server_key(run.config.run.seed)).at("truth")
    targets = [
        {"target": name, **compute_metrics(*hits, draw.at(name), repeats)}
        for name, hits in game.targets.items()
    ]
    return {**asdict(game), "targets": targets}


def format_pointing(game: dict[str, Any]) -> str:
    """The same as text."""
    lines = [
        f"{game['method']}: top prototype of {game['correct']} correct predictions "
        f"(of {game['images']} images)",
        f"{'the middle of its box is':<30}{'rate':>8}{'chance':>8}{'ratio':>8}  95 % interval",
    ]
    for row in game["targets"]:
        numbers = [row[name] for name in ("rate", "chance", "ratio")]
        cells = "".join(f"{'-' if v is None else format(v, '.3f'):>8}" for v in numbers)
        limits = "" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"
        lines.append(f"{row['target']:<30}{cells}  {limits}".rstrip())
    return "\n".join(lines)


def iterate_models(
    run: Run, federation: Federation
) -> Iterator[tuple[DeployedModel, npt.NDArray[np.int64]]]:
    """The models of a run, each with the test images it is asked about."""
    for site, rows in federation.sites.items():
        if len(rows.test):
            yield run.model(site), rows.test
    if len(federation.server_test):
        try:
            yield run.model(), federation.server_test
        except RunError:  # what stays at the sites has no global model
            return


def locate_top_prototypes(
    model: DeployedModel, images: ImageSet, rows: npt.NDArray[np.int64]
) -> list[PointedPrediction]:
    """The top prototype's box for each correct prediction among some rows."""
    return [
        PointedPrediction(top.row, top.label, top.rival, top.box)
        for top in find_top_pieces(model, images, rows)
    ]


@torch.no_grad()
def find_top_pieces(
    model: DeployedModel, images: ImageSet, rows: npt.NDArray[np.int64]
) -> Iterator[TopPiece]:
    """The piece that speaks loudest for each correct prediction among some rows."""
    network, head = model.network, require_part_head(model.network)
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        x = torch.from_numpy(np.array(images.images[part])).permute(0, 3, 1, 2) / 255
        x = (x - model.shift) / model.scale
        z = network.features(network.prefix(x))
        logits = head(z)["logits"]
        ranked = logits.topk(min(2, logits.shape[1])).indices.tolist()
        for at, (row, order) in enumerate(zip(part.tolist(), ranked)):
            label, guess, rival = int(images.labels[row]), order[0], order[-1]
            pieces = head.pieces(z[at : at + 1], label) if guess == label else []
            best = _choose_piece(pieces)
            box = None if best is None else locate_piece(best, pieces, (x.shape[2], x.shape[3]))
            if best is not None and box is not None:
                yield TopPiece(row, label, rival, box, best, x[at])


def _choose_piece(pieces: list[Piece]) -> Piece | None:
    """The piece with a place that speaks loudest for the class; none if all speak against it."""
    placed = [piece for piece in pieces if piece.map is not None and piece.contribution > 0]
    return max(placed, key=lambda piece: piece.contribution, default=None)


@dataclass(frozen=True)
class _Truth:
    """What is known about where classes differ."""

    images: ImageSet
    differs: npt.NDArray[np.bool_] | None  # [classes, classes, parts]

    @staticmethod
    def of(run: Run, images: ImageSet) -> _Truth:
        if "part_mask" in images.extra:
            options = run.config.data.aviary
            return _Truth(images, find_discriminating_parts(options.classes, options.seed))
        if images.boxes is None and "parts" not in images.extra:
            raise DataError(
                "nothing is known about the parts in these images",
                where=str(run.path),
                hint='Use data.source = "embedded", or data with boxes or part locations (CUB).',
            )
        return _Truth(images, None)

    @property
    def names(self) -> tuple[str, ...]:
        if self.differs is not None:
            return RIVAL, DIFFERS, ANY
        boxes = (INSIDE,) if self.images.boxes is not None else ()
        return boxes + ((CLOSE,) if "parts" in self.images.extra else ())

    def mask(self, name: str, prediction: PointedPrediction) -> torch.Tensor:
        """The true region of one image, [H, W] of bool."""
        if self.differs is not None:
            parts = np.array(self.images.extra["part_mask"][prediction.row])
            rivals = self.differs[prediction.label, prediction.rival] if name == RIVAL else None
            telling = self.differs[prediction.label].any(axis=0) if rivals is None else rivals
            wanted = np.flatnonzero(telling) + 1
            return torch.from_numpy(parts > 0 if name == ANY else np.isin(parts, wanted))
        height, width = self.images.images.shape[1:3]
        y, x = np.mgrid[:height, :width] + 0.5
        if name == INSIDE and self.images.boxes is not None:
            x0, y0, x1, y1 = self.images.boxes[prediction.row]
            return torch.from_numpy((x >= x0) & (x < x1) & (y >= y0) & (y < y1))
        points = np.asarray(self.images.extra["parts"][prediction.row], np.float64)
        near = np.zeros((height, width), bool)
        for px, py in points[np.isfinite(points).all(axis=1)]:
            near |= np.hypot(x - px, y - py) <= NEAR * max(height, width)
        return torch.from_numpy(near)


def _score_hits(
    predictions: list[PointedPrediction], masks: _Truth, name: str
) -> tuple[list[int], list[float], list[float]]:
    rows, hits, odds = [], [], []
    for prediction in predictions:
        mask = masks.mask(name, prediction)
        if bool(mask.any()):
            rows.append(prediction.row)
            hits.append(float(points_at_region(prediction.box, mask)))
            odds.append(compute_pointing_chance(prediction.box, mask))
    return rows, hits, odds


def compute_metrics(
    rows: list[int], hits: list[float], odds: list[float], key: Key, repeats: int
) -> dict[str, float | None]:
    """Hits against chance; an image that several models saw is resampled as one."""
    hit, odd = np.array(hits), np.array(odds)

    def statistic(weights: Floats) -> Floats:
        return ratio(weights @ hit, weights @ odd)

    interval = bootstrap(statistic, rows, key, repeats)
    low, high = interval.low, interval.high
    if interval.groups > 1 and len(set(hits)) == 1 and odd.mean() > 0:
        # Resamples of equal hits are all equal: Clopper and Pearson's limits know better.
        edge = _TAIL ** (1 / interval.groups)
        low, high = (edge, 1.0) if hits[0] else (0.0, 1 - edge)
        low, high = low / float(odd.mean()), high / float(odd.mean())
    return {
        "images": len(hit),
        "rate": float(hit.mean()) if len(hit) else None,
        "chance": float(odd.mean()) if len(odd) else None,
        "ratio": interval.value,
        "low": low,
        "high": high,
    }
