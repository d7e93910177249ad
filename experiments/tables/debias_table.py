"""What remedies do for the biased class: train, audit, obey, and look at unbiased test images."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from experiments.tables.markdown import to_markdown
from vitrail.audit.audit_run import audit_run
from vitrail.audit.remedy_plan import REMEDIES, apply_remedies
from vitrail.config import Loaded
from vitrail.engine.run import OnRound
from vitrail.errors import ConfigError
from vitrail.files import write_json
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation
from vitrail.sweep.cells import Cell, ensure_run, make_cells
from vitrail.sweep.tables import TABLES, OnCell

BEFORE, CLEAN = "biased, no remedy", "never biased"
_JOIN = " and "
TRIED_REMEDIES = (*REMEDIES, f"mask{_JOIN}penalize")  # the last trains other prototypes to step in
Tell = Callable[[str], OnRound | None]


@dataclass(frozen=True)
class RemedyOutcome:
    """One run: recall of the biased class and the mean over the others, on unbiased images."""

    remedy: str
    seed: int
    biased: float
    others: float


def measure_remedies(cell: Cell, folder: Path, tell: Tell) -> list[RemedyOutcome]:
    """A federation as it is, after each remedy that its audit allows, and without the bias.

    What is finished is not played again; the audit's JSON is kept beside the runs.
    """
    base = folder / cell.name
    seed = cell.loaded.config.run.seed
    before = Run(ensure_run(cell.loaded, base / "before", partial(tell, f"{cell.name}: before")))
    label = _find_marked_class(cell.loaded, before.classes)
    marked = _find_marked_sites(cell.loaded, before.sites)

    def measure(remedy: str, run: Run, models: Sequence[DeployedModel]) -> RemedyOutcome:
        return RemedyOutcome(remedy, seed, *_compute_recall(run, models, label, marked))

    outcomes = [measure(BEFORE, before, [before.model()])]
    audit = base / "audit.json"
    if not audit.exists():
        write_json(audit, _free_plans(audit_run(before).to_json()))
    for remedy in TRIED_REMEDIES:
        try:
            loaded = apply_remedies(cell.loaded, audit, remedy.split(_JOIN))
        except ConfigError:
            continue  # the audit found nothing, or named no prototype: nothing to obey
        begin = partial(tell, f"{cell.name}: {remedy}")
        after = Run(
            ensure_run(_drop_local_references(loaded), base / remedy.replace(" ", "-"), begin)
        )
        outcomes.append(measure(remedy, after, _load_models(after, loaded, remedy)))
    clean = replace(cell.loaded, config=cell.loaded.config.model_copy(update={"bias": ()}))
    begin = partial(tell, f"{cell.name}: without the bias")
    ideal = Run(ensure_run(_drop_local_references(clean), base / "clean", begin))
    outcomes.append(measure(CLEAN, ideal, [ideal.model()]))
    write_json(base / "outcomes.json", [vars(outcome) for outcome in outcomes])
    return outcomes


def _free_plans(stored: dict[str, Any]) -> dict[str, Any]:
    """An audit whose readings rule no remedy out: the table is about what each one does."""
    for site in stored["sites"]:
        for entry in site["classes"]:
            entry.pop("plan", None)
    return stored


def _drop_local_references(loaded: Loaded) -> Loaded:
    """Without local references: nobody audits these runs."""
    run = loaded.config.run.model_copy(update={"local_reference": False})
    return replace(loaded, config=loaded.config.model_copy(update={"run": run}))


def _find_marked_sites(loaded: Loaded, sites: Sequence[str]) -> frozenset[str]:
    """The sites with marked images."""
    named = (site for bias in loaded.config.bias for site in bias.sites)
    return frozenset(site if isinstance(site, str) else sites[site] for site in named)


def _find_marked_class(loaded: Loaded, classes: Sequence[str]) -> int:
    """The class that was marked."""
    wanted = loaded.config.bias[0].classes[0]
    return classes.index(wanted) if isinstance(wanted, str) else wanted


def _load_models(run: Run, loaded: Loaded, remedy: str) -> list[DeployedModel]:
    """The global model; what is mixed at home is the unsuspected sites' own."""
    if remedy != "mix":
        return [run.model()]
    staying = [site for site in run.sites if site not in loaded.config.debias.suspected]
    return [run.model(site, "personal") for site in staying]


