"""Rules against hostile sites: accuracy and attack success of every rule under every attack."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.tables.poisoned_run import PoisonedRun
from experiments.tables.poisoning_text import format_poisoning
from vitrail.config.hostile_section import Hostile
from vitrail.config.load import Loaded
from vitrail.config.schema import Config
from vitrail.data.kept_images import keep_images
from vitrail.engine.alarms import ALARM_FILE, find_alarmed, find_peaks, read_alarms
from vitrail.engine.federation import Federation, load_federation
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.files import write_json
from vitrail.poisoning import POISONINGS
from vitrail.poisoning.poison_images import list_hostile_sites, put_trigger, resolve_name
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import Cell, ensure_run, make_cells
from vitrail.sweep.tables import TABLES, OnCell

RESULT = "poisoning.json"
_TRUSTED = 10  # images of each class that the server trusts, as in the paper of FLTrust
Rows = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]


def predict(model: DeployedModel, pixels: Pixels, seen: dict[bytes, Tensor]) -> Rows:
    """The classes of some images; `seen` remembers what frozen stages make of them."""
    network, name = model.network, hashlib.blake2b(pixels.tobytes()).digest()
    with torch.inference_mode():
        if name not in seen:
            x = torch.from_numpy(np.array(pixels)).permute(0, 3, 1, 2).float() / 255
            parts = torch.split((x - model.shift) / model.scale, 64)
            seen[name] = torch.cat([network.prefix(part) for part in parts])
        guessed: Rows = network.rest(seen[name])["logits"].argmax(1).numpy()
    return guessed


def measure_run(
    cell: Cell,
    path: Path,
    federation: Federation,
    seen: dict[bytes, Tensor],
    quiet: Hostile | None = None,
) -> PoisonedRun:
    """The figures of a finished run, from the file beside it if they are there.

    `quiet` is the attack whose success is measured where nobody attacks: how often the model errs
    that way by itself.
    """
    file = path / RESULT
    if file.exists():
        stored = json.loads(file.read_text())
        return PoisonedRun(**{**stored, "hostile": tuple(stored["hostile"])})
    config = cell.loaded.config
    model, rows = Run(path).model(), federation.server_test
    labels = federation.images.labels[rows]
    guessed = predict(model, federation.images.images[rows], seen)
    section = config.hostile[0] if config.hostile else None
    names = () if section is None else list_hostile_sites(section, tuple(federation.sites))
    aim = section or quiet
    lines = read_alarms(path / "server" / ALARM_FILE)
    result = PoisonedRun(
        method=config.method.name,
        rule=_name_rule(config),
        attack="none" if section is None else _name_attack(section),
        hostile=names,
        partition=f"{config.partition.kind} {config.partition.alpha:g}",
        seed=config.run.seed,
        accuracy=float((guessed == labels).mean()),
        success=None if aim is None else _measure_success(model, aim, federation, guessed, seen),
        alarmed=find_alarmed(lines),
        peaks=find_peaks(lines),
    )
    write_json(file, asdict(result))
    return result


def _name_rule(config: Config) -> str:
    """What adds updates up: the rule, and the consensus of subspaces where it is not the exact
    one."""
    consensus = config.method.options.get("consensus", "exact")
    return (
        config.aggregate.rule if consensus == "exact" else f"{config.aggregate.rule}, {consensus}"
    )


def _name_attack(section: Hostile) -> str:
    """The attack, and its trigger where that is not the usual patch."""
    marks = POISONINGS[section.attack].marks
    return (
        f"{section.attack} ({section.trigger})"
        if marks and section.trigger != "patch"
        else section.attack
    )


def _measure_success(
    model: DeployedModel,
    section: Hostile,
    federation: Federation,
    guessed: Rows,
    seen: dict[bytes, Tensor],
) -> float | None:
    """How often the attack gets what it wants on test images of no site: images with the trigger,
    or those of the source, called the target."""
    classes, rows = federation.images.classes, federation.server_test
    labels = federation.images.labels[rows]
    target = resolve_name(section.target, classes, "class", "hostile.target")
    if POISONINGS[section.attack].marks:
        others = rows[labels != target]
        marked = put_trigger(federation.images.images[others], section, derive_server_key(0))
        return float((predict(model, marked, seen) == target).mean())
    if section.source is None:
        return None
    source = resolve_name(section.source, classes, "class", "hostile.source")
    return float((guessed[labels == source] == target).mean())


def set_trusted_apart(source: Path, folder: Path) -> tuple[Path, Path]:
    """Two files of a `.npz` file of images: a few of each class for the server, which no site has
    and nobody is tested on, and the rest."""
    trusted, rest = folder / "trusted.npz", folder / "rest.npz"
    if not rest.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with np.load(source, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        labels = arrays["y_train"].reshape(-1)
        order = derive_server_key(0).at("trusted").numpy().permutation(len(labels))
        of_class = [order[labels[order] == label][:_TRUSTED] for label in np.unique(labels)]
        chosen = np.sort(np.concatenate(of_class))
        classes = {"classes": arrays["classes"]} if "classes" in arrays else {}
        x, y = arrays["x_train"], arrays["y_train"]
        np.savez(trusted, x=x[chosen], y=y[chosen], **classes)
        others = np.setdiff1d(np.arange(len(labels)), chosen)
        np.savez(rest, **{**arrays, "x_train": x[others], "y_train": y[others]})
    return trusted, rest


def make_cells_apart(grid: Loaded, folder: Path) -> list[Cell]:
    """The cells of a grid; where it has public images, those are set apart from its own."""
    public = grid.config.data.public
    if public is None or grid.config.data.path is None:
        return make_cells(grid)
    trusted, rest = set_trusted_apart(grid.base / grid.config.data.path, folder.resolve())
    public = public.model_copy(update={"path": str(trusted)})
    data = grid.config.data.model_copy(update={"path": str(rest), "public": public})
    return make_cells(replace(grid, config=grid.config.model_copy(update={"data": data})))


@TABLES.register("poisoning")
def build_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """Play what is missing; a table of accuracy and success by rule and attack."""
    cells, results = make_cells_apart(grid, folder), []
    seen: dict[bytes, Tensor] = {}
    sections = [section for cell in cells for section in cell.loaded.config.hostile]
    quiet = next((section for section in sections if section.source is not None), None)
    with WorkerProcesses() as crew, keep_images():
        for number, cell in enumerate(cells):
            path = folder / cell.name

            def begin(number: int = number, name: str = cell.name) -> object:
                return on_cell(number, len(cells), name)

            ensure_run(cell.loaded, path, begin, crew)  # type: ignore[arg-type]
            results.append(measure_run(cell, path, load_federation(cell.loaded), seen, quiet))
    write_json(folder / "poisoning.json", [asdict(result) for result in results])
    return format_poisoning(results)
