"""What remedies do for the biased class: train, audit, obey, and look at unbiased test images."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from vitrail.audit.gather import audit_run
from vitrail.audit.obey import REMEDIES, obey
from vitrail.config import Loaded
from vitrail.engine.deployed import Deployed
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.engine.run import OnRound
from vitrail.engine.sweep import Cell, cells, played
from vitrail.errors import ConfigError
from vitrail.files import write_json
from vitrail.report.tables import TABLES, OnCell, markdown

BEFORE, CLEAN = "biased, no remedy", "never biased"
_JOIN = " and "
TRIED = (*REMEDIES, f"mask{_JOIN}penalize")  # the last trains other prototypes to step in
Tell = Callable[[str], OnRound | None]


@dataclass(frozen=True)
class Outcome:
    """One run: recall of the biased class and the mean over the others, on unbiased images."""

    remedy: str
    seed: int
    biased: float
    others: float


def outcomes(cell: Cell, folder: Path, tell: Tell) -> list[Outcome]:
    """A federation as it is, after each remedy that its audit allows, and without the bias.

    What is finished is not played again; the audit's JSON is kept beside the runs.
    """
    base = folder / cell.name
    seed = cell.loaded.config.run.seed
    before = Run(played(cell.loaded, base / "before", partial(tell, f"{cell.name}: before")))
    label = _label(cell.loaded, before.classes)
    marked = _marked(cell.loaded, before.sites)

    def measured(remedy: str, run: Run, models: Sequence[Deployed]) -> Outcome:
        return Outcome(remedy, seed, *_recall(run, models, label, marked))

    found = [measured(BEFORE, before, [before.model()])]
    audit = base / "audit.json"
    if not audit.exists():
        write_json(audit, audit_run(before).to_json())
    for remedy in TRIED:
        try:
            loaded = obey(cell.loaded, audit, remedy.split(_JOIN))
        except ConfigError:
            continue  # the audit found nothing, or named no prototype: nothing to obey
        begin = partial(tell, f"{cell.name}: {remedy}")
        after = Run(played(_shared_only(loaded), base / remedy.replace(" ", "-"), begin))
        found.append(measured(remedy, after, _models(after, loaded, remedy)))
    clean = replace(cell.loaded, config=cell.loaded.config.model_copy(update={"bias": ()}))
    begin = partial(tell, f"{cell.name}: without the bias")
    ideal = Run(played(_shared_only(clean), base / "clean", begin))
    found.append(measured(CLEAN, ideal, [ideal.model()]))
    write_json(base / "outcomes.json", [vars(one) for one in found])
    return found


def _shared_only(loaded: Loaded) -> Loaded:
    """Without local references: nobody audits these runs."""
    run = loaded.config.run.model_copy(update={"local_reference": False})
    return replace(loaded, config=loaded.config.model_copy(update={"run": run}))


def _marked(loaded: Loaded, sites: Sequence[str]) -> frozenset[str]:
    """The sites with marked images."""
    named = (site for bias in loaded.config.bias for site in bias.sites)
    return frozenset(site if isinstance(site, str) else sites[site] for site in named)


def _label(loaded: Loaded, classes: Sequence[str]) -> int:
    """The class that was marked."""
    wanted = loaded.config.bias[0].classes[0]
    return classes.index(wanted) if isinstance(wanted, str) else wanted


def _models(run: Run, loaded: Loaded, remedy: str) -> list[Deployed]:
    """The global model; what is mixed at home is the unsuspected sites' own."""
    if remedy != "mix":
        return [run.model()]
    staying = [site for site in run.sites if site not in loaded.config.debias.suspected]
    return [run.model(site, "personal") for site in staying]


@torch.inference_mode()
def _recall(
    run: Run, models: Sequence[Deployed], label: int, marked: frozenset[str]
) -> tuple[float, float]:
    """Of the class, and the mean over the others, on test images without any mark: the server's,
    else those of the other sites."""
    federation = images_of(run)
    rows = federation.server_test
    if not len(rows):
        own = [part.test for site, part in federation.sites.items() if site not in marked]
        rows = np.concatenate(own)
    images = torch.from_numpy(np.array(federation.images.images[rows])).permute(0, 3, 1, 2)
    labels = federation.images.labels[rows]
    each = []
    for model in models:
        said = torch.cat([model(part).argmax(1) for part in torch.split(images, 64)]).numpy()
        each.append(recalls(said, labels, len(run.classes)))
    mean = np.nanmean(each, axis=0)
    return float(mean[label]), float(np.nanmean(np.delete(mean, label)))


def recalls(
    said: npt.NDArray[np.int64], labels: npt.NDArray[np.int64], classes: int
) -> npt.NDArray[np.float64]:
    """The share of each class's images that were recognized; NaN without any."""
    right = np.bincount(labels[said == labels], minlength=classes).astype(np.float64)
    count = np.bincount(labels, minlength=classes)
    found = np.full(classes, np.nan)
    np.divide(right, count, out=found, where=count > 0)
    return found


def debias_text(found: Sequence[Outcome]) -> str:
    """Mean and SD over seeds, and the change against no remedy seed by seed."""
    before = {one.seed: one.biased for one in found if one.remedy == BEFORE}
    rows = []
    for name in (BEFORE, *TRIED, CLEAN):
        mine = [one for one in found if one.remedy == name]
        if not mine:
            rows.append([name, "-", "-", "-", "0"])
            continue
        change = [one.biased - before[one.seed] for one in mine]
        rows.append(
            [
                name,
                _spread([one.biased for one in mine]),
                "" if name == BEFORE else _spread(change, "+"),
                _spread([one.others for one in mine]),
                str(len(mine)),
            ]
        )
    return markdown(["", "biased class", "change", "other classes", "seeds"], rows)


def _spread(values: Sequence[float], sign: str = "") -> str:
    spread = np.std(values, ddof=1) if len(values) > 1 else float("nan")
    return f"{np.mean(values):{sign}.3f} ± {spread:.3f}"


@TABLES.register("debias")
def debias_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Federations before and after each remedy that their own audit allows."""
    found: list[Outcome] = []
    whole = cells(grid)
    for number, cell in enumerate(whole):
        known = stored(folder, cell)
        tell = partial(on_cell, number, len(whole))
        found += outcomes(cell, folder, tell) if known is None else known
    return debias_text(found)


def stored(folder: Path, cell: Cell) -> list[Outcome] | None:
    """What was measured before, if all of it was."""
    file = folder / cell.name / "outcomes.json"
    if not file.exists():
        return None
    return [Outcome(**one) for one in json.loads(file.read_text(encoding="utf-8"))]
