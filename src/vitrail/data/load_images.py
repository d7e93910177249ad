"""Reading a user's images: find them, resolve labels, decode, resize, check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.columns import (
    make_box_column,
    make_extra_columns,
    make_part_column,
    make_text_column,
)
from vitrail.data.decoding.decode_all import decode_all
from vitrail.data.image_set import ImageSet
from vitrail.data.labels import ResolvedLabels, resolve_labels
from vitrail.data.records import STOPPING, Problem, Records
from vitrail.data.split import resolve_splits
from vitrail.errors import ConfigError, DataError, suggest_name
from vitrail.registry import Registry
from vitrail.rng import Key


class Source(Protocol):
    """Finds the images of one layout, or draws its own and returns a finished set at once."""

    def __call__(self, data: Data, path: Path, key: Key) -> Records | ImageSet:
        """What lies at `path`, undecoded; it is the config's folder where no path is needed."""
        ...


class SourceRegistry(Registry[Source]):
    """The sources by name, and which of them have no use for `data.path`."""

    def __init__(self) -> None:
        super().__init__("source of images", "data.source")
        self._drawn: set[str] = set()

    def register(self, name: str, *, needs_path: bool = True) -> Callable[[Source], Source]:
        """Decorator: make `name` mean the decorated function. One that draws its images says
        `needs_path=False`."""
        keep = super().register(name)

        def note(source: Source) -> Source:
            keep(source)
            (self._drawn.discard if needs_path else self._drawn.add)(name)
            return source

        return note

    def needs_path(self, name: str) -> bool:
        """Whether the source of this name, which must exist, reads what lies at `data.path`."""
        self[name]
        return name not in self._drawn


SOURCES = SourceRegistry()


def load(config: Data, base: Path, key: Key) -> ImageSet:
    """The images that `[data]` describes; paths are relative to `base`, the config's folder."""
    return load_with_problems(config, base, key)[0]


def load_with_problems(config: Data, base: Path, key: Key) -> tuple[ImageSet, list[Problem]]:
    """The images, and every problem that did not stop the loading."""
    found = read_source(config, base, key)
    if isinstance(found, ImageSet):
        return _limit_set(found, config, key), []
    problems = list(found.problems)
    resolved = resolve_labels(
        [row.label for row in found.rows],
        [row.name for row in found.rows],
        config,
        found.classes,
    )
    problems += resolved.problems
    refuse_unusable(problems, config)
    resolved = keep_classes(resolved, config)
    splits, notes = resolve_splits([row.split for row in found.rows])
    problems += notes
    chosen = limit_rows(resolved.labels, _select(splits, resolved.rows), config, key)
    resolved = _take(resolved, chosen)
    rows = [found.rows[i] for i in resolved.rows]
    decoded = decode_all(rows, found.files, found.decoder, config)
    problems += decoded.problems
    refuse_unusable(problems, config)
    if len(decoded.kept) == 0:
        raise DataError("not one image could be read", where=str(config.path), hint=_ADVICE)
    kept = _take(resolved, decoded.kept)
    images = _assemble(found, kept, splits, decoded.images, decoded.sizes, config)
    images = replace(images, bits=decoded.bits)
    if not config.partial:
        _check_two_classes(images)
    return images, problems


def read_source(config: Data, base: Path, key: Key) -> Records | ImageSet:
    """What the source finds, before labels are resolved and pixels decoded."""
    source = SOURCES[config.source]
    path = locate(config, base) if SOURCES.needs_path(config.source) else base
    found = source(config, path, key)
    if isinstance(found, Records) and not found.rows:
        raise DataError(
            f"there are no images for source {config.source!r}",
            where=str(path),
            hint="`vitrail data check PATH` says what was found.",
        )
    if isinstance(found, ImageSet):
        _check_finished(config)
        _check_columns(found, config.source)
    return found


def _check_finished(config: Data) -> None:
    """A source that makes its own images numbers their classes itself."""
    for name in ("keep", "rename"):
        if getattr(config, name):
            raise ConfigError(
                f"data.source = {config.source!r} has its own classes and no use for data.{name}",
                where=f"data.{name}",
                hint="Leave it out, or name the source of your own images.",
            )


def _check_columns(images: ImageSet, source: str) -> None:
    """A finished set must be what the rest counts on, which a plug-in's may not be."""
    pixels, labels, count = images.images, images.labels, len(images.images)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] not in (1, 3):
        wrong = f"its images are {pixels.dtype} {list(pixels.shape)}, not uint8 [N, H, W, 1 or 3]"
    elif pixels.shape[1] != pixels.shape[2]:
        wrong = f"its images are {pixels.shape[2]} x {pixels.shape[1]}, not square"
    elif labels.dtype != np.int64 or labels.shape != (count,):
        wrong = f"its labels are {labels.dtype} {list(labels.shape)}, not int64 [{count}]"
    elif count == 0 or labels.min() < 0 or labels.max() >= len(images.classes):
        wrong = f"its labels are not numbers of its {len(images.classes)} classes"
    elif len(images.names) != count:
        wrong = f"it has {len(images.names)} names for {count} images"
    else:
        return
    raise DataError(f"source {source!r} returned what cannot be used: {wrong}", where="data.source")


