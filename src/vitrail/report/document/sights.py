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

from vitrail.audit.federation import Audit
from vitrail.audit.look import PICTURES, Look
from vitrail.engine.loaded import Run
from vitrail.engine.sitefolder import SiteFolder
from vitrail.explain.evidence import Box
from vitrail.files import read_tensors, write_json, write_tensors
from vitrail.report.document.account import AUDIT
from vitrail.report.document.markup import Html, el, join
from vitrail.report.document.scale import percent
from vitrail.report.evidence_html import drawing, framed, heat, store

_FILE = "audit-pictures.safetensors"
_MODELS = {"local": "own model", "shared": "shared model"}


@dataclass(frozen=True)
class Sight:
    """One finding in pictures [C, H, W] of bytes; `said` by picture and model: class, chance."""

    site: str
    label: str
    other: str
    undone: str
    region: Box | None
    pictures: Mapping[str, Tensor]
    said: Mapping[str, Mapping[str, tuple[str, float]]]
    maps: Mapping[str, tuple[Box, Tensor]]


def keep_audit(run: Run, audit: Audit, looks: Sequence[Look]) -> Path:
    """Keep an audit for the report: its numbers in the run folder, pictures at each site."""
    by_site: dict[str, list[Look]] = {}
    for look in looks:
        by_site.setdefault(look.finding.site, []).append(look)
    for site, own in by_site.items():
        tensors: dict[str, Tensor] = {}
        meta = []
        for at, look in enumerate(own):
            for name in PICTURES:
                pixels = look.pictures[name].clamp(0, 1) * 255
                tensors[f"{at}/{name}"] = pixels.round().to(torch.uint8)
            for model, seen in look.seen.items():
                tensors[f"{at}/map/{model}"] = seen.map.float()
            meta.append(_meta(look))
        write_tensors(SiteFolder(run.path, site).path / _FILE, tensors, {"sights": meta})
    file = run.path / AUDIT
    write_json(file, audit.to_json())
    return file


def _meta(look: Look) -> dict[str, Any]:
    return {
        "label": look.finding.label,
        "other": look.other_label,
        "undone": look.finding.undone,
        "region": None if look.region is None else list(look.region),
        "said": {
            name: {model: [one.predicted, one.probability] for model, one in said.items()}
            for name, said in look.said.items()
        },
        "boxes": {model: list(seen.box) for model, seen in look.seen.items()},
    }


def sights_of(run: Run, sites: Sequence[str]) -> list[Sight]:
    """The pictures that were kept at some sites; nothing of any other site is read."""
    found = []
    for site in sites:
        file = SiteFolder(run.path, site).path / _FILE
        if file.is_file():
            tensors, meta = read_tensors(file)
            for at, one in enumerate(meta["sights"]):
                found.append(_sight(site, tensors, at, one))
    return found


def _sight(site: str, tensors: Mapping[str, Tensor], at: int, one: Mapping[str, Any]) -> Sight:
    region = one["region"]
    return Sight(
        site,
        one["label"],
        one["other"],
        one["undone"],
        None if region is None else _box(region),
        {name: tensors[f"{at}/{name}"] for name in PICTURES},
        {n: {m: (w[0], float(w[1])) for m, w in said.items()} for n, said in one["said"].items()},
        {m: (_box(box), tensors[f"{at}/map/{m}"]) for m, box in one["boxes"].items()},
    )


def _box(edges: Sequence[float]) -> Box:
    x0, y0, x1, y1 = (int(edge) for edge in edges)
    return x0, y0, x1, y1


def pictures(sight: Sight, name: str) -> Html:
    """MyTH's figures 4 and 5 and the counterfactuals, on one typical image of the site."""
    height, width = sight.pictures["own"].shape[1:]
    size = (int(height), int(width))
    stored = [Html(store(f"{name}-{p}", _photo(sight.pictures[p]), size)) for p in PICTURES]
    mark = "" if sight.region is None else framed(sight.region)
    own = f"{name}-own"
    figures = [
        _figure(
            drawing(own, size, f"an image of {sight.label} with the tested place", mark),
            f"an image of {sight.label}, in the middle of its class by effect",
            sight.said["own"],
        )
    ]
    for model, (box, map_) in sight.maps.items():
        words = _MODELS.get(model, f"model of {model}")
        drawn = heat(map_, (0, 0, size[1], size[0]))
        label = f"where the strongest part of the {words} is active"
        figures.append(
            _figure(drawing(own, size, label, framed(box), drawn), f"{words}: its strongest part")
        )
    for shown, text in (
        ("covered", f"the same image, the place {sight.undone}"),
        ("other", f"an image of {sight.other}"),
        ("swapped", f"the same image of {sight.other}, the place put in"),
    ):
        boxes = mark if shown != "other" else ""
        figures.append(
            _figure(drawing(f"{name}-{shown}", size, text, boxes), text, sight.said[shown])
        )
    return join([*stored, el("div", *figures, class_="looks")])


def _figure(drawn: str, caption: str, said: Mapping[str, tuple[str, float]] | None = None) -> Html:
    lines = [
        el(
            "div",
            el("span", _MODELS.get(model, model)),
            el("span", f"{predicted} {percent(chance, 0)}"),
            class_="answers",
        )
        for model, (predicted, chance) in (said or {}).items()
    ]
    zoom = el("button", Html(drawn), type="button", class_="zoom", aria_label=f"Enlarge: {caption}")
    return el("figure", zoom, el("figcaption", caption, *lines))


def _photo(pixels: Tensor) -> Image.Image:
    values = pixels.permute(1, 2, 0).numpy().astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
