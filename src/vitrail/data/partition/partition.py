"""Which site has which images, and which of them it trains on.

Where patients are known, the unit that is dealt out and held out is the patient with all
images (its label is its most frequent one), never the image: no patient is on the training
side of one site and on a test side anywhere in the federation. Equal and nearly equal images
are brought to one side afterwards, so that a set without copies is dealt out as ever.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.config.schema import Partition as Options
from vitrail.data.image_set import ImageSet
from vitrail.data.labels import undersample
from vitrail.data.near_duplicates import join_groups
from vitrail.data.partition.limit_per_class import limit_per_class
from vitrail.data.partition.partition_kinds import KINDS, Ints, ensure_minimum
from vitrail.data.partition.validation_share import reserve_validation
from vitrail.errors import ConfigError, DataError, suggest_name
from vitrail.rng import Key

Mask = npt.NDArray[np.bool_]

DEFAULT_TEST_FRACTION = 0.2
"""What a site holds out when the data brings no split of its own and none is asked for."""


_SERVER, _NOBODY = -1, -2  # owners of rows that no site holds


@dataclass(frozen=True)
class SiteRows:
    """The rows of one site's images, ascending: those it trains on and those it holds out."""

    name: str
    train: Ints
    test: Ints
    push: Ints | None = None  # where prototypes are looked for, if not among `train`


@dataclass(frozen=True)
class Partition:
    """The sites in order, and the rows that belong to none of them and test the global model."""

    sites: tuple[SiteRows, ...]
    server_test: Ints
    left_out: int = 0  # training images that the data's own test part holds as well


def make_partition(images: ImageSet, config: Options, data: Data, key: Key) -> Partition:
    """Deal images out to sites and split each site's into train and test.

    If the data has a split of its own, its test images are the server's in a synthetic
    partition and stay with their site in a partition by column or of one site;
    `test_fraction` then adds test images only if it is given. Without test images in the data
    it is 0.2 unless given.
    """
    if not len(images):
        raise DataError("there are no images to deal out", where="partition")
    units = _units(images)
    held = _held_by_split(images, units)
    copies = _find_copies_of_held(images, held)
    by_column = config.kind == "column"
    if by_column:
        names, owner = _by_column(images, config, data)
    elif config.kind == "one":
        names, owner = [config.name], np.zeros(len(images), dtype=np.int64)
    else:
        names, owner = _by_kind(images, units, held, config, key)
    owner = np.where(copies, _NOBODY, owner)
    fraction = config.test_fraction
    if fraction is None:
        fraction = 0.0 if held.any() else DEFAULT_TEST_FRACTION
    reserved = reserve_validation(images, units, held, config.validation)
    spoken_for = held | reserved
    if config.validate_only:
        if not reserved.any():
            raise ConfigError("there is no share to hold out", where="partition.validation")
        owner = np.where(held, _NOBODY, owner)  # no test image of the data is seen either
        test = reserved
    elif config.folds is None:
        test = held | _hold_out(images, units, owner, spoken_for, fraction, key)
    else:
        test = held | _one_fold(images, units, owner, spoken_for, config, key)
    test = _align_copies(images, units, owner, spoken_for, test)
    server = np.flatnonzero(owner == _SERVER)
    sites = tuple(
        _site(name, np.flatnonzero(owner == i), test, images, data, key)
        for i, name in enumerate(names)
    )
    if by_column:
        _check_classes(images, sites)
    if config.per_class is not None:
        trains = [site.train for site in sites]
        few = limit_per_class(trains, names, images.labels, config.per_class, key.at("scant"))
        sites = tuple(replace(site, train=rows) for site, rows in zip(sites, few, strict=True))
    return Partition(sites, server, int(copies.sum()))


def _site(name: str, rows: Ints, test: Mask, images: ImageSet, data: Data, key: Key) -> SiteRows:
    train, held = rows[~test[rows]], rows[test[rows]]
    if not len(train):
        raise DataError(
            f"site {name!r} has {len(held)} test images and none to train on",
            where="partition",
            hint="Leave the site out, or check its split.",
        )
    if data.balance:
        train = train[undersample(images.labels[train], key.at("balance", name))]
    return SiteRows(name, train, held)


def _units(images: ImageSet) -> Ints:
    """The number of the unit each image belongs to; an image of no known patient is its own."""
    alone = np.arange(len(images), dtype=np.int64)
    if images.patients is None:
        return alone
    known = np.char.strip(images.patients) != ""
    _, first, inverse = np.unique(images.patients, return_index=True, return_inverse=True)
    # Numbered by the first image, so that renaming patients changes nothing.
    leader = np.where(known, first[inverse], alone)
    return np.unique(leader, return_inverse=True)[1].astype(np.int64)