def locate(config: Data, base: Path) -> Path:
    """The file or folder of `data.path`, which must exist."""
    if not config.path:
        raise DataError(f"source {config.source!r} needs a path", where="data.path")
    path = base / Path(config.path).expanduser()
    if not path.exists():
        raise DataError(
            f"{config.path!r} does not exist",
            where="data.path",
            hint="Name the file or folder as it lies on this machine."
            if Path(config.path).is_absolute()
            else f"Paths are relative to the folder of the config file, {base}.",
        )
    return path


_ADVICE = "`vitrail data check PATH` lists them all"


def refuse_unusable(problems: Sequence[Problem], config: Data) -> None:
    """With `data.broken = "stop"`, one sentence for all images that cannot be used."""
    bad = [p for p in problems if p.kind in STOPPING]
    if not bad or config.broken == "skip":
        return
    kinds = [(kind, sum(p.kind == kind for p in bad)) for kind in ("broken", "missing", "label")]
    words = {"broken": "broken", "missing": "missing", "label": "without a usable label"}
    counts = ", ".join(f"{count} {words[kind]}" for kind, count in kinds if count)
    first = "; ".join(f"{p.path} {p.sentence}" for p in bad[:3])
    more = "; ..." if len(bad) > 3 else ""
    raise DataError(
        f"some images cannot be used ({counts}): {first}{more}",
        where=str(config.path or config.source),
        hint=f'{_ADVICE}; data.broken = "skip" leaves them out.',
    )


def keep_classes(resolved: ResolvedLabels, config: Data) -> ResolvedLabels:
    """Only the rows of the classes in `data.keep`, labels counted anew in that order."""
    if config.keep is None:
        return resolved
    names = resolved.classes[: config.keep] if isinstance(config.keep, int) else config.keep
    unknown = [name for name in names if name not in resolved.classes]
    if unknown:
        raise DataError(
            f"there is no class {unknown[0]!r} to keep",
            where="data.keep",
            hint=suggest_name(unknown[0], resolved.classes),
        )
    if len(set(names)) < 2:
        raise DataError("fewer than two classes are kept", where="data.keep")
    number = {resolved.classes.index(name): i for i, name in enumerate(dict.fromkeys(names))}
    rows = np.flatnonzero(np.isin(resolved.labels, list(number)))
    chosen = _take(resolved, rows)
    labels = np.array([number[label] for label in chosen.labels.tolist()], np.int64)
    return replace(chosen, labels=labels, classes=tuple(dict.fromkeys(names)))


def limit_rows(
    labels: npt.NDArray[np.int64], splits: Sequence[str | None], config: Data, key: Key
) -> npt.NDArray[np.int64]:
    """At most `data.limit` rows, order kept, in proportion to classes and splits.

    Every class of every split keeps at least one image if the limit allows it.
    """
    count = len(labels)
    if config.limit is None or config.limit >= count:
        return np.arange(count)
    generator = key.at("limit").numpy()
    groups = np.array([f"{split}/{label}" for split, label in zip(splits, labels)])
    place = np.zeros(count)
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        place[rows] = generator.permutation(len(rows)) / len(rows)
    order = np.lexsort((generator.random(count), place))
    return np.sort(order[: config.limit])


def _limit_set(images: ImageSet, config: Data, key: Key) -> ImageSet:
    if config.limit is None or config.limit >= len(images):
        return images
    splits = [None] * len(images) if images.splits is None else images.splits.tolist()
    return images.take(limit_rows(images.labels, splits, config, key))


def _select(column: Sequence[str | None], rows: npt.NDArray[np.int64]) -> list[str | None]:
    return [column[i] for i in rows]


def _take(resolved: ResolvedLabels, rows: npt.NDArray[np.int64]) -> ResolvedLabels:
    findings = resolved.findings
    return replace(
        resolved,
        rows=resolved.rows[rows],
        labels=resolved.labels[rows],
        findings=None if findings is None else tuple(findings[i] for i in rows),
    )


def _assemble(
    found: Records,
    kept: ResolvedLabels,
    splits: Sequence[str | None],
    pixels: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int32],
    config: Data,
) -> ImageSet:
    rows = [found.rows[i] for i in kept.rows]
    side = pixels.shape[1]
    extra = make_extra_columns(found.columns, kept.rows)
    parts = make_part_column(rows, sizes, side, config.resize)
    if parts is not None:
        extra["parts"] = parts
    return ImageSet(
        images=pixels,
        labels=kept.labels,
        classes=kept.classes,
        names=np.array([row.name for row in rows], np.str_),
        sites=make_text_column("site", [row.site for row in rows]),
        patients=make_text_column("patient", [row.patient for row in rows]),
        splits=make_text_column("split", _select(splits, kept.rows)),
        boxes=make_box_column(rows, sizes, side, config.resize),
        sizes=sizes,
        findings=kept.findings,
        extra=extra,
        places=kept.rows,
    )


def _check_two_classes(images: ImageSet) -> None:
    held = np.unique(images.labels)
    if len(held) < 2:
        only = images.classes[int(held[0])]
        raise DataError(
            f"after leaving out what cannot be read, only the class {only!r} has images",
            where="data.broken",
        )
