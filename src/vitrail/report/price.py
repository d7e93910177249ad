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

from vitrail.attack.attack import ATTACKS
from vitrail.attack.budget import Job
from vitrail.attack.denoise import Denoise
from vitrail.attack.originals import Originals, originals
from vitrail.attack.shared import SharedTable, read_shared
from vitrail.attack.spoils import SharedAttack, Spoils
from vitrail.attack.truth import unit
from vitrail.config.load import Loaded
from vitrail.data.source import load
from vitrail.engine.loaded import Run
from vitrail.engine.reference import images_of
from vitrail.engine.sitefolder import SiteFolder
from vitrail.engine.sweep import cells, played
from vitrail.files import read_tensors, write_json, write_tensors, write_text
from vitrail.report.price_page import price_figures, price_page
from vitrail.report.tables import TABLES, OnCell, averaged, markdown
from vitrail.rng import Key, server

RAW, NOISED = "raw", "raw, noised"
HEAD = [
    "images", "what is shared", "noise", "norm", "masked", "PSNR dB shared", "PSNR dB denoised",
    "PSNR dB mean image", "identified denoised", "identified by distance", "membership AUC",
    "members at 1 %",
]  # fmt: skip
_LOOKED, _PUBLIC, _STEPS, _SHOWN = 200, 1000, 250, 6


@dataclass(frozen=True)
class Price:
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
class Whole(SharedTable):
    """Images that are shared whole, with Gaussian noise or without."""

    sigma: float = 0.0

    def imitate(self, images: npt.NDArray[np.uint8], key: Key) -> Tensor:
        """One view."""
        return noised(unit(images), self.sigma, key)[None]

    def bare(self, images: npt.NDArray[np.uint8], label: int) -> Tensor:
        """The images themselves."""
        del label
        return unit(images)


def noised(images: Tensor, sigma: float, key: Key) -> Tensor:
    """Images with Gaussian noise."""
    return images + sigma * torch.randn(images.shape, generator=key.torch())


def prices(run: Run, folder: Path, first: bool) -> list[Price]:
    """What a run's shared images give away; with `first`, what the same images would as they are.

    What was measured before is read from its file.
    """
    file = folder / "prices" / f"{run.path.name}.json"
    if not file.is_file():
        table = read_shared(run)
        key = server(run.config.run.seed).at("price")
        truth = originals(table, images_of(run), _LOOKED, key.at("originals"))
        public, found, shown = public_of(run), [], {"truth": truth.images[:_SHOWN]}
        for kind, own, beside, sigma, masked in _kinds(run, table, truth, key, first):
            spoils = attacked(own, beside, public, key)
            found.append(_price(run, kind, sigma, masked, beside, spoils))
            rows = {row.name: row.images for row in spoils.rows if row.images is not None}
            shown |= {f"{kind}/{n}": rows[n][:_SHOWN] for n in ("as shared", "denoise")}
        kinds = [price.kind for price in found]
        write_tensors(file.with_suffix(".safetensors"), shown, {"data": _data(run), "kinds": kinds})
        write_json(file, [asdict(price) for price in found])
    return [Price(**raw) for raw in json.loads(file.read_text(encoding="utf-8"))]


def _kinds(
    run: Run, table: SharedTable, truth: Originals, key: Key, first: bool
) -> Iterator[tuple[str, SharedTable, Originals, float, float]]:
    """Names, tables, images, noise and norms after masking."""
    sigma = deviation(run)
    whole = float(_norms(truth.images).mean())
    if first:
        known = (table.server, table.stage, table.name, table.sent, table.sets)
        for kind, level in ((RAW, 0.0), (NOISED, sigma)):
            made = noised(truth.images, level, key.at(kind))[None]
            beside = replace(truth, shared=made)
            yield kind, Whole(*known, level), beside, level, whole
    yield kind_of(run), table, truth, sigma, masked_norm(table, truth, sigma, key)


def attacked(
    table: SharedTable, truth: Originals, public: npt.NDArray[np.uint8], key: Key
) -> Spoils:
    """All three attacks; the same draws for every table."""
    denoise = Denoise("denoise", {"steps": _STEPS, "draws": 2, "width": 2})
    rows = denoise.against(
        table, truth, public, Job(key=key.at("denoise")), "of the same kind"
    ).rows
    others = [ATTACKS[name](name) for name in ("match", "shared-membership")]
    found = [
        a.look(table, truth, Job(key=key.at(a.name))) for a in others if isinstance(a, SharedAttack)
    ]
    return Spoils(rows, found[0].matchings, found[1].members)


