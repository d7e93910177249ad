"""What attacks recovered, in pictures: kept where the images are public, and nowhere else."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vitrail.attack.assault import Assault
from vitrail.engine.loaded import Run
from vitrail.files import read_tensors, write_json, write_tensors
from vitrail.report.document.account import ATTACK
from vitrail.report.document.markup import Html, el, join
from vitrail.report.document.scale import figure
from vitrail.report.evidence_html import drawing, store

_FILE = "attack-pictures.safetensors"
_SHOWN = 6  # images of a row


def keep_attack(run: Run, found: Assault) -> Path:
    """Keep attacks for the report: their figures, and pictures if the true images are public."""
    if found.public and len(found.truth):
        rows = [row for row in found.rows if row.images is not None and len(row.images)]
        tensors = {"truth": _bytes(found.truth)}
        meta = []
        for at, row in enumerate(rows):
            tensors[str(at)] = _bytes(row.images if row.images is not None else found.truth)
            name = f"{row.name} ({row.note})" if row.note else row.name
            meta.append({"name": name, "psnr": [s.psnr for s in row.scores[:_SHOWN]]})
        write_tensors(run.folder.server / _FILE, tensors, {"rows": meta})
    file = run.path / ATTACK
    write_json(file, _finite(found.to_json()))
    return file


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _bytes(images: Tensor) -> Tensor:
    return (images[:_SHOWN].detach().float().clamp(0, 1) * 255).round().to(torch.uint8)


def stolen(run: Run, name: str) -> Html | None:
    """The true images above what each attack made of them; None where none were kept."""
    file = run.folder.server / _FILE
    if not run.card.get("public") or not file.is_file():
        return None
    tensors, meta = read_tensors(file)
    rows = [_row(tensors["truth"], f"{name}-truth", "the true images", ())]
    for at, one in enumerate(meta["rows"]):
        rows.append(_row(tensors[str(at)], f"{name}-{at}", str(one["name"]), one["psnr"]))
    return join([Html("<h4>The true images, and what each attack made of them</h4>"), *rows])


def _row(images: Tensor, name: str, title: str, psnr: object) -> Html:
    values = list(psnr) if isinstance(psnr, list) else []
    cells = []
    for at, image in enumerate(images[:_SHOWN]):
        pixels = image.permute(1, 2, 0).numpy()
        photo = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        size = (int(pixels.shape[0]), int(pixels.shape[1]))
        label = f"{title}, image {at + 1}"
        kept = Html(store(f"{name}-{at}", photo, size))
        drawn = Html(drawing(f"{name}-{at}", size, label))
        zoom = el("button", drawn, type="button", class_="zoom", aria_label=f"Enlarge: {label}")
        told = el("small", f"{figure(float(values[at]), 1)} dB") if at < len(values) else None
        cells.append(el("div", kept, zoom, told))
    return join([el("p", title, class_="soft"), el("div", *cells, class_="strip six")])
