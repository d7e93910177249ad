"""Shortcuts injected into some classes of some sites, and a record of where they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Bias
from vitrail.data.bias.marks import stamp
from vitrail.data.image_set import ImageSet
from vitrail.errors import ConfigError, DataError, suggest_name
from vitrail.rng import Key

Side = Literal["train", "push", "test"]
Rows = npt.NDArray[np.int64]
SiteSides = Mapping[str, Mapping[Side, Rows]]


@dataclass(frozen=True)
class BiasedImages:
    """Images with shortcuts, and the truth about them.

    `images` has the rows of the original set in order. If an image is biased in training but
    not for push, or the other way round, a second version of it is appended; so use `rows`,
    which says for every site what to train on, push from and test on.
    """

    images: ImageSet
    rows: SiteSides
    touched: npt.NDArray[np.bool_]  # [N]
    regions: npt.NDArray[np.float32]  # [N, 4], of the last mark; NaN if untouched or image-wide
    source: Rows  # [N], the row of the original set that the picture comes from


@dataclass
class _State:
    """What has been decided so far; pixels are painted once, at the end."""

    images: ImageSet
    rows: dict[str, dict[Side, Rows]]
    source: Rows
    number: Rows  # what places a random mark: a copy has the number of its original
    touched: npt.NDArray[np.bool_]
    paint: list[tuple[Bias, Rows, Key]] = field(default_factory=list)


def inject(
    images: ImageSet, rows_by_site: SiteSides, biases: tuple[Bias, ...], key: Key
) -> BiasedImages:
    """Apply every bias, in order, to its share of the images of its sites, classes and sides.

    The same arrays come back if nothing is touched. Sites must not share rows.
    """
    state = _State(
        images,
        {
            name: {side: np.asarray(rows) for side, rows in sides.items()}
            for name, sides in rows_by_site.items()
        },
        np.arange(len(images), dtype=np.int64),
        np.arange(len(images), dtype=np.int64),
        np.zeros(len(images), dtype=bool),
    )
    for number, bias in enumerate(biases):
        sites = _resolve(bias.sites, tuple(rows_by_site), "site", "bias.sites")
        labels = _resolve(bias.classes, images.classes, "class", "bias.classes")
        for site in sites:
            for label in labels:
                name = tuple(rows_by_site)[site]
                _apply(state, bias, name, label, key.at("bias", number, name, label))
    return _finish(state)


def _resolve(
    wanted: Sequence[str | int], names: tuple[str, ...], noun: str, where: str
) -> list[int]:
    """Names or positions as positions, each once."""
    resolved = []
    for item in wanted:
        if isinstance(item, str) and item in names:
            resolved.append(names.index(item))
        elif isinstance(item, int) and 0 <= item < len(names):
            resolved.append(item)
        else:
            hint = suggest_name(str(item), names[:20])
            if isinstance(item, int):
                hint = f"Use a name, or 0 to {len(names) - 1}."
            raise ConfigError(f"there is no {noun} {item!r}", where=where, hint=hint)
    return list(dict.fromkeys(resolved))


def _apply(state: _State, bias: Bias, site: str, label: int, key: Key) -> None:
    """One bias at one site in one class: training and push see the same choice of images."""
    if bias.strength == 0:
        return
    groups: tuple[tuple[Side, ...], ...] = (("train", "push"), ("test",))
    for group in groups:
        sides = [side for side in group if side in bias.where and side in state.rows[site]]
        if not sides:
            continue
        everyone = _join(state.rows[site].get(side) for side in group)
        members = everyone[state.images.labels[state.source[everyone]] == label]
        count = int(bias.share * len(members) + 0.5)
        chosen = np.sort(key.at(group[0], "share").numpy().permutation(members)[:count])
        others = [side for side in group if side not in sides]
        chosen = _separate(state, site, chosen, sides, others)
        if bias.kind == "replace":
            _replace(state, bias, site, chosen, group, key.at(group[0], "donors"))
        elif len(chosen):
            state.touched[chosen] = True
            state.paint.append((bias, chosen, key.at(group[0])))


def _join(parts: Iterable[Rows | None]) -> Rows:
    present = [part for part in parts if part is not None]
    return np.unique(np.concatenate(present)) if present else np.empty(0, dtype=np.int64)


def _separate(
    state: _State, site: str, chosen: Rows, sides: Sequence[Side], others: Sequence[Side]
) -> Rows:
    """The rows to change for `sides`, such that `others` keep their images as they are."""
    rows = state.rows[site]
    chosen = np.intersect1d(chosen, _join(rows.get(side) for side in sides))
    shared = np.intersect1d(chosen, _join(rows.get(side) for side in others))
    if not len(shared):
        return chosen
    copies = len(state.source) + np.arange(len(shared), dtype=np.int64)
    state.source = np.concatenate([state.source, state.source[shared]])
    state.number = np.concatenate([state.number, state.number[shared]])
    state.touched = np.concatenate([state.touched, state.touched[shared]])
    # What an earlier bias painted on an image is painted on its copy as well.
    state.paint = [
        (bias, np.concatenate([at, copies[np.isin(shared, at)]]), key)
        for bias, at, key in state.paint
    ]
    lookup = dict(zip(shared.tolist(), copies.tolist()))
    for side in sides:
        rows[side] = np.array([lookup.get(i, i) for i in rows[side].tolist()], dtype=np.int64)
    return np.array([lookup.get(i, i) for i in chosen.tolist()], dtype=np.int64)


def _replace(
    state: _State, bias: Bias, site: str, chosen: Rows, group: tuple[Side, ...], key: Key
) -> None:
    """Exchange images for others of their class that show the device, as far as there are any."""
    carries = _carriers(state.images, bias)
    already = carries[state.source[chosen]]
    state.touched[chosen[already]] = True
    chosen = chosen[~already]
    if not len(chosen):
        return
    label = int(state.images.labels[state.source[chosen[0]]])
    donors = _donors(state, carries & (state.images.labels == label), site, group, key)
    if not len(donors) and not already.any():
        raise DataError(
            f"no other image of class {state.images.classes[label]!r} with {bias.device!r} can go "
            f"to the {group[0]} part of site {site!r} without a patient on both sides of a split",
            where="bias.device",
            hint="Choose another device, class or site.",
        )
    chosen = np.sort(key.at("chosen").numpy().permutation(chosen)[: len(donors)])
    state.source[chosen] = donors[: len(chosen)]
    state.touched[chosen] = True


def _carriers(images: ImageSet, bias: Bias) -> npt.NDArray[np.bool_]:
    """Which images show the device."""
    if bias.device is None:
        raise ConfigError(
            'kind = "replace" needs the finding that the new images show', where="bias.device"
        )
    if images.findings is None:
        raise ConfigError(
            "the images have one label each and no second finding to go by",
            where="bias.device",
            hint="Use data with lists of findings and data.positive.",
        )
    known = frozenset().union(*images.findings)
    if bias.device not in known:
        raise ConfigError(
            f"no image has the finding {bias.device!r}",
            where="bias.device",
            hint=suggest_name(bias.device, known),
        )
    return np.array([bias.device in findings for findings in images.findings], dtype=bool)


def _donors(
    state: _State,
    fitting: npt.NDArray[np.bool_],
    site: str,
    group: tuple[Side, ...],
    key: Key,
) -> Rows:
    """Images that may come to this side, each once, those that no site has first.

    A donor's patient is on the other side of no site's split, donors of before included; and
    nothing that the data keeps for testing is trained on.
    """
    images = state.images
    training: tuple[Side, ...] = ("train", "push")
    opposite: tuple[Side, ...] = ("test",) if group == training else training
    held = state.source[_join(state.rows[site].values())]
    sites = state.rows.values()
    other = state.source[_join(sides.get(side) for sides in sites for side in opposite)]
    placed = state.source[_join(rows for sides in sites for rows in sides.values())]
    fitting = fitting.copy()
    fitting[held] = False
    fitting[other] = False
    if images.splits is not None and group == training:
        fitting &= images.splits != "test"
    if images.patients is not None:
        known = np.char.strip(images.patients) != ""
        fitting &= ~(known & np.isin(images.patients, images.patients[other]))
    free = key.numpy().permutation(np.flatnonzero(fitting))
    return free[np.argsort(np.isin(free, placed), kind="stable")]


def _finish(state: _State) -> BiasedImages:
    images = state.images
    regions = np.full((len(state.source), 4), np.nan, dtype=np.float32)
    if not np.array_equal(state.source, np.arange(len(images))):
        images = images.take(state.source)
    elif state.paint:
        images = replace(images, images=np.array(images.images))
    for bias, rows, key in state.paint:
        changed, places = stamp(images.images[rows], bias, key, state.number[rows])
        images.images[rows], regions[rows] = changed, places
    return BiasedImages(images, state.rows, state.touched, regions, state.source)
