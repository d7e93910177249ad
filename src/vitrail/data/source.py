"""Reading a user's images: find them, resolve labels, decode, resize, check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from vitrail.config.schema import Data
from vitrail.data.columns import boxes_of, extras_of, parts_of, text_of
from vitrail.data.develop import develop
from vitrail.data.images import ImageSet
from vitrail.data.labels import Resolved, resolve
from vitrail.data.records import STOPPING, Problem, Records
from vitrail.data.split import resolve_splits
from vitrail.errors import ConfigError, DataError, nearest
from vitrail.registry import Registry
from vitrail.rng import Key


class Source(Protocol):
    """Finds the images of one layout; embedded data may return a finished set at once."""

    def __call__(self, data: Data, path: Path, key: Key) -> Records | ImageSet:
        """What lies at `path`, undecoded."""
        ...


SOURCES: Registry[Source] = Registry("source of images", "data.source")


def load(config: Data, base: Path, key: Key) -> ImageSet:
    """The images that `[data]` describes; paths are relative to `base`, the config's folder."""
    return load_with_problems(config, base, key)[0]


def load_with_problems(config: Data, base: Path, key: Key) -> tuple[ImageSet, list[Problem]]:
    """The images, and every problem that did not stop the loading."""
    found = read(config, base, key)
    if isinstance(found, ImageSet):
        return _limited_set(found, config, key), []
    problems = list(found.problems)
    resolved = resolve(
        [row.label for row in found.rows],
        [row.name for row in found.rows],
        config,
        found.classes,
    )
    problems += resolved.problems
    stop(problems, config)
    resolved = keep_classes(resolved, config)
    splits, notes = resolve_splits([row.split for row in found.rows])
    problems += notes
    chosen = limit_rows(resolved.labels, _at(splits, resolved.rows), config, key)
    resolved = _take(resolved, chosen)
    rows = [found.rows[i] for i in resolved.rows]
    decoded = develop(rows, found.files, found.decoder, config)
    problems += decoded.problems
    stop(problems, config)
    if len(decoded.kept) == 0:
        raise DataError("not one image could be read", where=str(config.path), hint=_ADVICE)
    kept = _take(resolved, decoded.kept)
    images = _assemble(found, kept, splits, decoded.images, decoded.sizes, config)
    if not config.partial:
        _still_two_classes(images)
    return images, problems


def read(config: Data, base: Path, key: Key) -> Records | ImageSet:
    """What the source finds, before labels are resolved and pixels decoded."""
    source = SOURCES[config.source]
    path = base
    if config.source != "embedded":
        path = locate(config, base)
    found = source(config, path, key)
    if isinstance(found, Records) and not found.rows:
        raise DataError(
            f"there are no images for source {config.source!r}",
            where=str(path),
            hint="`vitrail data check PATH` says what was found.",
        )
    if isinstance(found, ImageSet):
        _check_finished(config)
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


def stop(problems: Sequence[Problem], config: Data) -> None:
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


def keep_classes(resolved: Resolved, config: Data) -> Resolved:
    """Only the rows of the classes in `data.keep`, labels counted anew in that order."""
    if config.keep is None:
        return resolved
    names = resolved.classes[: config.keep] if isinstance(config.keep, int) else config.keep
    unknown = [name for name in names if name not in resolved.classes]
    if unknown:
        raise DataError(
            f"there is no class {unknown[0]!r} to keep",
            where="data.keep",
            hint=nearest(unknown[0], resolved.classes),
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


def _limited_set(images: ImageSet, config: Data, key: Key) -> ImageSet:
    if config.limit is None or config.limit >= len(images):
        return images
    splits = [None] * len(images) if images.splits is None else images.splits.tolist()
    return images.take(limit_rows(images.labels, splits, config, key))


def _at(column: Sequence[str | None], rows: npt.NDArray[np.int64]) -> list[str | None]:
    return [column[i] for i in rows]


def _take(resolved: Resolved, rows: npt.NDArray[np.int64]) -> Resolved:
    findings = resolved.findings
    return replace(
        resolved,
        rows=resolved.rows[rows],
        labels=resolved.labels[rows],
        findings=None if findings is None else tuple(findings[i] for i in rows),
    )


def _assemble(
    found: Records,
    kept: Resolved,
    splits: Sequence[str | None],
    pixels: npt.NDArray[np.uint8],
    sizes: npt.NDArray[np.int32],
    config: Data,
) -> ImageSet:
    rows = [found.rows[i] for i in kept.rows]
    side = pixels.shape[1]
    extra = extras_of(found.columns, kept.rows)
    parts = parts_of(rows, sizes, side, config.resize)
    if parts is not None:
        extra["parts"] = parts
    return ImageSet(
        images=pixels,
        labels=kept.labels,
        classes=kept.classes,
        names=np.array([row.name for row in rows], np.str_),
        sites=text_of("site", [row.site for row in rows]),
        patients=text_of("patient", [row.patient for row in rows]),
        splits=text_of("split", _at(splits, kept.rows)),
        boxes=boxes_of(rows, sizes, side, config.resize),
        sizes=sizes,
        findings=kept.findings,
        extra=extra,
    )


def _still_two_classes(images: ImageSet) -> None:
    held = np.unique(images.labels)
    if len(held) < 2:
        only = images.classes[int(held[0])]
        raise DataError(
            f"after leaving out what cannot be read, only the class {only!r} has images",
            where="data.broken",
        )
