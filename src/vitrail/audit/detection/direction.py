"""From the A halves: for each class of each site the unit in which it stands apart, and how.

Anybody who has all sites' summaries computes the same directions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.audit.detection.feature_layout import Unit

Floats = npt.NDArray[np.float64]
_CAP = 100.0  # of one feature's squared shift, in squared standard errors
_PRIOR = 8.0  # pairs that a family's common spread counts as, beside a unit's own
_MAD_TO_SD = 1.4826
_SHORTLIST = 20  # candidates of a pair that are asked what the site's other classes do there
_SINGLES = 28  # features at most of a unit that are also looked at one by one
_NEARLY = 0.6  # of the best standing: a fixed place is the better account then
_SHRINK = 0.02  # of correlations toward none
_FEW = 4  # features of a large unit that moved most: what a small thing anywhere does


@dataclass(frozen=True)
class Direction:
    """Where class `label` of `site` stands apart on the A halves, and along what.

    The scalar of an image is `weights` times its features in `columns` of `unit`, from `center`
    in units of `scale`: 0 is the other sites' mean. `common` is the share of the shift that the
    site's other classes have as well; `lacks` says that those side with the site and not with the
    others.
    """

    site: str
    label: int
    unit: int
    columns: npt.NDArray[np.int64]
    weights: Floats
    center: float
    scale: float
    strength: float
    common: float
    lacks: bool
    shift: float  # of the site's A half, in units of scale
    place: int | None = None  # the unit at a place that stands apart nearly as much

    def project(self, features: Floats) -> Floats:
        """The scalar of each row of features [N, F]."""
        values = features[:, self.columns] @ self.weights
        return (values - self.center) / self.scale


@dataclass(frozen=True)
class _Pair:
    site: str
    label: int
    delta: Floats  # [F], site minus the median of the others
    error: float  # squared standard error of delta, in variances of one image


@dataclass(frozen=True)
class _Candidate:
    """A way to look at a unit: some columns of the features, which those of `basis` times the
    unit's may be instead; where `few`, only those of them that moved most."""

    unit: int
    columns: npt.NDArray[np.int64]
    name: str
    basis: Floats | None = None
    few: bool = False

    def settle(self, squares: Floats) -> _Candidate:
        """As one pair sees it, by the squared shifts [F] of its features."""
        if not self.few:
            return self
        most = np.argsort(-squares[self.columns], kind="stable")[:_FEW]
        return replace(self, columns=np.sort(self.columns[most]), few=False)

    def look(self, features: Floats) -> Floats:
        """Features [..., F] as this candidate sees them."""
        part = features[..., self.columns]
        return part if self.basis is None else part @ self.basis.T

    def to_weights(self, weights: Floats) -> Floats:
        """Weights of what it sees as weights of its columns."""
        return weights if self.basis is None else self.basis.T @ weights


def choose_directions(
    summaries: Mapping[str, ClassSummary], units: Sequence[Unit]
) -> dict[tuple[str, int], Direction]:
    """One direction for each class of each site that another site has as well."""
    pairs = _make_pairs(summaries)
    if not pairs:
        return {}
    variance = _pool_variance(summaries)
    candidates = _list_candidates(summaries, units, variance)
    shifts = np.stack([pair.delta for pair in pairs])
    errors = np.array([pair.error for pair in pairs])
    squares = np.minimum(shifts**2 / variance / errors[:, None], _CAP)
    roots = _compute_roots(shifts, squares, errors, candidates)
    standing = _standardize(roots, candidates)
    directions = {}
    for at, pair in enumerate(pairs):
        rest = _find_rest(pairs, pair)
        order = np.argsort(-standing[at], kind="stable")[:_SHORTLIST].tolist()
        usual = np.median(rest, 0) if len(rest) else None
        seen = {k: candidates[k].settle(squares[at]) for k in order}
        common = {k: _compute_common(seen[k], pair.delta, rest, usual, variance) for k in order}
        best = max(order, key=lambda k: standing[at][k] * (1 - common[k]))
        place = _find_place(standing[at], candidates, units, float(standing[at][best]))
        chosen = _make_direction(pair, seen[best], variance, float(standing[at][best]))
        directions[pair.site, pair.label] = _orient(
            replace(chosen, common=common[best], place=place), summaries
        )
    return directions


