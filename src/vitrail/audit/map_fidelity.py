"""How much a defense changed the explanations: two runs asked about the same images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from vitrail.engine.federation import Federation
from vitrail.errors import RunError
from vitrail.explain.attribution import attribute
from vitrail.explain.faithfulness import deletion_curve, rank_regions
from vitrail.explain.map_similarity import average_metrics, compare_maps
from vitrail.geometry.angles import principal_angles
from vitrail.models.parts import list_tensors
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation

CELLS = 8


@dataclass(frozen=True)
class ModelExplanations:
    """What one model makes of the images: Grad-CAM of the true class, and how it is judged."""

    maps: Tensor  # [N, H, W]
    predicted: npt.NDArray[np.int64]
    deletion: tuple[float, ...]  # the area under each image's curve


@dataclass(frozen=True)
class Fidelity:
    """One run beside the baseline: means over the images whose two maps both say something."""

    run: str
    defenses: tuple[str, ...]
    energy: float | None
    images: int
    failures: int  # a map of the baseline or of this run is constant
    accuracy: float
    agreement: float  # the share of images with the baseline's prediction
    figures: dict[str, float | None]
    deletion: float  # mean area of this run's curves minus the baseline's
    prototype_drift: float | None  # mean |p' - p| / |p|
    subspace_angle: float | None  # mean over classes of the largest angle, in degrees
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FidelityReport:
    """A baseline, the runs beside it, and the first images with their maps for the page."""

    baseline: str
    images: int
    accuracy: float
    failures: int
    runs: tuple[Fidelity, ...]
    classes: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    pixels: npt.NDArray[np.uint8]  # [shown, H, W, C]
    views: tuple[ModelExplanations, ...] = field(repr=False)  # of the baseline, then of each run

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON values."""
        return {
            "baseline": self.baseline,
            "images": self.images,
            "accuracy": self.accuracy,
            "failures": self.failures,
            "runs": [asdict(run) for run in self.runs],
        }


def measure_fidelity(
    baseline: Run, others: Sequence[Run], images: int = 200, site: str | None = None
) -> FidelityReport:
    """Compare the explanations of some runs with the baseline's, on the same test images.

    The images are the server's test images, or the sites' where there are none (with `site`, that
    site's own, and its own models).
    """
    for other in others:
        _check_alike(baseline, other)
    models = [run.model(site) for run in (baseline, *others)]
    federation = load_run_federation(baseline)
    rows = _draw_rows(federation, images, site)
    pixels = np.array(federation.images.images[rows])
    labels = federation.images.labels[rows]
    views = [compute_explanations(model, pixels, labels) for model in models]
    fidelities = tuple(
        _compare_with_baseline(
            run, model, view, models[0], views[0], labels, _list_notes(baseline, run)
        )
        for run, model, view in zip(others, models[1:], views[1:], strict=True)
    )
    return FidelityReport(
        baseline.path.name,
        len(rows),
        _compute_share(views[0].predicted == labels),
        sum(compare_maps(m, m) is None for m in views[0].maps),
        fidelities,
        baseline.classes,
        labels,
        pixels,
        tuple(views),
    )


def compute_explanations(
    model: DeployedModel,
    pixels: npt.NDArray[np.uint8],
    labels: npt.NDArray[np.int64],
    curves: bool = True,
) -> ModelExplanations:
    """Grad-CAM of the true class on images [N, H, W, C], predictions and deletion curves."""
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32) / 255
    x = (x - model.shift) / model.scale
    targets = torch.from_numpy(labels)
    maps = attribute("grad-cam", model.network, x, targets)
    with torch.inference_mode():
        predicted = torch.cat([model.network(part).argmax(1) for part in torch.split(x, 64)])

    def area(at: int) -> float:
        def chance(some: Tensor) -> Tensor:
            return torch.softmax(model.network(some), 1)[:, targets[at]]

        return deletion_curve(chance, x[at], rank_regions(maps[at], min(CELLS, *x.shape[2:]))).area

    return ModelExplanations(
        maps, predicted.numpy(), tuple(area(at) for at in range(len(x) if curves else 0))
    )


