"""Pictures of an audit's findings: kept at the site they show, drawn for whoever may see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitrail.audit.counterfactual.finding_pictures import PICTURES, FindingExample
from vitrail.audit.federation_view import Audit
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.explain.evidence import Box
from vitrail.files import read_tensors, write_json, write_tensors
from vitrail.report.charts.scale import format_percent
from vitrail.report.html import Html, el, join
from vitrail.report.pages.page_elements import draw_box, draw_heat, draw_photo, store_photo
from vitrail.report.run_record import AUDIT
from vitrail.runs.opened_run import Run

_FILE = "audit-pictures.safetensors"
_MODELS = {"local": "own model", "shared": "shared model"}


@dataclass(frozen=True)
class FindingPicture:
    """One finding in pictures [C, H, W] of bytes; `answers` by picture and model: class, chance."""

    site: str
    label: str
    other: str
    undone: str
    region: Box | None
    pictures: Mapping[str, Tensor]
    answers: Mapping[str, Mapping[str, tuple[str, float]]]
    maps: Mapping[str, tuple[Box, Tensor]]


def keep_audit(run: Run, audit: Audit, examples: Sequence[FindingExample]) -> Path:
    """Keep an audit for the report: its numbers in the run folder, pictures at each site."""
    by_site: dict[str, list[FindingExample]] = {}
    for example in examples:
        by_site.setdefault(example.finding.site, []).append(example)
    for site, site_examples in by_site.items():
        tensors: dict[str, Tensor] = {}
        meta = []
        for at, example in enumerate(site_examples):
            for name in PICTURES:
                pixels = example.pictures[name].clamp(0, 1) * 255
                tensors[f"{at}/{name}"] = pixels.round().to(torch.uint8)
            for model, attention in example.seen.items():
                tensors[f"{at}/map/{model}"] = attention.map.float()
            meta.append(_make_meta(example))
        write_tensors(SiteFolder(run.path, site).path / _FILE, tensors, {"sights": meta})
    file = run.path / AUDIT
    write_json(file, audit.to_json())
    return file


def _make_meta(example: FindingExample) -> dict[str, Any]:
    return {
        "label": example.finding.label,
        "other": example.other_label,
        "undone": example.finding.undone,
        "region": None if example.region is None else list(example.region),
        "said": {
            name: {
                model: [prediction.predicted, prediction.probability]
                for model, prediction in predictions.items()
            }
            for name, predictions in example.said.items()
        },
        "boxes": {model: list(attention.box) for model, attention in example.seen.items()},
    }


def read_finding_pictures(run: Run, sites: Sequence[str]) -> list[FindingPicture]:
    """The pictures that were kept at some sites; nothing of any other site is read."""
    pictures = []
    for site in sites:
        file = SiteFolder(run.path, site).path / _FILE
        if file.is_file():
            tensors, meta = read_tensors(file)
            for at, entry in enumerate(meta["sights"]):
                pictures.append(_parse_finding_picture(site, tensors, at, entry))
    return pictures


def _parse_finding_picture(
    site: str, tensors: Mapping[str, Tensor], at: int, entry: Mapping[str, Any]
) -> FindingPicture:
    region = entry["region"]
    return FindingPicture(
        site,
        entry["label"],
        entry["other"],
        entry["undone"],
        None if region is None else _to_box(region),
        {name: tensors[f"{at}/{name}"] for name in PICTURES},
        {
            n: {m: (w[0], float(w[1])) for m, w in answers.items()}
            for n, answers in entry["said"].items()
        },
        {m: (_to_box(box), tensors[f"{at}/map/{m}"]) for m, box in entry["boxes"].items()},
    )


def _to_box(edges: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (int(edge) for edge in edges)
    return x0, y0, x1, y1


def render_finding_picture(picture: FindingPicture, name: str) -> Html:
    """MyTH's figures 4 and 5 and the counterfactuals, on one typical image of the site."""
    height, width = picture.pictures["own"].shape[1:]
    size = (int(height), int(width))
    stored = [store_photo(f"{name}-{p}", _make_photo(picture.pictures[p]), size) for p in PICTURES]
    mark = None if picture.region is None else draw_box(picture.region)
    own_photo = f"{name}-own"
    figures = [
        _render_figure(
            draw_photo(own_photo, size, f"an image of {picture.label} with the tested place", mark),
            f"an image of {picture.label}, in the middle of its class by effect",
            picture.answers["own"],
        )
    ]
    for model, (box, map_) in picture.maps.items():
        words = _MODELS.get(model, f"model of {model}")
        drawn = draw_heat(map_, (0, 0, size[1], size[0]))
        label = f"where the strongest part of the {words} is active"
        figures.append(
            _render_figure(
                draw_photo(own_photo, size, label, draw_box(box), drawn),
                f"{words}: its strongest part",
            )
        )
    for shown, text in (
        ("covered", f"the same image, the place {picture.undone}"),
        ("other", f"an image of {picture.other}"),
        ("swapped", f"the same image of {picture.other}, the place put in"),
    ):
        boxes = mark if shown != "other" else None
        figures.append(
            _render_figure(
                draw_photo(f"{name}-{shown}", size, text, boxes), text, picture.answers[shown]
            )
        )
    return join([*stored, el("div", *figures, class_="looks")])


def _render_figure(
    drawn: Html, caption: str, answers: Mapping[str, tuple[str, float]] | None = None
) -> Html:
    lines = [
        el(
            "div",
            el("span", _MODELS.get(model, model)),
            el("span", f"{predicted} {format_percent(chance, 0)}"),
            class_="answers",
        )
        for model, (predicted, chance) in (answers or {}).items()
    ]
    zoom = el("button", drawn, type="button", class_="zoom", aria_label=f"Enlarge: {caption}")
    return el("figure", zoom, el("figcaption", caption, *lines))


def _make_photo(pixels: Tensor) -> Image.Image:
    values = pixels.permute(1, 2, 0).numpy().astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