def _price(
    run: Run, kind: str, sigma: float, masked: float, truth: Originals, spoils: Spoils
) -> Price:
    rows = {row.name: row for row in spoils.rows}
    match = max(spoils.matchings, key=lambda one: one.found)
    member = max(spoils.members, key=lambda one: one.auc)
    return Price(
        data=_data(run),
        kind=kind,
        seed=run.config.run.seed,
        sigma=sigma,
        norm=float(_norms(truth.images).mean()),
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


def public_of(run: Run) -> npt.NDArray[np.uint8]:
    """Images of the same kind that the run does not hold: the rest of its file, or other birds."""
    data = run.config.data
    changed: dict[str, Any] = {"limit": None}
    if data.source == "embedded":
        seed = data.aviary.seed + 1
        changed["aviary"] = data.aviary.model_copy(update={"seed": seed, "images": _PUBLIC})
    key = server(run.config.run.seed)
    found = load(data.model_copy(update=changed), run.loaded.base, key.at("data")).images
    held = {image.tobytes() for image in images_of(run).images.images}
    rest = np.flatnonzero([image.tobytes() not in held for image in found])
    chosen = key.at("public").numpy().permutation(rest)[:_PUBLIC]
    picked: npt.NDArray[np.uint8] = found[np.sort(chosen)]
    return picked


def deviation(run: Run) -> float:
    """The noise's deviation on a pixel, from the first site's ledger; the least over its views."""
    lines = SiteFolder(run.path, run.sites[0]).ledger().lines()
    return min(float(line["sigma"]) for line in lines if line.get("kind") == "images")


def masked_norm(table: SharedTable, truth: Originals, sigma: float, key: Key) -> float:
    """The mean norm of an image before noise: as the phase shows it, else from the energy."""
    phase = next((p for p in table.stage.stage.train if hasattr(p, "show")), None)
    if phase is not None:
        pixels = (truth.images * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
        site, ctx = table.site(np.ascontiguousarray(pixels), key.at("norms"))
        chosen, _ = phase.show(site, ctx)
        return float(_norms(chosen.pixels).mean())
    energy = truth.shared[0].flatten(1).double().square().sum(1).mean()
    size = truth.shared[0][0].numel()
    return float((energy - size * sigma**2).clamp_min(0).sqrt())


def _norms(images: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(images.flatten(1).double(), dim=1)
    return found


def kind_of(run: Run) -> str:
    """The method, and how it protects images where it offers several ways."""
    method = run.config.method
    protection = method.options.get("protection")
    return method.name if protection is None else f"{method.name} {protection}"


def _data(run: Run) -> str:
    data = run.config.data
    return "birds" if data.source == "embedded" else Path(str(data.path)).stem


def rows_of(found: Sequence[Price]) -> list[list[str]]:
    """A row for each kind of images and of sharing, over seeds."""
    groups: dict[tuple[str, str], list[Price]] = {}
    for price in found:
        groups.setdefault((price.data, price.kind), []).append(price)
    return [_cells(groups[key]) for key in sorted(groups, key=lambda key: key[0])]


def _cells(own: Sequence[Price]) -> list[str]:
    """The figures of one row."""

    def mean(name: str, form: str = ".1f", times: float = 1.0) -> str:
        return averaged([times * float(getattr(price, name)) for price in own], form)

    ways = ", ".join(dict.fromkeys(price.distance for price in own))
    return [
        own[0].data,
        own[0].kind,
        mean("sigma", ".3g") if own[0].sigma else "none",
        *map(mean, ("norm", "masked", "shared", "denoised", "mean")),
        f"{mean('identified', '.0f', 100)} %",
        f"{mean('found', '.0f', 100)} % ({ways})",
        mean("auc", ".2f"),
        f"{mean('tpr', '.0f', 100)} %",
    ]


@TABLES.register("price")
def price_table(grid: Loaded, folder: Path, on_cell: OnCell) -> str:
    """The table as Markdown; a page of pictures and a figure for each kind of images beside it."""
    found: list[Price] = []
    seen: set[tuple[str, int]] = set()
    shown, every = [], cells(grid)
    for number, cell in enumerate(every):  # a run is attacked before the next one is played
        begin = partial(on_cell, number, len(every), cell.name)
        run = Run(played(cell.loaded, folder / cell.name, begin))
        case = (_data(run), run.config.run.seed)
        found += prices(run, folder, case not in seen)
        seen.add(case)
        if case[1] == every[0].loaded.config.run.seed:
            shown.append(read_tensors(folder / "prices" / f"{cell.name}.safetensors"))
    rows = rows_of(found)
    text = markdown(HEAD, rows)
    write_text(folder / "figures" / "price.md", text + "\n")
    write_text(folder / "figures" / "price.html", price_page(HEAD, rows, shown))
    price_figures(shown, folder / "figures")
    return text
