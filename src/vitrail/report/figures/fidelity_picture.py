"""Grad-CAM of the same images under every defense, side by side, as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from vitrail.audit.map_fidelity import FidelityReport
from vitrail.explain.map_similarity import is_constant, scale_map
from vitrail.report.charts.color_ramps import HEAT, color_levels
from vitrail.report.charts.drawing import Drawing, Photo, Shape, Text
from vitrail.report.charts.scale import shorten_text
from vitrail.report.pages.fidelity_page import choose_rows, describe_defenses
from vitrail.report.pages.page_elements import image_from_array
from vitrail.report.write_picture import write_drawing

_SIDE, _GAP, _LEFT, _TOP = 120.0, 12.0, 130.0, 64.0


def draw_fidelity(report: FidelityReport, path: Path, pictures: int = 6) -> None:
    """One image a row; the image, its map without a defense, and its map under each run."""
    rows = choose_rows(len(report.labels), pictures)
    titles = ["image", "no defense", *(describe_defenses(run) for run in report.runs)]
    shapes: list[Shape] = []
    for at, title in enumerate(titles):
        x = _LEFT + (_SIDE + _GAP) * at + _SIDE / 2
        for line, words in enumerate(title.split(", ")[:3]):
            place = (x, 14 + 15.0 * line)
            shapes.append(Text(place, shorten_text(words, _SIDE, 12), "ink", 12, "middle"))
    for down, at in enumerate(rows):
        y = _TOP + (_SIDE + 26) * down
        name = shorten_text(report.classes[report.labels[at]], _LEFT - 16, 12)
        shapes.append(Text((_LEFT - 12, y + _SIDE / 2), name, "ink", 12, "end"))
        photo = image_from_array(np.asarray(report.pixels[at]))
        shapes.append(Photo((_LEFT, y), _SIDE, _SIDE, photo, f"an image of {name}"))
        for across, view in enumerate(report.views):
            x = _LEFT + (_SIDE + _GAP) * (across + 1)
            shapes.append(Photo((x, y), _SIDE, _SIDE, photo.convert("L"), ""))
            if not is_constant(view.maps[at]):
                level = scale_map(view.maps[at]).numpy() / 255
                shapes.append(Photo((x, y), _SIDE, _SIDE, _make_heat(level), "where it looks"))
            words = shorten_text(report.classes[int(view.predicted[at])], _SIDE, 12)
            shapes.append(Text((x + _SIDE / 2, y + _SIDE + 11), words, "soft", 12, "middle"))
    width = _LEFT + (_SIDE + _GAP) * len(titles)
    height = _TOP + (_SIDE + 26) * len(rows)
    title = "Grad-CAM of the same images under every defense"
    write_drawing(Drawing(width, height, title, "", shapes), path)


def _make_heat(level: np.ndarray) -> Image.Image:
    """A map in color, see-through where nothing is active."""
    alpha = (255 * 0.85 * np.sqrt(level)).round().astype(np.uint8)
    return Image.fromarray(np.dstack([color_levels(HEAT, level), alpha]))
