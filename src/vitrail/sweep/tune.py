"""The same small search for every row of a table, on images that are never tested.

`[tune]` of a grid: so many random settings of each row on the first partition, the best of them on
the others, and the one with the best mean is frozen, before anything is tested.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from vitrail.config.load import Loaded, flatten, parse, to_config_error
from vitrail.config.section import Count, Section
from vitrail.data.kept_images import keep_images
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.errors import ConfigError, RunError
from vitrail.files import write_json
from vitrail.rng import Key, derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.site_logits import read_site_logits
from vitrail.sweep.cells import copy_tree, ensure_run, put_key
from vitrail.sweep.tables import OnCell

Setting = dict[str, Any]
FROZEN = "tuned.json"
_DIGITS = 3  # of a drawn number: what is printed is what was run


class Range(Section):
    """Numbers between two ends, drawn evenly, or evenly by their logarithm."""

    low: float
    high: float
    log: bool = True


class TuneConfig(Section):
    """`[tune]`: the rows of a table, what is searched for each, and on which partitions."""

    settings: Count = 8
    """Random settings of each row, on the first partition."""
    more: dict[str, Count] = {}
    """By row: another number of settings, for a row that is to have more looks than others."""
    finalists: Count = 2
    """The best of them go on to the other partitions."""
    partitions: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)] = ({},)
    """What differs between partitions: a seed, or other images."""
    rows: dict[str, dict[str, Any]]
    """What each row sets: its method, the rounds, ..."""
    search: dict[str, dict[str, Range | list[Any]]] = {}
    """By row: keys with a list to choose from, or { low, high } to draw from."""


@dataclass(frozen=True)
class Trial:
    """One setting of one row: its accuracy on validation images, partition by partition."""

    setting: Setting
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the partitions it was tried on."""
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True)
class TunedRow:
    """A row with the setting that was chosen, and every setting that was tried."""

    name: str
    chosen: int
    trials: tuple[Trial, ...]

    @property
    def setting(self) -> Setting:
        """What is frozen."""
        return self.trials[self.chosen].setting


def read_tune_config(loaded: Loaded) -> TuneConfig:
    """The `[tune]` section of a grid, or an error that says what it lacks."""
    if not loaded.tune:
        raise ConfigError(
            "there is no [tune] section", where=loaded.source, hint="See docs/how-to/run-a-grid.md."
        )
    try:
        tune = TuneConfig.model_validate(dict(loaded.tune))
    except ValidationError as err:
        raise to_config_error(err, loaded.source, TuneConfig, "tune") from None
    unknown = {*tune.search, *tune.more} - set(tune.rows)
    if unknown:
        raise ConfigError(
            f"there is no row {min(unknown)!r} to search for", where=f"{loaded.source}: tune"
        )
    return tune


def draw_settings(
    search: Mapping[str, Range | Sequence[Any]], count: int, key: Key
) -> list[Setting]:
    """So many settings, each key drawn on its own; without a search one, the empty one."""
    if not search:
        return [{}]
    draw, settings = key.numpy(), []
    for _ in range(count):
        setting: Setting = {}
        for name, choice in search.items():
            if not isinstance(choice, Range):
                setting[name] = choice[int(draw.integers(len(choice)))]
                continue
            low, high = (math.log(v) if choice.log else v for v in (choice.low, choice.high))
            value = float(draw.uniform(low, high))
            setting[name] = float(f"{math.exp(value) if choice.log else value:.{_DIGITS}g}")
        settings.append(setting)
    return settings


def make_row_config(loaded: Loaded, *layers: Mapping[str, Any]) -> Loaded:
    """A grid's configuration with some layers over it: a row, a setting, a partition. A layer that
    names a method begins its options anew."""
    tree = copy_tree(loaded.config.model_dump(mode="json", exclude_none=True))
    for layer in layers:
        flat = flatten(layer)
        if "method.name" in flat:
            tree["method"] = {}
        for key, value in flat.items():
            put_key(tree, key, value)
    return parse(tree, loaded.base, loaded.source)