def _compare_with_baseline(
    run: Run,
    model: DeployedModel,
    view: ModelExplanations,
    base: DeployedModel,
    first: ModelExplanations,
    labels: npt.NDArray[np.int64],
    notes: tuple[str, ...],
) -> Fidelity:
    pairs = [compare_maps(a, b) for a, b in zip(first.maps, view.maps, strict=True)]
    metrics = [pair for pair in pairs if pair is not None]
    release = run.config.release
    return Fidelity(
        run=run.path.name,
        defenses=release.defenses or ("none",),
        energy=release.energy,
        images=len(pairs),
        failures=len(pairs) - len(metrics),
        accuracy=_compute_share(view.predicted == labels),
        agreement=_compute_share(view.predicted == first.predicted),
        figures=average_metrics(metrics),
        deletion=float(np.mean(view.deletion) - np.mean(first.deletion)),
        prototype_drift=prototype_drift(base, model),
        subspace_angle=subspace_angle(base, model),
        notes=notes,
    )


def prototype_drift(a: DeployedModel, b: DeployedModel) -> float | None:
    """The mean over prototypes of |p' - p| / |p|; None for a model without any."""
    pairs = _pair_prototypes(a, b, curved=False)
    drifts = [
        ((y - x).flatten(1).norm(dim=1) / x.flatten(1).norm(dim=1).clamp_min(1e-12)).mean()
        for x, y in pairs
    ]
    return float(torch.stack(drifts).mean()) if drifts else None


def subspace_angle(a: DeployedModel, b: DeployedModel) -> float | None:
    """The mean over classes of the largest principal angle, in degrees; None without subspaces."""
    angles = [
        principal_angles(x, y).amax(-1).mean() for x, y in _pair_prototypes(a, b, curved=True)
    ]
    return float(torch.rad2deg(torch.stack(angles).mean())) if angles else None


def _pair_prototypes(
    a: DeployedModel, b: DeployedModel, curved: bool
) -> list[tuple[Tensor, Tensor]]:
    one, other = a.network.state_dict(), b.network.state_dict()
    return [
        (one[s.name].double(), other[s.name].double())
        for s in list_tensors(a.network)
        if s.part == "prototypes" and s.trainable and (s.geometry != "euclidean") == curved
    ]


def _draw_rows(federation: Federation, images: int, site: str | None) -> npt.NDArray[np.int64]:
    """At most so many test images, drawn once for all runs, in the order of their classes."""
    if site is not None:
        held = federation.sites[site].test
    elif len(federation.server_test):
        held = federation.server_test
    else:
        held = np.concatenate([s.test for s in federation.sites.values()])
    if not len(held):
        raise RunError(
            "there are no test images to look at",
            where="partition.test_fraction",
            hint="Run with a test split, or with partition.test_fraction above 0.",
        )
    order = derive_server_key(0).at("fidelity").numpy().permutation(len(held))[:images]
    rows = np.sort(held[order])
    ordered: npt.NDArray[np.int64] = rows[np.argsort(federation.images.labels[rows], kind="stable")]
    return ordered


def _check_alike(a: Run, b: Run) -> None:
    """Both models must take the same images and know the same classes."""
    for key in ("classes", "image_size", "channels"):
        if a.card[key] != b.card[key]:
            raise RunError(
                f"it has other {key.replace('_', ' ')} than {a.path.name}",
                where=str(b.path),
                hint="Compare runs of one data section.",
            )
    if a.card["backbone"] != b.card["backbone"] or a.config.method.name != b.config.method.name:
        raise RunError(
            f"it has another model than {a.path.name}: the difference would not be the defense's",
            where=str(b.path),
            hint="Compare runs that differ in [release] only.",
        )


def _list_notes(a: Run, b: Run) -> tuple[str, ...]:
    notes = []
    if a.config.run.seed != b.config.run.seed:
        notes.append(
            "the seeds differ, so the models would differ without a defense, and images tested "
            "on here may be among those it was trained on"
        )
    if a.round != b.round:
        notes.append(f"after round {b.round}, the baseline after round {a.round}")
    return tuple(notes)


def _compute_share(hits: npt.NDArray[np.bool_]) -> float:
    return float(np.mean(hits))