@torch.inference_mode()
def _compute_recall(
    run: Run, models: Sequence[DeployedModel], label: int, marked: frozenset[str]
) -> tuple[float, float]:
    """Of the class, and the mean over the others, on test images without any mark: the server's,
    else those of the other sites."""
    federation = load_run_federation(run)
    rows = federation.server_test
    if not len(rows):
        unmarked = [part.test for site, part in federation.sites.items() if site not in marked]
        rows = np.concatenate(unmarked)
    images = torch.from_numpy(np.array(federation.images.images[rows])).permute(0, 3, 1, 2)
    labels = federation.images.labels[rows]
    recalls = []
    for model in models:
        predicted = torch.cat([model(part).argmax(1) for part in torch.split(images, 64)]).numpy()
        recalls.append(compute_recalls(predicted, labels, len(run.classes)))
    mean = np.nanmean(recalls, axis=0)
    return float(mean[label]), float(np.nanmean(np.delete(mean, label)))


def compute_recalls(
    predicted: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], classes: int
) -> npt.NDArray[np.float64]:
    """The share of each class's images that were recognized; NaN without any."""
    right = np.bincount(labels[predicted == labels], minlength=classes).astype(np.float64)
    count = np.bincount(labels, minlength=classes)
    recalls = np.full(classes, np.nan)
    np.divide(right, count, out=recalls, where=count > 0)
    return recalls


def format_outcomes(outcomes: Sequence[RemedyOutcome]) -> str:
    """Mean and SD over seeds, and the change against no remedy seed by seed."""
    before = {outcome.seed: outcome.biased for outcome in outcomes if outcome.remedy == BEFORE}
    rows = []
    for name in (BEFORE, *TRIED_REMEDIES, CLEAN):
        of_remedy = [outcome for outcome in outcomes if outcome.remedy == name]
        if not of_remedy:
            rows.append([name, "-", "-", "-", "0"])
            continue
        change = [outcome.biased - before[outcome.seed] for outcome in of_remedy]
        rows.append(
            [
                name,
                _format_mean_sd([outcome.biased for outcome in of_remedy]),
                "" if name == BEFORE else _format_mean_sd(change, "+"),
                _format_mean_sd([outcome.others for outcome in of_remedy]),
                str(len(of_remedy)),
            ]
        )
    return to_markdown(["", "biased class", "change", "other classes", "seeds"], rows)


def _format_mean_sd(values: Sequence[float], sign: str = "") -> str:
    spread = np.std(values, ddof=1) if len(values) > 1 else float("nan")
    return f"{np.mean(values):{sign}.3f} ± {spread:.3f}"


@TABLES.register("debias")
def make_debias_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Federations before and after each remedy that their own audit allows."""
    outcomes: dict[str, list[RemedyOutcome]] = {}
    cells = make_cells(grid)
    for number, cell in enumerate(cells):
        known = read_outcomes(folder, cell)
        tell = partial(on_cell, number, len(cells))
        kind = cell.loaded.config.bias[0].kind
        outcomes.setdefault(kind, [])
        outcomes[kind] += measure_remedies(cell, folder, tell) if known is None else known
    return "\n\n".join(f"{kind}:\n\n{format_outcomes(part)}" for kind, part in outcomes.items())


def read_outcomes(folder: Path, cell: Cell) -> list[RemedyOutcome] | None:
    """What was measured before, if all of it was."""
    file = folder / cell.name / "outcomes.json"
    if not file.exists():
        return None
    return [RemedyOutcome(**raw) for raw in json.loads(file.read_text(encoding="utf-8"))]