def _align_copies(images: ImageSet, units: Ints, owner: Ints, held: Mask, test: Mask) -> Mask:
    """The test images once copies are on one side everywhere, with all images of their patients:
    the first image of those that hang together decides."""
    if images.groups is None:
        return test
    rows = np.flatnonzero((owner >= 0) & ~held)
    present, dense = np.unique(images.groups[rows], return_inverse=True)
    # Patients are nodes 0 .. U - 1 and groups of copies those after them; an image joins two.
    count = int(units.max()) + 1
    joined = join_groups(count + len(present), np.stack([units[rows], count + dense], axis=1))
    _, first, inverse = np.unique(joined[units[rows]], return_index=True, return_inverse=True)
    aligned = test.copy()
    aligned[rows] = test[rows[first[inverse]]]
    return aligned


def _find_copies_of_held(images: ImageSet, held: Mask) -> Mask:
    """The training images that the data's own test part holds as well: nobody trains on them."""
    if images.groups is None:
        return np.zeros(len(images), dtype=bool)
    return ~held & np.isin(images.groups, images.groups[held])


def _majority(units: Ints, labels: Ints) -> tuple[Ints, Ints]:
    """The most frequent label of every unit present (the smaller one on a tie), and its size."""
    pairs, counts = np.unique(np.stack([units, labels]), axis=1, return_counts=True)
    order = np.lexsort((pairs[1], -counts, pairs[0]))
    _, first = np.unique(pairs[0][order], return_index=True)
    return pairs[1][order][first], np.unique(units, return_counts=True)[1].astype(np.int64)


def _held_by_split(images: ImageSet, units: Ints) -> Mask:
    """The images that the data's own split keeps for testing."""
    if images.splits is None:
        return np.zeros(len(images), dtype=bool)
    held = np.asarray(images.splits == "test")
    both = np.intersect1d(units[held], units[~held])
    if len(both):
        example = str(images.names[units == both[0]][0])
        raise DataError(
            f"{len(both)} patients have images in both train and test, the one of {example!r} too",
            where="data.split",
            hint="Repair that column, or leave data.split out and let Vitrail split by patient.",
        )
    return held


def _by_kind(
    images: ImageSet, units: Ints, held: Mask, config: Options, key: Key
) -> tuple[list[str], Ints]:
    """The owner of every image in a synthetic partition."""
    rows = np.flatnonzero(~held)
    present, dense = np.unique(units[rows], return_inverse=True)
    if config.sites > len(present):
        noun = "images" if images.patients is None else "patients"
        raise ConfigError(
            f"{config.sites} sites cannot share {len(present)} {noun} to train on",
            where="partition.sites",
            hint=f"Use at most {len(present)} sites.",
        )
    labels, weights = _majority(dense, images.labels[rows])
    draw = key.at("deal").numpy()
    chosen = KINDS[config.kind](labels, config, draw)
    chosen = ensure_minimum(chosen, weights, config.sites, config.minimum, draw)
    owner = np.full(len(images), _SERVER, dtype=np.int64)
    owner[rows] = chosen[dense]
    digits = max(2, len(str(config.sites - 1)))
    return [f"site-{i:0{digits}d}" for i in range(config.sites)], owner


def _by_column(images: ImageSet, config: Options, data: Data) -> tuple[list[str], Ints]:
    """The sites are the values of a column, in natural order: "site 2" before "site 10"."""
    values = _column(images, config, data)
    missing = np.char.strip(values) == ""
    if missing.any():
        raise DataError(
            f"{missing.sum()} of {len(images)} images name no site, "
            f"{str(images.names[missing][0])!r} for one",
            where="partition.column",
            hint="Fill the column, or leave those images out.",
        )
    names, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    small = np.flatnonzero(counts < config.minimum)
    if len(small):
        raise DataError(
            f"{len(small)} sites have fewer than {config.minimum} images, "
            f"{str(names[small[0]])!r} for one",
            where="partition.minimum",
            hint="Lower it, or leave those sites out.",
        )
    order = sorted(range(len(names)), key=lambda i: _natural(str(names[i])))
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    return [str(names[i]) for i in order], rank[inverse]


def _natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    pieces = re.findall(r"[0-9]+|[^0-9]+", name)
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p.casefold()) for p in pieces], name


def _column(images: ImageSet, config: Options, data: Data) -> npt.NDArray[np.str_]:
    """The named column as text, "" where a value is missing."""
    columns = {name: column for name, column in images.extra.items() if column.ndim == 1}
    if images.patients is not None:
        columns["patient"] = columns[data.patient or "patient"] = images.patients
    if images.sites is not None:
        columns["site"] = columns[data.site or config.column or "site"] = images.sites
    name = config.column or data.site or "site"
    if name not in columns:
        raise ConfigError(
            f"the images have no column {name!r} that could name sites",
            where="partition.column",
            hint=suggest_name(name, columns),
        )
    column = columns[name]
    if not np.issubdtype(column.dtype, np.floating):
        return column.astype(np.str_)
    # A whole number that went through a float column is still the same site.
    words = ["" if x != x else f"{x:.15g}" for x in column.astype(np.float64).tolist()]
    return np.array(words, dtype=np.str_)


