"""What attacks recovered, in pictures: kept where the images are public, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from vitrail.attack.run_attacks import AttackResults
from vitrail.files import read_tensors, write_json, write_tensors
from vitrail.report.charts.scale import format_value
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import draw_photo, store_photo
from vitrail.report.run_record import ATTACK
from vitrail.runs.opened_run import Run

_FILE = "attack-pictures.safetensors"
_SHOWN = 6  # images of a row


def keep_attack(run: Run, results: AttackResults, sites: Sequence[str] = ()) -> Path:
    """Keep attacks for the report: their figures, and pictures if the true images are public.

    `sites` are those that were named: figures on one site alone may be shown to it.
    """
    if results.public and len(results.truth):
        rows = [row for row in results.rows if row.images is not None and len(row.images)]
        tensors = {"truth": _to_bytes(results.truth)}
        meta = []
        for at, row in enumerate(rows):
            tensors[str(at)] = _to_bytes(row.images if row.images is not None else results.truth)
            name = f"{row.name} ({row.note})" if row.note else row.name
            meta.append({"name": name, "psnr": [s.psnr for s in row.scores[:_SHOWN]]})
        write_tensors(run.folder.server / _FILE, tensors, {"rows": meta})
    file = run.path / ATTACK
    named = {"sites": list(sites)} if sites else {}
    write_json(file, _replace_nonfinite({**results.to_json(), **named}))
    return file


def _replace_nonfinite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null."""
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _to_bytes(images: Tensor) -> Tensor:
    return (images[:_SHOWN].detach().float().clamp(0, 1) * 255).round().to(torch.uint8)


def render_attack_pictures(run: Run, name: str) -> Html | None:
    """The true images above what each attack made of them; None where none were kept."""
    file = run.folder.server / _FILE
    if not run.card.get("public") or not file.is_file():
        return None
    tensors, meta = read_tensors(file)
    rows = [_render_row(tensors["truth"], f"{name}-truth", "the true images", ())]
    for at, row in enumerate(meta["rows"]):
        rows.append(_render_row(tensors[str(at)], f"{name}-{at}", str(row["name"]), row["psnr"]))
    return join([el("h4", "The true images, and what each attack made of them"), *rows])


def _render_row(images: Tensor, name: str, title: str, psnr: object) -> Html:
    values = list(psnr) if isinstance(psnr, list) else []
    cells = []
    for at, image in enumerate(images[:_SHOWN]):
        pixels = image.permute(1, 2, 0).numpy()
        photo = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        size = (int(pixels.shape[0]), int(pixels.shape[1]))
        label = f"{title}, image {at + 1}"
        kept = store_photo(f"{name}-{at}", photo, size)
        drawn = draw_photo(f"{name}-{at}", size, label)
        zoom = el("button", drawn, type="button", class_="zoom", aria_label=f"Enlarge: {label}")
        psnr_text = (
            el("small", f"{format_value(float(values[at]), 1)} dB") if at < len(values) else None
        )
        cells.append(el("div", kept, zoom, psnr_text))
    return join([el("p", title, class_="soft"), el("div", *cells, class_="strip six")])
