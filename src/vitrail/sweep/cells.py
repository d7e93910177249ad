"""A grid of runs: every combination of the lists in `[sweep]`; what is finished is skipped."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from vitrail.config.load import Loaded, flatten, load, parse
from vitrail.config.schema import Config
from vitrail.data.kept_images import keep_images
from vitrail.engine.resolve_config import fingerprint_run
from vitrail.engine.run import OnRound, resume, start
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.errors import ConfigError, RunError, suggest_name
from vitrail.files import make_folder_name

_SHORT = {"methods": "method.name", "alphas": "partition.alpha", "seeds": "run.seed"}


@dataclass(frozen=True)
class Cell:
    """One run of a grid: its folder name and its configuration."""

    name: str
    loaded: Loaded


def make_cells(loaded: Loaded) -> list[Cell]:
    """The runs of a grid, in the order of the lists, the seed varying slowest.

    `[sweep.with.VALUE]` holds overrides for the cells in which some list has that value; `table`
    names what the grid ends in, `compare` how its runs are compared, `results` where rows of it
    lie that were made before, `personal` which personal models a table asks. A method may stand in
    `methods` as a table of its name and options; `with` finds it by its name. `without` lists names
    of cells, up to the seed, that make no sense and are left out.
    """
    sweep = dict(loaded.sweep)
    extra = sweep.pop("with", {})
    for ending in ("table", "compare", "results", "personal"):
        sweep.pop(ending, None)
    without = sweep.pop("without", [])
    axes = dict(_read_axes(sweep, loaded.source))
    if not axes:
        raise ConfigError(
            "there is no list to go through",
            where=f"{loaded.source}: sweep",
            hint="Add seeds = [1, 2, 3].",
        )
    order = sorted(axes, key=lambda key: key == "run.seed", reverse=True)
    base = loaded.config.model_dump(mode="json", exclude_none=True)
    choices = [
        dict(zip(order, values, strict=True))
        for values in itertools.product(*(axes[key] for key in order))
    ]
    cells = []
    for name, chosen in zip(_name_cells(axes, choices), choices, strict=True):
        tree = copy_tree(base)
        if "method.name" in chosen and chosen["method.name"] != base["method"]["name"]:
            tree["method"] = {}
        for key, value in chosen.items():
            put_key(tree, key, copy_tree(value) if isinstance(value, Mapping) else value)
        for value in chosen.values():
            named = value.get("name") if isinstance(value, Mapping) else value
            for key, changed in flatten(extra.get(str(named), {})).items():
                put_key(tree, key, changed)
        config = parse(tree, loaded.base, loaded.source)
        cells.append(Cell(name, config))
    return _check_distinct(_drop_cells(cells, without, loaded.source), loaded.source)


def _drop_cells(grid: list[Cell], without: Any, source: str) -> list[Cell]:
    """The cells but those that are to be left out."""
    if not isinstance(without, list):
        raise ConfigError("must be a list of names of cells", where=f"{source}: sweep.without")
    names = [cell.name.partition("_seed-")[0] for cell in grid]
    for name in without:
        if name not in names:
            raise ConfigError(
                f"there is no cell {name!r}",
                where=f"{source}: sweep.without",
                hint=suggest_name(str(name), names),
            )
    return [cell for cell, name in zip(grid, names) if name not in without]


def _check_distinct(grid: list[Cell], source: str) -> list[Cell]:
    """The cells, if no two of them would share a folder."""
    twice = [name for name, count in Counter(cell.name for cell in grid).items() if count > 1]
    if twice:
        raise ConfigError(
            f"two cells are called {twice[0]!r} and would share a folder",
            where=f"{source}: sweep",
            hint="Leave one of them out.",
        )
    return grid


def run_sweep(
    loaded: Loaded, out: Path, on_cell: Callable[[int, int, str], OnRound | None]
) -> list[Path]:
    """Run the grid. Finished cells are skipped, interrupted ones resumed, changed ones refused."""
    grid = make_cells(loaded)
    with WorkerProcesses() as crew, keep_images():
        for number, cell in enumerate(grid):
            begin = partial(on_cell, number, len(grid), cell.name)
            ensure_run(cell.loaded, out / cell.name, begin, crew)
    return [out / cell.name for cell in grid]


def copy_finished_runs(loaded: Loaded, out: Path, reuse: Sequence[Path]) -> None:
    """Copy finished runs from other grids' folders where their configuration is that of a cell
    which is not there yet, whatever they are called."""
    finished: dict[str, Path] = {}
    for folder in reuse:
        done = sorted(folder.glob("*/server/finished"))
        if not done:
            raise RunError("there is no finished run", where=f"--reuse {folder}")
        runs = [path.parent.parent for path in done]
        finished |= {fingerprint_run(RunFolder(run).open()): run for run in runs}
    for cell in make_cells(loaded) if finished else ():
        known, path = finished.get(fingerprint_run(cell.loaded)), out / cell.name
        if known is not None and not path.exists():
            part = path.with_name(f".{path.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(known, part)
            part.rename(path)


def ensure_run(
    loaded: Loaded,
    path: Path,
    begin: Callable[[], OnRound | None],
    crew: WorkerProcesses | None = None,
) -> Path:
    """A finished run in a folder: one that is there already, one that goes on, or a new one.

    `begin` is asked who listens to the rounds, once there are any to play.
    """
    if not RunFolder(path).config_file.exists():
        start(loaded, path, begin(), crew)
        return path
    if fingerprint_run(RunFolder(path).open()) != fingerprint_run(loaded):
        raise RunError(
            "this cell was run with another configuration",
            where=str(path),
            hint="Use another --out, or delete the folder to run it again.",
        )
    if not (path / "server" / "finished").exists():
        resume(path, on_round=begin(), crew=crew)
    return path


def _read_axes(sweep: Mapping[str, Any], source: str) -> Iterator[tuple[str, list[Any]]]:
    for key, values in flatten(sweep).items():
        if not isinstance(values, list) or not values:
            raise ConfigError(
                "must be a list with at least one value", where=f"{source}: sweep.{key}"
            )
        name = _SHORT.get(key, key)
        if key == "methods" and any(isinstance(value, Mapping) for value in values):
            name = "method"
            values = [v if isinstance(v, Mapping) else {"name": v} for v in values]
        if "." not in name and name not in Config.model_fields:
            raise ConfigError(
                "is not a key of the configuration",
                where=f"{source}: sweep.{key}",
                hint='Use methods, alphas, seeds, a section such as bias, or "section.key".',
            )
        yield name, values


def copy_tree(base: Mapping[str, Any]) -> dict[str, Any]:
    """Tables inside tables, copied; what is no table is shared."""
    return {k: copy_tree(v) if isinstance(v, Mapping) else v for k, v in base.items()}


def put_key(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set `section.key` of a tree of tables, which are made where they are missing."""
    *sections, last = key.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
    tree[last] = value