def _hold_out(
    images: ImageSet, units: Ints, owner: Ints, held: Mask, fraction: float, key: Key
) -> Mask:
    """Every site's own test images: a share of its units, class by class.

    A patient seen at two sites is on one side everywhere: the first site decides.
    """
    test = np.zeros(len(images), dtype=bool)
    if fraction == 0:
        return test
    rows = np.flatnonzero(~held & (owner >= 0))
    rows = rows[np.argsort(owner[rows], kind="stable")]
    left = np.bincount(images.labels[rows], minlength=len(images.classes))
    bounds = np.searchsorted(owner[rows], np.arange(owner.max() + 2))
    decided = np.zeros(int(units.max()) + 1, dtype=bool)
    chosen = np.zeros_like(decided)
    for site, (start, stop) in enumerate(itertools.pairwise(bounds)):
        undecided = rows[start:stop]
        undecided = undecided[~decided[units[undecided]]]
        if len(undecided):
            labels, weights = _majority(units[undecided], images.labels[undecided])
            present = np.unique(units[undecided])
            picked = _pick(labels, fraction, left, key.at("split", site).numpy())
            decided[present] = True
            chosen[present[picked]] = True
            left -= np.bincount(labels[picked], weights[picked], len(left)).astype(np.int64)
    test[rows] = chosen[units[rows]]
    return test


def _one_fold(
    images: ImageSet, units: Ints, owner: Ints, held: Mask, config: Options, key: Key
) -> Mask:
    """The fold that is held out: each site's units are counted off, class by class.

    A patient seen at two sites is in one fold everywhere: the first site decides.
    """
    folds = config.folds or 1
    rows = np.flatnonzero(~held & (owner >= 0))
    fold = np.full(int(units.max()) + 1, -1, dtype=np.int64)
    for site in range(int(owner.max()) + 1):
        undecided = rows[owner[rows] == site]
        undecided = undecided[fold[units[undecided]] < 0]
        if not len(undecided):
            continue
        labels, _ = _majority(units[undecided], images.labels[undecided])
        present = np.unique(units[undecided])
        draw = key.at("folds", site).numpy()
        order = draw.permutation(len(present))
        order = order[np.argsort(labels[order], kind="stable")]
        # Counting goes on from class to class, so that no fold gets all that are left over.
        fold[present[order]] = (np.arange(len(present)) + draw.integers(folds)) % folds
    test = np.zeros(len(images), dtype=bool)
    test[rows] = fold[units[rows]] == config.fold
    return test


def _pick(labels: Ints, fraction: float, left: Ints, draw: np.random.Generator) -> Ints:
    """Positions to hold out: about `fraction`, stratified, at least one if one can be spared.

    A class keeps a unit for training at this site. Only when no class has two of them is one
    taken that other sites still train on; `left` counts the images that are not held out yet.
    """
    total = len(labels)
    want = min(max(int(fraction * total + 0.5), 1), total - 1)
    present, counts = np.unique(labels, return_counts=True)
    if want <= 0:
        return np.empty(0, dtype=np.int64)
    if counts.max() == 1:
        spare = np.flatnonzero(left[labels] > 1)
        return draw.permutation(spare)[:1]
    quota = _quota(counts, want, draw)
    chosen = [
        draw.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in zip(present, quota)
        if count
    ]
    return np.concatenate(chosen)


def _quota(counts: Ints, want: int, draw: np.random.Generator) -> Ints:
    """Largest remainders of `want` shared like `counts`, leaving at least one of each class."""
    ideal = counts * (want / counts.sum())
    room = counts - 1
    quota: Ints = np.minimum(np.floor(ideal).astype(np.int64), room)
    want = min(want, int(room.sum()))
    tie = draw.random(len(counts))
    while (short := want - int(quota.sum())) > 0:
        open_ = np.flatnonzero(quota < room)
        order = np.lexsort((tie[open_], -np.round(ideal - quota, 9)[open_]))
        quota[open_[order[:short]]] += 1
    return quota


def _check_classes(images: ImageSet, sites: tuple[SiteRows, ...]) -> None:
    """Every class that occurs must be trained on somewhere."""
    trained = np.unique(np.concatenate([images.labels[site.train] for site in sites]))
    lost = np.setdiff1d(images.labels, trained)
    if len(lost):
        more = f" and {len(lost) - 1} other classes" if len(lost) > 1 else ""
        raise DataError(
            f"no site has a training image of class {images.classes[lost[0]]!r}{more}",
            where="partition",
            hint="Leave such classes out, or check the split.",
        )
