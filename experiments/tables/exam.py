"""An exam for the models of a federation: the test images of all sites, with and without the mark.

MyTH and inDISCO ask it of the model of all images (CM), of each site alone (LM), of the shared
one (GM) and of each site's own one (PM): what do they know, and what is only the mark?
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.config.schema import Bias, Config
from vitrail.data.bias.marks import stamp
from vitrail.data.image_set import ImageSet
from vitrail.engine.federation import assemble
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.files import write_json
from vitrail.methods import METHODS
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import reopen_host
from vitrail.sweep.cells import Cell

_CHUNK = 64
_VERSION = 1
CENTRAL, LOCAL, GLOBAL, PERSONAL = "CM", "LM", "GM", "PM"


@dataclass(frozen=True)
class ModelPredictions:
    """The answers of one model: the predicted class of each image, as it is and with the mark."""

    model: str  # CM, LM, GM or PM
    site: str | None
    plain: list[int]
    drawn: list[int] | None


@dataclass(frozen=True)
class RunPredictions:
    """All answers of one run. `origin` is the biased site and `label` the biased class.

    `carries` says which images show the device, where images were exchanged for such ones and
    nothing can be drawn.
    """

    name: str
    seed: int
    fold: int
    classes: list[str]
    kind: str
    origin: str | None
    label: int | None
    labels: list[int]
    patients: list[str]
    carries: list[bool] | None
    sheets: list[ModelPredictions]


@dataclass(frozen=True)
class TestImages:
    """The pooled test images as the frozen stages leave them, as they are and with the mark."""

    rows: npt.NDArray[np.int64]
    images: ImageSet
    sites: tuple[str, ...]
    plain: Tensor
    drawn: Tensor | None


def find_mark(grid: Sequence[Cell], config: Config) -> Bias | None:
    """The bias of a cell, else the one that the grid injects into the same images."""
    if config.bias:
        return config.bias[0]
    same = (cell.loaded.config for cell in grid if cell.loaded.config.data == config.data)
    return next((other.bias[0] for other in same if other.bias), None)


@torch.inference_mode()
def load_test_images(run: Run, mark: Bias | None) -> TestImages:
    """The test images of all sites of a run as they were before any bias."""
    clean = replace(run.loaded, config=run.loaded.config.model_copy(update={"bias": ()}))
    federation = assemble(clean)
    rows = np.sort(np.concatenate([site.test for site in federation.sites.values()]))
    host = reopen_host(run, federation)
    network, inputs = host.model.network.eval(), host.inputs
    plain = inputs.plain(rows)
    if inputs.features is None:
        plain = network.prefix(plain)
    drawn = None
    if mark is not None and mark.kind != "replace":
        key = derive_server_key(run.config.run.seed).at("exam")
        marked = stamp(np.array(federation.images.images[rows]), mark, key, rows)[0]
        parts = [marked[at : at + _CHUNK] for at in range(0, len(rows), _CHUNK)]
        drawn = torch.cat([network.prefix(inputs.normalize(part)) for part in parts])
    return TestImages(rows, federation.images, tuple(federation.sites), plain, drawn)


@torch.inference_mode()
def predict_classes(model: DeployedModel, z: Tensor) -> list[int]:
    """The predicted class for each of some images that went through the frozen stages."""
    classes: list[int] = []
    for part in torch.split(z, _CHUNK):
        classes += model.network.rest(part)["logits"].argmax(1).tolist()
    return classes


def predict_all_models(run: Run, images: TestImages) -> list[ModelPredictions]:
    """The answers of every model that a run holds."""

    def predict(name: str, site: str | None, model: DeployedModel) -> ModelPredictions:
        drawn = None if images.drawn is None else predict_classes(model, images.drawn)
        return ModelPredictions(name, site, predict_classes(model, images.plain), drawn)

    return [predict(name, site, model) for name, site, model in iterate_models(run)]


def iterate_models(run: Run) -> Iterator[tuple[str, str | None, DeployedModel]]:
    """The models of a run: its name in the papers, whose it is, the model."""
    if METHODS[run.config.method.name].pooled:
        yield CENTRAL, None, run.model(run.sites[0])  # pushed and tuned at the very end
        return
    if not run.keeps_home:
        yield GLOBAL, None, run.model()
    for site in run.sites:
        if run.keeps_home:
            yield PERSONAL, site, run.model(site)
        if SiteFolder(run.path, site).model_file("local").exists():
            yield LOCAL, site, run.model(site, "local")


def collect_predictions(grid: Sequence[Cell], folder: Path) -> list[RunPredictions]:
    """The exam of every run of a grid, those that sat it before from their files.

    Cells that differ in the method alone follow each other and share their questions.
    """
    predictions, last, questions = [], None, None
    for cell in grid:
        file = folder / cell.name / "figures" / "exam.json"
        if not file.exists():
            run = Run(folder / cell.name)
            config, mark = cell.loaded.config, find_mark(grid, cell.loaded.config)
            images = (config.data, config.partition, config.model, config.run.seed, mark)
            if questions is None or images != last:
                last, questions = images, load_test_images(run, mark)
            write_json(
                file, {**asdict(_predict_run(run, cell, mark, questions)), "version": _VERSION}
            )
        predictions.append(_read(json.loads(file.read_text(encoding="utf-8"))))
    return predictions


def _predict_run(run: Run, cell: Cell, mark: Bias | None, questions: TestImages) -> RunPredictions:
    config, images, rows = cell.loaded.config, questions.images, questions.rows
    patients = images.names if images.patients is None else images.patients
    carries = None
    if mark is not None and mark.kind == "replace" and images.findings is not None:
        carries = [mark.device in images.findings[row] for row in rows]
    origin = _resolve_name(config.bias[0].sites[0], questions.sites) if config.bias else None
    label = None if mark is None else _resolve_name(mark.classes[0], images.classes)
    return RunPredictions(
        name=cell.name,
        seed=config.run.seed,
        fold=config.partition.fold,
        classes=list(images.classes),
        kind=config.bias[0].kind if config.bias else "none",
        origin=origin,
        label=None if label is None else images.classes.index(label),
        labels=images.labels[rows].tolist(),
        patients=[str(patients[row]) for row in rows],
        carries=carries,
        sheets=predict_all_models(run, questions),
    )


def _resolve_name(which: str | int, names: Sequence[str]) -> str:
    return which if isinstance(which, str) else names[which]


def _read(raw: dict[str, Any]) -> RunPredictions:
    del raw["version"]
    return RunPredictions(
        **{**raw, "sheets": [ModelPredictions(**answers) for answers in raw["sheets"]]}
    )