def _name_cells(axes: Mapping[str, list[Any]], choices: list[dict[str, Any]]) -> Iterator[str]:
    """A name for each cell; where short ones meet, the options that differ are named too."""
    short = [_name_cell(axes, chosen) for chosen in choices]
    for name, chosen in zip(short, choices, strict=True):
        same = [
            flatten(other) for other, theirs in zip(choices, short, strict=True) if theirs == name
        ]
        keys = flatten(chosen)
        differ = [k for k in keys if any(k not in o or o[k] != keys[k] for o in same)]
        yield _name_cell(axes, chosen, tuple(f"{k.rpartition('.')[2]}={keys[k]}" for k in differ))


def _name_cell(
    axes: Mapping[str, list[Any]], chosen: Mapping[str, Any], more: tuple[str, ...] = ()
) -> str:
    """A folder name that says what the cell is: the method first, the seed last."""
    parts = [str(chosen["method.name"])] if "method.name" in chosen else []
    if "method" in chosen:
        parts = ["-".join(str(value) for value in chosen["method"].values())]
    for key in axes:
        if key not in ("method", "method.name", "run.seed"):
            value = chosen[key]
            if key == "release":
                parts.append(name_release(value))
                continue
            if isinstance(value, list | dict):
                value = axes[key].index(value)  # a table has no short name, so its number stands
            parts.append(f"{key.rpartition('.')[2]}={value}")
    parts += more
    if "run.seed" in chosen:
        parts.append(f"seed={chosen['run.seed']}")
    name = "_".join(parts).replace("/", "-").replace(" ", "")
    return name.replace("=", "-") if len(name) < 60 else make_folder_name(name)


def name_release(release: Mapping[str, Any]) -> str:
    """What a release section is called where there is no room for it: `tip@0.5`, `none`,
    `dp-sgd-eps8` where a budget is given."""
    named = []
    for name in release.get("defenses") or ["none"]:
        budget = (release.get(name) or {}).get("epsilon")
        named.append(name if budget is None else f"{name}-eps{budget:g}")
    names = "+".join(named)
    energy = release.get("energy")
    return names if energy is None else f"{names}@{energy:g}"


def load_grid(
    path: Path,
    overrides: tuple[str, ...] = (),
    base: Path | None = None,
    scale: str | None = None,
) -> Loaded:
    """Read a file with a `[sweep]` section, at one of its scales or as it stands; `base` is what
    its paths are relative to instead."""
    loaded = load(path, overrides, scale)
    if base is not None:
        loaded = replace(loaded, base=base.resolve())
    if not loaded.sweep:
        raise ConfigError(
            "there is no [sweep] section", where=str(path), hint="`vitrail run` plays a single run."
        )
    return loaded