def tune_rows(loaded: Loaded, folder: Path, on_cell: OnCell) -> dict[str, TunedRow]:
    """Search for every row what is not there yet; the frozen settings are in `tuned.json`.

    Trials are runs of their own under `search/`, so that a search that was stopped goes on. A
    frozen file of another search is refused.
    """
    tune = read_tune_config(loaded)
    frozen = _read_frozen(folder / FROZEN)
    with WorkerProcesses() as crew, keep_images():
        for name in tune.rows:
            digest = _digest_search(loaded, tune, name)
            if name in frozen and frozen[name]["digest"] != digest:
                raise RunError(
                    f"row {name!r} was tuned by another search",
                    where=str(folder / FROZEN),
                    hint="Use another --out; what was frozen before a test stays frozen.",
                )
            if name not in frozen:
                row = _tune_row(loaded, tune, name, folder / "search" / name, on_cell, crew)
                frozen[name] = {"digest": digest, **asdict(row)}
                write_json(folder / FROZEN, frozen)
    return {name: _to_row(frozen[name]) for name in tune.rows}


def _tune_row(
    loaded: Loaded,
    tune: TuneConfig,
    name: str,
    folder: Path,
    on_cell: OnCell,
    crew: WorkerProcesses,
) -> TunedRow:
    """All settings on the first partition, the best on the others; ties go to the earlier one."""
    key = derive_server_key(0).at("tune", name)
    count = tune.more.get(name, tune.settings)
    settings = draw_settings(tune.search.get(name, {}), count, key)

    def try_setting(number: int, partition: int) -> float:
        cell = make_row_config(
            loaded,
            tune.rows[name],
            settings[number],
            tune.partitions[partition],
            {"partition.validate_only": True},
        )
        path = folder / f"setting-{number}_partition-{partition}"
        begin = partial(on_cell, number, len(settings), f"{name}: {settings[number]}")
        return score_validation(Run(ensure_run(cell, path, begin, crew)))

    trials = [Trial(setting, (try_setting(i, 0),)) for i, setting in enumerate(settings)]
    ranked = sorted(range(len(trials)), key=lambda i: -trials[i].scores[0])
    best = ranked[: tune.finalists]
    for number in best if len(trials) > 1 else ():
        others = tuple(try_setting(number, at) for at in range(1, len(tune.partitions)))
        trials[number] = replace(trials[number], scores=trials[number].scores + others)
    chosen = max(best, key=lambda i: (trials[i].mean, -i))
    return TunedRow(name, chosen, tuple(trials))


def score_validation(run: Run) -> float:
    """The accuracy on all sites' validation images: of the global model, or of each site's own
    where there is no other."""
    answers = read_site_logits(run)
    return float((answers.logits.argmax(1) == answers.labels).mean())


def format_search(rows: Mapping[str, TunedRow]) -> str:
    """Every setting that was tried, with its accuracy on validation images, as Markdown."""
    lines = ["| row | setting | validation accuracy | |", "|---|---|---|---|"]
    for name, row in rows.items():
        for number, trial in enumerate(row.trials):
            setting = ", ".join(f"{key} = {value}" for key, value in trial.setting.items())
            scores = ", ".join(f"{score:.3f}" for score in trial.scores)
            mark = "**chosen**" if number == row.chosen else ""
            lines.append(f"| {name} | {setting or 'as it is'} | {scores} | {mark} |")
    return "\n".join(lines)


def _digest_search(loaded: Loaded, tune: TuneConfig, name: str) -> str:
    """Of all that decides what a row's search does; a key that came later has its default."""
    config = loaded.config.model_dump(mode="json", exclude_defaults=True)
    search = tune.model_dump(mode="json", include={"settings", "finalists", "partitions"})
    search["settings"] = tune.more.get(name, tune.settings)
    here = [tune.rows[name], tune.model_dump(mode="json")["search"].get(name, {})]
    text = json.dumps([config, search, here], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _read_frozen(file: Path) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return rows


def _to_row(raw: Mapping[str, Any]) -> TunedRow:
    trials = tuple(Trial(t["setting"], tuple(t["scores"])) for t in raw["trials"])
    return TunedRow(raw["name"], raw["chosen"], trials)
