"""The evidence for one finding: pictures side by side, or the same places without any pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitrail.audit.counterfactual.finding_pictures import FindingExample
from vitrail.explain.evidence import Box
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.pages.audit_units import render_unit_table
from vitrail.report.pages.audit_words import format_percent, render_readings
from vitrail.report.pages.page_elements import (
    draw_box,
    draw_empty_frame,
    draw_heat,
    draw_photo,
    image_from_array,
    render_rows,
    store_photo,
)

NO_PARTS = (
    "No model here has a part of this class that could be named: the evidence is what covering the "
    "place, and putting it into other images, changes."
)
_MODEL_NAMES = {"local": "own model", "shared": "shared model"}
Prediction = tuple[str, float]  # class and probability


@dataclass(frozen=True)
class FindingPicture:
    """One finding in pictures [C, H, W] of bytes; `answers` by picture and model."""

    site: str
    label: str
    other: str
    undone: str
    region: Box | None
    pictures: Mapping[str, Tensor]
    answers: Mapping[str, Mapping[str, Prediction]]
    maps: Mapping[str, tuple[Box, Tensor]]

    @staticmethod
    def from_example(example: FindingExample) -> FindingPicture:
        """What a page shows of an example."""
        finding = example.finding
        return FindingPicture(
            finding.site,
            finding.label,
            example.other_label,
            finding.undone,
            example.region,
            {
                name: (pixels.clamp(0, 1) * 255).round().to("cpu", torch.uint8)
                for name, pixels in example.pictures.items()
            },
            {
                name: {model: (p.predicted, p.probability) for model, p in said.items()}
                for name, said in example.said.items()
            },
            {model: (seen.box, seen.map.float()) for model, seen in example.seen.items()},
        )


def render_finding(example: FindingExample, at: int, shown: bool, doubted: bool) -> Html:
    """The figures of a finding under a heading; `at` numbers it, `shown` allows pixels."""
    finding = example.finding
    picture = FindingPicture.from_example(example) if shown else None
    return join(
        [
            el("h3", f"{finding.label}: what the models look at"),
            el("p", _write_sentences(example), class_="soft"),
            _render_places(example)
            if picture is None
            else render_finding_picture(picture, f"a{at}", enlarges=False),
            render_unit_table(finding),
            render_readings(finding.reading) if doubted else None,
        ]
    )


def _write_sentences(example: FindingExample) -> str:
    sentences = [f"Tested: {example.finding.spot}."]
    if example.overlap is not None:
        sentences.append(
            "The strongest part of the own and of the shared model share "
            f"{format_percent(example.overlap)} of their boxes (intersection over union)."
        )
    if not example.seen:
        sentences.append(NO_PARTS)
    for name, attention in example.seen.items():
        if attention.inside is not None:
            share = format_percent(attention.inside)
            sentences.append(f"Attention of the {_name_model(name)} in that place: {share}.")
    return " ".join(sentences)


def _name_model(model: str) -> str:
    return _MODEL_NAMES.get(model, f"model of {model}")


def render_finding_picture(picture: FindingPicture, name: str, *, enlarges: bool = True) -> Html:
    """MyTH's figures 4 and 5 and the counterfactuals, on one typical image of the site.

    `name` is that of the photographs in the page; a page without a script `enlarges` nothing.
    """
    height, width = picture.pictures["own"].shape[1:]
    size = (int(height), int(width))
    stored = [
        store_photo(f"{name}-{key}", image_from_array(pixels.permute(1, 2, 0).numpy()), size)
        for key, pixels in picture.pictures.items()
    ]
    mark = None if picture.region is None else draw_box(picture.region)
    label = f"an image of {picture.label}"
    figures = [
        _render_figure(
            draw_photo(f"{name}-own", size, f"{label} with the tested place", mark),
            f"{label}, in the middle of its class by effect",
            picture.answers["own"],
            enlarges,
        )
    ]
    for model, (box, map_) in picture.maps.items():
        words = _name_model(model)
        text = f"where the strongest part of the {words} is active"
        heat = draw_heat(map_, (0, 0, size[1], size[0]))
        drawn = draw_photo(f"{name}-own", size, text, draw_box(box), heat)
        figures.append(_render_figure(drawn, f"{words}: its strongest part", {}, enlarges))
    for shown, text in (
        ("covered", f"the same image, the place {picture.undone}"),
        ("other", f"an image of {picture.other}"),
        ("swapped", f"the same image of {picture.other}, the place put in"),
    ):
        drawn = draw_photo(f"{name}-{shown}", size, text, None if shown == "other" else mark)
        figures.append(_render_figure(drawn, text, picture.answers[shown], enlarges))
    return join([*stored, el("div", *figures, class_="looks")])


def _render_places(example: FindingExample) -> Html:
    """The same without pixels: boxes of every image in an empty frame, and what was said."""
    size, label = _get_size(example), example.finding.label
    count = len(example.finding.rows)
    figures = []
    for name, attention in example.seen.items():
        caption = f"where the {_name_model(name)} looks in {count} images of {label}"
        median = _compute_median_box(attention.boxes)
        figures.append(
            _render_figure(draw_empty_frame(size, attention.boxes, median, caption), caption)
        )
    rows = []
    for name, text in (
        ("own", f"a typical image of {label}"),
        ("covered", f"the place {example.finding.undone}"),
        ("other", f"an image of {example.other_label}"),
        ("swapped", "with the place put in"),
    ):
        answers = [el("td", _format_answer(said.predicted, said.probability))
                   for said in example.said[name].values()]  # fmt: skip
        rows.append(el("tr", el("th", text, scope="row"), *answers))
    heads = ("image", *(_name_model(name) for name in example.said["own"]))
    note = format_html(
        "Images are not shown, so that this page can be shared; {} shows them.",
        el("code", "--with-images"),
    )
    table = render_rows(heads, rows, f"What the models say to {label}", "numbers")
    return join([el("div", *figures, class_="looks"), table, el("p", note, class_="soft")])


def _compute_median_box(boxes: tuple[Box, ...]) -> Box:
    edges = np.sort(np.array(boxes), axis=0)[(len(boxes) - 1) // 2]
    return int(edges[0]), int(edges[1]), int(edges[2]), int(edges[3])


def _render_figure(
    drawn: Html,
    caption: str,
    answers: Mapping[str, Prediction] | None = None,
    enlarges: bool = False,
) -> Html:
    lines = [
        el(
            "div",
            el("span", _name_model(name)),
            el("span", _format_answer(*said)),
            class_="answers",
        )
        for name, said in (answers or {}).items()
    ]
    if enlarges:
        drawn = el("button", drawn, type="button", class_="zoom", aria_label=f"Enlarge: {caption}")
    return el("figure", drawn, el("figcaption", caption, *lines))


def _format_answer(predicted: str, probability: float) -> str:
    return f"{predicted} {format_percent(probability)}"


def _get_size(example: FindingExample) -> tuple[int, int]:
    height, width = example.pictures["own"].shape[1:]
    return int(height), int(width)
