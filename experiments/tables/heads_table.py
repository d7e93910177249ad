"""The price of an explanation: heads on the same frozen features, each tuned the same way.

Every image outside the validation share is tested once, in five folds; personal variants of each
global model stand beside it, and the two ends: each site alone, and all images in one place.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from experiments.tables.heads_results import HeadsResults, Place, digest_cell
from experiments.tables.heads_text import describe_heads
from experiments.tables.personal_variants import (
    CHEAP,
    SEARCH,
    PersonalAnswers,
    choose_personal,
)
from vitrail.config.load import Loaded
from vitrail.data.kept_images import keep_images
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.files import write_json
from vitrail.methods.base.method import make_method
from vitrail.runs.opened_run import Run
from vitrail.runs.prior_shift import answer_by_prior
from vitrail.runs.site_logits import compute_site_logits, read_site_logits
from vitrail.sweep.cells import ensure_run, make_cells
from vitrail.sweep.checkout import require_experiments
from vitrail.sweep.tables import TABLES, OnCell
from vitrail.sweep.tune import FROZEN, TunedRow, make_row_config, read_tune_config, tune_rows

GLOBAL, OWN, PRIOR_ONLY = "global", "own", "prior only"
RESULTS, PERSONAL = "results.jsonl", "personal.json"
FILES = (FROZEN, PERSONAL, RESULTS)
Chosen = dict[str, dict[str, dict[str, Any]]]  # row, variant: the setting, and the search


@TABLES.register("heads")
def build_heads_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Tune every row, freeze, test every fold, and say what came of it."""
    return _build(grid, folder, on_cell, CHEAP)


@TABLES.register("heads-personal")
def build_personal_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The same with every way to a personal model, on rows that are played anew."""
    return _build(grid, folder, on_cell, tuple(SEARCH))


def _build(grid: Loaded, folder: Path, on_cell: OnCell, variants: Sequence[str]) -> str:
    copy_committed(grid, folder)
    tuned = tune_rows(grid, folder, on_cell)
    chosen = _choose_personal(grid, tuned, folder, variants)
    results = HeadsResults.open(folder / RESULTS)
    cells = make_cells(grid)
    with WorkerProcesses() as crew, keep_images():
        for number, cell in enumerate(cells):
            for name, row in tuned.items():
                layers = (read_tune_config(grid).rows[name], row.setting)
                loaded = make_row_config(cell.loaded, *layers)
                path = folder / "tests" / f"{name}_{cell.name}"
                begin = partial(on_cell, number, len(cells), f"{name} {cell.name}")
                adapted = None if takes_own_models(grid) else chosen.get(name, {})
                _test_row(results, loaded, path, name, adapted, begin, crew)
    return describe_heads(results, tuned, chosen, name_partition(grid))


def copy_committed(grid: Loaded, folder: Path) -> None:
    """Begin with the rows that lie in the checkout, where a grid names them."""
    name = grid.sweep.get("results")
    for file in FILES if name else ():
        source = require_experiments() / "results" / str(name) / file
        if source.is_file() and not (folder / file).exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / file)


def name_partition(loaded: Loaded) -> str:
    """How a table calls the way images are dealt out; draws after the first by their seed."""
    partition, seed = loaded.config.partition, loaded.config.run.seed
    kind = f"Dirichlet {partition.alpha:g}" if partition.kind == "dirichlet" else partition.kind
    return kind if seed == 1 else f"{kind}, draw {seed}"


def has_global_model(loaded: Loaded) -> bool:
    """Whether a row's runs end in one model that all sites share: nothing that is trained stays
    home."""
    config = loaded.config
    method = make_method(config, loaded.source)
    if method.pooled:
        return False
    last = method.stages(config.run)[-1].table
    table = method.table if last is None else last
    still = ("backbone",) if config.model.frozen is True else ()
    return "home" not in {answer for row, answer in table.items() if row not in still}


def takes_own_models(grid: Loaded) -> bool:
    """Whether a grid asks for the personal models that runs themselves end in, `personal = "own"`,
    instead of those made of their global one."""
    return bool(grid.sweep.get("personal") == "own")


def has_own_models(run: Run) -> bool:
    """Whether each site of a run ended with a model of its own."""
    return all(SiteFolder(run.path, site).model_file("personal").exists() for site in run.sites)


def _choose_personal(
    grid: Loaded, tuned: Mapping[str, TunedRow], folder: Path, variants: Sequence[str]
) -> Chosen:
    """The settings of the personal variants, chosen on the runs that the rows were tuned by."""
    file = folder / PERSONAL
    chosen: Chosen = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    tune = read_tune_config(grid)
    if takes_own_models(grid):
        return chosen
    for name, row in tuned.items():
        if name in chosen or not has_global_model(make_row_config(grid, tune.rows[name])):
            continue
        trial = folder / "search" / name
        partitions = range(len(row.trials[row.chosen].scores))
        runs = [Run(trial / f"setting-{row.chosen}_partition-{at}") for at in partitions]
        chosen[name] = choose_personal(runs, variants)
        write_json(file, chosen)
    return chosen


def _test_row(
    results: HeadsResults,
    loaded: Loaded,
    path: Path,
    name: str,
    variants: Mapping[str, Mapping[str, Any]] | None,
    begin: Any,
    crew: WorkerProcesses,
) -> None:
    """Play a fold of a row and write what each of its models answered, if that is not there."""
    data = Path(loaded.config.data.path or "").stem
    place: Place = (data, name_partition(loaded), loaded.config.partition.fold)
    digest = digest_cell(loaded)
    if results.find(place, name, digest):
        return
    run = Run(ensure_run(loaded, path, begin, crew))
    answers = read_site_logits(run)
    is_shared = has_global_model(loaded)
    if is_shared:
        results.add_images(place, answers)
        if not results.find(place, PRIOR_ONLY, ""):
            results.add_answers(place, PRIOR_ONLY, OWN, "", answer_by_prior(answers))
        if variants:
            opened = PersonalAnswers(run)
            for variant, found in variants.items():
                personal = opened.answer(variant, found["setting"])
                results.add_answers(place, name, variant, digest, personal)
        if variants is None and has_own_models(run):
            results.add_answers(place, name, OWN, digest, compute_site_logits(run, own=True))
    results.add_images(place, answers)  # of a table without a federated row
    results.add_answers(place, name, GLOBAL if is_shared else OWN, digest, answers)