def _find_place(
    standing: Floats, candidates: Sequence[_Candidate], units: Sequence[Unit], best: float
) -> int | None:
    """The place that stands apart most, if nearly as much as the best unit of any kind."""
    places = [k for k, c in enumerate(candidates) if units[c.unit].kind == "place"]
    if not places:
        return None
    first = max(places, key=lambda k: standing[k])
    return candidates[first].unit if standing[first] >= _NEARLY * best else None


def _list_candidates(
    summaries: Mapping[str, ClassSummary], units: Sequence[Unit], variance: Floats
) -> list[_Candidate]:
    """Every unit as it is; joint ones also without their correlations, small ones feature by
    feature, and large ones by the features that moved most."""
    candidates = [
        _Candidate(at, unit.columns, f"{unit.family} {len(unit.columns)}")
        for at, unit in enumerate(units)
    ]
    joint = [at for at, unit in enumerate(units) if unit.joint]
    for number, at in enumerate(joint):
        unit = units[at]
        basis = _decorrelate(summaries, number, variance[unit.columns])
        candidates.append(_Candidate(at, unit.columns, f"{unit.family} joint", basis))
    for at, unit in enumerate(units):
        if unit.kind != "place" and len(unit.columns) <= _SINGLES:
            name = f"{unit.family} one"
            candidates += [
                _Candidate(at, unit.columns[[k]], name) for k in range(len(unit.columns))
            ]
        elif unit.kind != "place":
            candidates.append(_Candidate(at, unit.columns, f"{unit.family} few", few=True))
    return candidates


def _compute_roots(
    shifts: Floats, squares: Floats, errors: Floats, candidates: Sequence[_Candidate]
) -> Floats:
    """The root mean square shift in standard errors, [pairs, candidates]."""
    is_plain = np.array([c.basis is None and not c.few for c in candidates])
    plain = [c for c, simple in zip(candidates, is_plain, strict=True) if simple]
    members, sizes = _make_members(
        tuple(len(c.columns) for c in plain), _join_columns(plain), shifts.shape[1]
    )
    roots = np.empty((len(shifts), len(candidates)))
    roots[:, is_plain] = np.sqrt((members @ squares.T).T / sizes)
    for at in np.flatnonzero(~is_plain).tolist():
        if candidates[at].few:
            moved = np.sort(squares[:, candidates[at].columns], 1)[:, -_FEW:]
        else:
            moved = np.minimum(candidates[at].look(shifts) ** 2 / errors[:, None], _CAP)
        roots[:, at] = np.sqrt(moved.mean(1))
    return roots


def _compute_common(
    candidate: _Candidate, delta: Floats, rest: Floats, usual: Floats | None, variance: Floats
) -> float:
    """The share of a shift that the site's other classes, `usual` in the median, have as well."""
    if usual is None:
        return 0.0
    plain = candidate.basis is None
    scale = variance[candidate.columns] if plain else 1.0
    one = candidate.look(delta)
    two = candidate.look(usual) if plain else np.median(candidate.look(rest), 0)
    size = float((one**2 / scale).sum())
    return float(np.clip((one * two / scale).sum() / max(size, 1e-12), 0, 1))


def _pool_variance(summaries: Mapping[str, ClassSummary]) -> Floats:
    """Within classes and sites, weighed by degrees of freedom; never nothing where means differ."""
    tables = list(summaries.values())
    freedom = np.array([table.freedom for table in tables], np.float64)
    pooled = np.einsum("s,sf->f", freedom, np.stack([t.variance for t in tables]))
    pooled /= max(1.0, freedom.sum())
    means = np.concatenate([t.means[t.counts > 0] for t in tables])
    between = means.var(0) if len(means) else np.zeros_like(pooled)
    floor: Floats = np.maximum(np.maximum(pooled, 0.02 * between), 1e-8)
    return floor


def _decorrelate(summaries: Mapping[str, ClassSummary], number: int, variance: Floats) -> Floats:
    """A matrix that makes the features of a joint unit uncorrelated, each with variance 1.

    A tone curve or a spectrum moves as one from image to image; what a camera does to it shows
    in how its points lie to each other.
    """
    tables = [t for t in summaries.values() if t.freedom]
    weights = np.array([t.freedom for t in tables], np.float64)
    pooled = np.einsum("s,sij->ij", weights, np.stack([t.correlations[number] for t in tables]))
    pooled /= weights.sum()
    shrink = min(1.0, _SHRINK + len(pooled) / (weights.sum() + len(pooled)))
    pooled = (1 - shrink) * pooled + shrink * np.eye(len(pooled))
    values, vectors = np.linalg.eigh(pooled)
    root = (vectors / np.sqrt(np.maximum(values, _SHRINK / 2))).T
    basis: Floats = root / np.sqrt(variance)
    return basis


