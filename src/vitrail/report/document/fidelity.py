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
from vitrail.explain.closeness import averaged, compared
from vitrail.report.document.account import FIDELITY, Account
from vitrail.report.document.block import Block, Missing
from vitrail.report.document.grounds import normalized_rows
from vitrail.report.document.markup import Html, el, join, say
from vitrail.report.document.photos import Photos
from vitrail.report.document.scale import count, figure
from vitrail.report.document.table import Column, Table
from vitrail.report.document.window import Rows, Window
from vitrail.report.fidelity_page import COLUMNS

_IMAGES = 4  # that are shown
_MEASURED = 24  # that numbers rest on


def fidelity(
    accounts: Sequence[Account], seen: Sequence[Window | Missing], photos: Sequence[Photos]
) -> tuple[Block, ...]:
    """Maps of the same images by every run, and how far they are from those of the first."""
    told = [block for account in accounts for block in _filed(account)]
    pairs = [(a, w, p) for a, w, p in zip(accounts, seen, photos) if isinstance(w, Window)]
    pairs = [pair for pair in pairs if _same_images(pairs[0][1], pair[1])]
    if len(pairs) < 2:
        missing = Missing(
            say(
                "Grad-CAM maps of the same images are compared where two runs share their images "
                "and classes: {}. {} adds the paper's figures for a pair.",
                el("code", "vitrail report UNDEFENDED DEFENDED ..."),
                el("code", f"vitrail fidelity RUN RUN --json RUN/{FIDELITY}"),
            )
        )
        return (*told, missing)
    return (*told, *_compared(pairs))


def _same_images(one: Window, other: Window) -> bool:
    return (
        one.images.classes == other.images.classes
        and one.images.images.shape == other.images.images.shape
        and np.array_equal(one.images.images[one.test[:8]], other.images.images[other.test[:8]])
    )


def _compared(pairs: Sequence[tuple[Account, Window, Photos]]) -> list[Block]:
    first = pairs[0][1]
    at = np.linspace(0, len(first.test) - 1, min(_MEASURED, len(first.test))).round().astype(int)
    rows = first.test[np.unique(at)]
    maps: dict[str, Tensor] = {}
    for account, window, _ in pairs:
        found = _maps(window, rows)
        if found is not None:
            maps[_named(account, window)] = found
    if len(maps) < 2:
        return [Missing(say("Grad-CAM is not defined for these models."))]
    blocks: list[Block] = [_numbers(maps, len(rows))]
    if first.shown:
        shown = np.linspace(0, len(rows) - 1, min(_IMAGES, len(rows))).round().astype(int)
        blocks.append(_strips(pairs, maps, rows, shown.tolist()))
    else:
        blocks.append(Missing(say("The maps are made from images and are not shown.")))
    return blocks


def _named(account: Account, window: Window) -> str:
    """The run, and whose model it is where there is no global one."""
    title = window.explainer.title
    return account.name if title == "global model" else f"{account.name}, {title}"


def _maps(window: Window, rows: Rows) -> Tensor | None:
    """Grad-CAM of the true class; None where it is not defined."""
    try:
        labels = torch.from_numpy(window.images.labels[rows])
        network = window.explainer.model.network
        return attribute("grad-cam", network, normalized_rows(window, rows), labels).detach()
    except VitrailError:
        return None


def _numbers(maps: Mapping[str, Tensor], images: int) -> Table:
    base, first = next(iter(maps.items()))
    rows = []
    for name, other in list(maps.items())[1:]:
        pairs = [compared(a, b) for a, b in zip(first, other, strict=True)]
        said = [pair for pair in pairs if pair is not None]
        means = averaged(said)
        rows.append((name, *(means.get(key) for key in COLUMNS), images - len(said)))
    columns = (
        Column("run"),
        *(Column(head, partial(figure, places=3), number=True) for head in COLUMNS.values()),
        Column("maps that say nothing", number=True),
    )
    title = f"Grad-CAM of the true class against {base}, mean over {count(images, 'test image')}"
    return Table("fidelity", title, columns, tuple(rows))


def _strips(
    pairs: Sequence[tuple[Account, Window, Photos]],
    maps: Mapping[str, Tensor],
    rows: Rows,
    shown: Sequence[int],
) -> Html:
    """A row for each run, a column for each image."""
    photos = pairs[0][2]
    plain = [photos.marked(int(rows[at]), [], f"image {n + 1}") for n, at in enumerate(shown)]
    strips = [el("div", *plain, class_="strip four")]
    for name, found in maps.items():
        cells = [
            photos.heated(int(rows[at]), found[at], f"Grad-CAM of {name}, image {n + 1}")
            for n, at in enumerate(shown)
        ]
        strips.append(join([el("h4", name), el("div", *cells, class_="strip four")]))
    rule = "Images are taken evenly over the test images, and nobody picked them."
    return join([Html("<h3>The same images</h3>"), el("p", rule, class_="soft"), *strips])


def _filed(account: Account) -> list[Block]:
    """What `vitrail fidelity` wrote about a run."""
    found: Mapping[str, Any] | None = account.found.get(FIDELITY)
    runs = [] if found is None else found.get("runs", ())
    rows = [_row(run) for run in runs if isinstance(run, Mapping)]
    if found is None or not rows:
        return []
    keys = list(dict.fromkeys(key for row in rows for key in row))
    columns = tuple(Column(key.replace("_", " "), _show, number=key != "run") for key in keys)
    values = tuple(tuple(row.get(key) for key in keys) for row in rows)
    title = f"Explanations against {found.get('baseline')}, mean over {found.get('images')} images"
    return [Table(f"{account.name}-fidelity", title, columns, values)]


def _row(run: Mapping[str, Any]) -> dict[str, Any]:
    """One defended run, flat."""
    plain = {k: v for k, v in run.items() if v is None or isinstance(v, str | int | float)}
    defenses = ", ".join(map(str, run.get("defenses", ()))) or "none"
    return {"run": plain.pop("run", ""), "defenses": defenses, **plain, **run.get("figures", {})}


def _show(value: object) -> str:
    return figure(value) if isinstance(value, float) else str(value)
