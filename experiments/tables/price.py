"""The price of sharing images: what attacks get out of them, by what protects them.

Two rows that no method offers stand beside those of the runs: the images as they are, and with
noise and nothing else, of the deviation that the first run's images got.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from experiments.tables.markdown import format_mean, to_markdown
from experiments.tables.price_page import draw_price_figures, render_price_page
from vitrail.attack.attack import ATTACKS
from vitrail.attack.findings import Findings
from vitrail.attack.ground_truth import KnownTruth
from vitrail.attack.job import Job
from vitrail.attack.shared_images.denoise import Denoise
from vitrail.attack.shared_images.originals import Originals, select_originals
from vitrail.attack.shared_images.shared_table import SharedTable, read_shared
from vitrail.attack.true_images import to_unit_range
from vitrail.attack.view import SharedImageView
from vitrail.config.load import Loaded
from vitrail.data.load_images import load
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.files import read_tensors, write_json, write_tensors, write_text
from vitrail.rng import Key, derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import load_run_federation
from vitrail.sweep.cells import ensure_run, make_cells
from vitrail.sweep.tables import TABLES, OnCell

RAW, NOISED = "raw", "raw, noised"
HEAD = [
    "images", "what is shared", "noise", "norm", "masked", "PSNR dB shared", "PSNR dB denoised",
    "PSNR dB mean image", "identified denoised", "identified by distance", "membership AUC",
    "members at 1 %",
]  # fmt: skip
_LOOKED, _PUBLIC, _STEPS, _SHOWN = 200, 1000, 250, 6


@dataclass(frozen=True)
class SharingLeakage:
    """One kind of sharing under attack. Of the distances each figure is that of the best one.

    `norm` and `masked` are mean L2 norms of an image before and after pixels were removed.
    """

    data: str
    kind: str
    seed: int
    sigma: float
    norm: float
    masked: float
    shared: float
    denoised: float
    mean: float
    identified: float
    found: float
    distance: str
    auc: float
    tpr: float


@dataclass(frozen=True)
class WholeImages(SharedTable):
    """Images that are shared whole, with Gaussian noise or without."""

    sigma: float = 0.0

    def imitate(self, images: npt.NDArray[np.uint8], key: Key) -> Tensor:
        """One view."""
        return add_noise(to_unit_range(images), self.sigma, key)[None]

    def share_without_noise(self, images: npt.NDArray[np.uint8], label: int) -> Tensor:
        """The images themselves."""
        del label
        return to_unit_range(images)


def add_noise(images: Tensor, sigma: float, key: Key) -> Tensor:
    """Images with Gaussian noise."""
    return images + sigma * torch.randn(images.shape, generator=key.torch())


def measure_leakage(run: Run, folder: Path, first: bool) -> list[SharingLeakage]:
    """What a run's shared images give away; with `first`, what the same images would as they are.

    What was measured before is read from its file.
    """
    file = folder / "prices" / f"{run.path.name}.json"
    if not file.is_file():
        table = read_shared(run)
        key = derive_server_key(run.config.run.seed).at("price")
        truth = select_originals(table, load_run_federation(run), _LOOKED, key.at("originals"))
        public, leakages, shown = load_public_images(run), [], {"truth": truth.images[:_SHOWN]}
        for kind, shared, beside, sigma, masked in _iterate_kinds(run, table, truth, key, first):
            results = attack_shared_images(shared, beside, public, key)
            leakages.append(_make_leakage(run, kind, sigma, masked, beside, results))
            rows = {row.name: row.images for row in results.rows if row.images is not None}
            shown |= {f"{kind}/{n}": rows[n][:_SHOWN] for n in ("as shared", "denoise")}
        kinds = [leakage.kind for leakage in leakages]
        write_tensors(
            file.with_suffix(".safetensors"), shown, {"data": _name_data(run), "kinds": kinds}
        )
        write_json(file, [asdict(leakage) for leakage in leakages])
    return [SharingLeakage(**raw) for raw in json.loads(file.read_text(encoding="utf-8"))]


def _iterate_kinds(
    run: Run, table: SharedTable, truth: Originals, key: Key, first: bool
) -> Iterator[tuple[str, SharedTable, Originals, float, float]]:
    """Names, tables, images, noise and norms after masking."""
    sigma = read_noise_deviation(run)
    whole = float(_compute_norms(truth.images).mean())
    if first:
        known = (table.server, table.stage, table.name, table.sent, table.sets)
        for kind, level in ((RAW, 0.0), (NOISED, sigma)):
            noised = add_noise(truth.images, level, key.at(kind))[None]
            beside = replace(truth, shared=noised)
            yield kind, WholeImages(*known, level), beside, level, whole
    yield describe_sharing(run), table, truth, sigma, compute_masked_norm(table, truth, sigma, key)


def attack_shared_images(
    table: SharedTable, truth: Originals, public: npt.NDArray[np.uint8], key: Key
) -> Findings:
    """All three attacks; the same draws for every table."""
    denoise = Denoise("denoise", {"steps": _STEPS, "draws": 2, "width": 2})
    findings = denoise.score_denoising(
        table, truth, public, Job(key=key.at("denoise")), "of the same kind"
    )
    view, known = SharedImageView(table), KnownTruth(originals=truth)
    for name in ("match", "shared-membership"):
        job = Job(key=key.at(name), truth=known)
        findings = findings.merge(ATTACKS[name](name).run(view, job))
    return findings


def _make_leakage(
    run: Run, kind: str, sigma: float, masked: float, truth: Originals, results: Findings
) -> SharingLeakage:
    rows = {row.name: row for row in results.rows}
    match = max(results.matchings, key=lambda one: one.found)
    member = max(results.members, key=lambda one: one.auc)
    return SharingLeakage(
        data=_name_data(run),
        kind=kind,
        seed=run.config.run.seed,
        sigma=sigma,
        norm=float(_compute_norms(truth.images).mean()),
        masked=masked,
        shared=rows["as shared"].mean("psnr"),
        denoised=rows["denoise"].mean("psnr"),
        mean=rows["mean image"].mean("psnr"),
        identified=rows["denoise"].mean("identified"),
        found=match.found,
        distance=match.norm,
        auc=member.auc,
        tpr=member.tpr,
    )


def load_public_images(run: Run) -> npt.NDArray[np.uint8]:
    """Images of the same kind that the run does not hold: the rest of its file, or other birds."""
    data = run.config.data
    changed: dict[str, Any] = {"limit": None}
    if data.source == "embedded":
        seed = data.aviary.seed + 1
        changed["aviary"] = data.aviary.model_copy(update={"seed": seed, "images": _PUBLIC})
    key = derive_server_key(run.config.run.seed)
    images = load(data.model_copy(update=changed), run.loaded.base, key.at("data")).images
    held = {image.tobytes() for image in load_run_federation(run).images.images}
    rest = np.flatnonzero([image.tobytes() not in held for image in images])
    chosen = key.at("public").numpy().permutation(rest)[:_PUBLIC]
    picked: npt.NDArray[np.uint8] = images[np.sort(chosen)]
    return picked


def read_noise_deviation(run: Run) -> float:
    """The noise's deviation on a pixel, from the first site's ledger; the least over its views."""
    lines = SiteFolder(run.path, run.sites[0]).ledger().lines()
    return min(float(line["sigma"]) for line in lines if line.get("kind") == "images")


def compute_masked_norm(table: SharedTable, truth: Originals, sigma: float, key: Key) -> float:
    """The mean norm of an image before noise: as the phase shows it, else from the energy."""
    phase = next((p for p in table.stage.stage.train if hasattr(p, "preview_images")), None)
    if phase is not None:
        pixels = (truth.images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        site, ctx = table.site(np.ascontiguousarray(pixels), key.at("norms"))
        chosen, _ = phase.preview_images(site, ctx)
        return float(_compute_norms(chosen.pixels).mean())
    energy = truth.shared[0].flatten(1).double().square().sum(1).mean()
    size = truth.shared[0][0].numel()
    return float((energy - size * sigma**2).clamp_min(0).sqrt())


def _compute_norms(images: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(images.flatten(1).double(), dim=1)
    return norms


def describe_sharing(run: Run) -> str:
    """The method, and how it protects images where it offers several ways."""
    method = run.config.method
    protection = method.options.get("protection")
    return method.name if protection is None else f"{method.name} {protection}"


def _name_data(run: Run) -> str:
    data = run.config.data
    return "birds" if data.source == "embedded" else Path(str(data.path)).stem


def make_rows(leakages: Sequence[SharingLeakage]) -> list[list[str]]:
    """A row for each kind of images and of sharing, over seeds."""
    groups: dict[tuple[str, str], list[SharingLeakage]] = {}
    for leakage in leakages:
        groups.setdefault((leakage.data, leakage.kind), []).append(leakage)
    return [_format_cells(groups[key]) for key in sorted(groups, key=lambda key: key[0])]


def _format_cells(leakages: Sequence[SharingLeakage]) -> list[str]:
    """The figures of one row."""

    def mean(name: str, form: str = ".1f", times: float = 1.0) -> str:
        return format_mean([times * float(getattr(leakage, name)) for leakage in leakages], form)

    ways = ", ".join(dict.fromkeys(leakage.distance for leakage in leakages))
    return [
        leakages[0].data,
        leakages[0].kind,
        mean("sigma", ".3g") if leakages[0].sigma else "none",
        *map(mean, ("norm", "masked", "shared", "denoised", "mean")),
        f"{mean('identified', '.0f', 100)} %",
        f"{mean('found', '.0f', 100)} % ({ways})",
        mean("auc", ".2f"),
        f"{mean('tpr', '.0f', 100)} %",
    ]


@TABLES.register("price")
def make_price_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The table as Markdown; a page of pictures and a figure for each kind of images beside it."""
    leakages: list[SharingLeakage] = []
    seen: set[tuple[str, int]] = set()
    shown, cells = [], make_cells(grid)
    for number, cell in enumerate(cells):  # a run is attacked before the next one is played
        begin = partial(on_cell, number, len(cells), cell.name)
        run = Run(ensure_run(cell.loaded, folder / cell.name, begin))
        case = (_name_data(run), run.config.run.seed)
        leakages += measure_leakage(run, folder, case not in seen)
        seen.add(case)
        if case[1] == cells[0].loaded.config.run.seed:
            shown.append(read_tensors(folder / "prices" / f"{cell.name}.safetensors"))
    rows = make_rows(leakages)
    text = to_markdown(HEAD, rows)
    write_text(folder / "figures" / "price.md", text + "\n")
    write_text(folder / "figures" / "price.html", render_price_page(HEAD, rows, shown))
    draw_price_figures(shown, folder / "figures")
    return text
