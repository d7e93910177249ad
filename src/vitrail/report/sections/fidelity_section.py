"""The section on fidelity: what a defense or another method does to explanations of one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitrail.errors import VitrailError
from vitrail.explain.attribution import attribute
from vitrail.explain.map_similarity import average_metrics, compare_maps
from vitrail.report.blocks import Block, MissingNote
from vitrail.report.charts.scale import format_count, format_value
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.html_table import Column, Table
from vitrail.report.pages.fidelity_page import COLUMNS
from vitrail.report.photos import Photos
from vitrail.report.run_record import FIDELITY, RunRecord
from vitrail.report.unit_patches import normalize_rows
from vitrail.report.viewer import ReportView, Rows

_IMAGES = 4  # that are shown
_MEASURED = 24  # that numbers rest on


def make_fidelity_blocks(
    records: Sequence[RunRecord],
    views: Sequence[ReportView | MissingNote],
    photos: Sequence[Photos],
) -> tuple[Block, ...]:
    """Maps of the same images by every run, and how far they are from those of the first."""
    filed = [block for record in records for block in _make_filed_blocks(record)]
    pairs = [(a, w, p) for a, w, p in zip(records, views, photos) if isinstance(w, ReportView)]
    pairs = [pair for pair in pairs if _has_same_images(pairs[0][1], pair[1])]
    if len(pairs) < 2:
        missing = MissingNote(
            format_html(
                "Grad-CAM maps of the same images are compared where two runs share their images "
                "and classes: {}. {} adds the paper's figures for a pair.",
                el("code", "vitrail report UNDEFENDED DEFENDED ..."),
                el("code", f"vitrail fidelity RUN RUN --json RUN/{FIDELITY}"),
            )
        )
        return (*filed, missing)
    return (*filed, *_compare_maps(pairs))


def _has_same_images(first: ReportView, other: ReportView) -> bool:
    return (
        first.images.classes == other.images.classes
        and first.images.images.shape == other.images.images.shape
        and np.array_equal(first.images.images[first.test[:8]], other.images.images[other.test[:8]])
    )


def _compare_maps(pairs: Sequence[tuple[RunRecord, ReportView, Photos]]) -> list[Block]:
    first = pairs[0][1]
    at = np.linspace(0, len(first.test) - 1, min(_MEASURED, len(first.test))).round().astype(int)
    rows = first.test[np.unique(at)]
    maps: dict[str, Tensor] = {}
    for record, view, _ in pairs:
        run_maps = _compute_maps(view, rows)
        if run_maps is not None:
            maps[_name_model(record, view)] = run_maps
    if len(maps) < 2:
        return [MissingNote(format_html("Grad-CAM is not defined for these models."))]
    blocks: list[Block] = [_make_table(maps, len(rows))]
    if first.shows_pixels:
        shown = np.linspace(0, len(rows) - 1, min(_IMAGES, len(rows))).round().astype(int)
        blocks.append(_render_strips(pairs, maps, rows, shown.tolist()))
    else:
        blocks.append(MissingNote(format_html("The maps are made from images and are not shown.")))
    return blocks


def _name_model(record: RunRecord, view: ReportView) -> str:
    """The run, and whose model it is where there is no global one."""
    title = view.explainer.title
    return record.name if title == "global model" else f"{record.name}, {title}"


def _compute_maps(view: ReportView, rows: Rows) -> Tensor | None:
    """Grad-CAM of the true class; None where it is not defined."""
    try:
        labels = torch.from_numpy(view.images.labels[rows])
        network = view.explainer.model.network
        return attribute("grad-cam", network, normalize_rows(view, rows), labels).detach()
    except VitrailError:
        return None


def _make_table(maps: Mapping[str, Tensor], images: int) -> Table:
    base, first = next(iter(maps.items()))
    rows = []
    for name, other in list(maps.items())[1:]:
        pairs = [compare_maps(a, b) for a, b in zip(first, other, strict=True)]
        measured = [pair for pair in pairs if pair is not None]
        means = average_metrics(measured)
        rows.append((name, *(means.get(key) for key in COLUMNS), images - len(measured)))
    columns = (
        Column("run"),
        *(Column(head, partial(format_value, places=3), number=True) for head in COLUMNS.values()),
        Column("maps that say nothing", number=True),
    )
    title = (
        f"Grad-CAM of the true class against {base}, mean over {format_count(images, 'test image')}"
    )
    return Table("fidelity", title, columns, tuple(rows))


def _render_strips(
    pairs: Sequence[tuple[RunRecord, ReportView, Photos]],
    maps: Mapping[str, Tensor],
    rows: Rows,
    shown: Sequence[int],
) -> Html:
    """A row for each run, a column for each image."""
    photos = pairs[0][2]
    plain = [photos.draw_marked(int(rows[at]), [], f"image {n + 1}") for n, at in enumerate(shown)]
    strips = [el("div", *plain, class_="strip four")]
    for name, run_maps in maps.items():
        cells = [
            photos.draw_heated(int(rows[at]), run_maps[at], f"Grad-CAM of {name}, image {n + 1}")
            for n, at in enumerate(shown)
        ]
        strips.append(join([el("h4", name), el("div", *cells, class_="strip four")]))
    rule = "Images are taken evenly over the test images, and nobody picked them."
    return join([el("h3", "The same images"), el("p", rule, class_="soft"), *strips])


def _make_filed_blocks(record: RunRecord) -> list[Block]:
    """What `vitrail fidelity` wrote about a run."""
    fidelity: Mapping[str, Any] | None = record.results.get(FIDELITY)
    runs = [] if fidelity is None else fidelity.get("runs", ())
    rows = [_flatten_row(run) for run in runs if isinstance(run, Mapping)]
    if fidelity is None or not rows:
        return []
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = tuple(
        Column(key.replace("_", " "), _format_cell, number=key != "run") for key in keys
    )
    values = tuple(tuple(row.get(key) for key in keys) for row in rows)
    baseline, images = fidelity.get("baseline"), fidelity.get("images")
    title = f"Explanations against {baseline}, mean over {images} images"
    return [Table(f"{record.name}-fidelity", title, columns, values)]


def _flatten_row(run: Mapping[str, Any]) -> dict[str, Any]:
    """One defended run, flat."""
    plain = {k: v for k, v in run.items() if v is None or isinstance(v, str | int | float)}
    defenses = ", ".join(map(str, run.get("defenses", ()))) or "none"
    return {"run": plain.pop("run", ""), "defenses": defenses, **plain, **run.get("figures", {})}


def _format_cell(value: object) -> str:
    return format_value(value) if isinstance(value, float) else str(value)