def _make_pairs(summaries: Mapping[str, ClassSummary]) -> list[_Pair]:
    pairs = []
    for site, table in summaries.items():
        for label in np.flatnonzero(table.counts).tolist():
            others = [t for n, t in summaries.items() if n != site and t.counts[label] > 0]
            if others:
                counts = np.array([t.counts[label] for t in others], np.float64)
                center, error = _find_center(np.stack([t.means[label] for t in others]), counts)
                delta = table.means[label] - center
                pairs.append(_Pair(site, label, delta, 1 / table.counts[label] + error))
    return pairs


def _find_center(means: Floats, counts: Floats) -> tuple[Floats, float]:
    """The others by their median, so that a second marked site does not hide the first; with
    fewer than three of them, by their mean. And its squared error."""
    if len(means) < 3:
        return np.average(means, axis=0, weights=counts), 1 / counts.sum()
    return np.median(means, axis=0), np.pi / 2 / counts.sum()


@lru_cache(maxsize=4)
def _make_members(
    lengths: tuple[int, ...], columns: bytes, features: int
) -> tuple[csr_matrix, Floats]:
    """Which features each candidate has, [candidates, features], and how many."""
    at = np.frombuffer(columns, np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    sizes = np.array(lengths, np.float64)
    return csr_matrix((np.ones(len(at)), at, starts), shape=(len(lengths), features)), sizes


def _join_columns(candidates: Sequence[_Candidate]) -> bytes:
    return np.concatenate([c.columns for c in candidates]).astype(np.int64).tobytes()


def _standardize(roots: Floats, candidates: Sequence[_Candidate]) -> Floats:
    """How far each pair stands out in each candidate, beyond what all pairs do there.

    Sites differ without any bias, in some families more than in others. The spread of a unit is
    that over pairs, drawn toward the median of its family: few pairs say little of a spread.
    """
    middle = np.median(roots, 0)
    spread = _MAD_TO_SD * np.median(np.abs(roots - middle), 0)
    names = np.array([candidate.name for candidate in candidates])
    usual = np.empty_like(spread)
    for name in np.unique(names):
        usual[names == name] = np.median(spread[names == name])
    count = len(roots)
    mixed = (count * spread**2 + _PRIOR * usual**2) / (count + _PRIOR)
    standing: Floats = (roots - middle) / np.sqrt(np.maximum(mixed, 1e-4))
    return standing


def _find_rest(pairs: Sequence[_Pair], pair: _Pair) -> Floats:
    """The shifts of the site's other classes, [others, F]."""
    rest = [p.delta for p in pairs if p.site == pair.site and p.label != pair.label]
    return np.stack(rest) if rest else np.empty((0, len(pair.delta)))


def _make_direction(
    pair: _Pair, candidate: _Candidate, variance: Floats, strength: float
) -> Direction:
    """Features by how far they moved, less one standard error, which chance does."""
    delta = candidate.look(pair.delta)
    spread = variance[candidate.columns] if candidate.basis is None else np.ones(len(delta))
    size = np.abs(delta) - np.sqrt(spread * pair.error)
    kept = np.where(size > 0, np.sign(delta) * size, 0.0)
    weights = (kept if kept.any() else delta) / spread
    scale = float(np.sqrt((weights**2 * spread).sum())) or 1.0
    shift = float(weights @ delta) / scale
    return Direction(
        pair.site,
        pair.label,
        candidate.unit,
        candidate.columns,
        candidate.to_weights(weights),
        0.0,
        scale,
        strength,
        0.0,
        False,
        shift,
    )


def _orient(direction: Direction, summaries: Mapping[str, ClassSummary]) -> Direction:
    """Put 0 where the others are, and see whom the other classes side with."""
    columns = direction.columns
    here = float(summaries[direction.site].means[direction.label, columns] @ direction.weights)
    center = here - direction.shift * direction.scale
    rest = [
        float(table.means[label, columns] @ direction.weights)
        for table in summaries.values()
        for label in np.flatnonzero(table.counts).tolist()
        if label != direction.label
    ]
    lacks = bool(rest) and abs(np.median(rest) - here) < abs(np.median(rest) - center)
    return replace(direction, center=center, lacks=bool(lacks))
