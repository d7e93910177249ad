"""The evidence for one finding: pictures side by side, or the same places without any pixel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vitrail.audit.counterfactual.finding_pictures import ClassPrediction, FindingExample
from vitrail.audit.finding import Finding
from vitrail.explain.evidence import Box
from vitrail.report.html import Html, el, format_html, join
from vitrail.report.pages.audit_units import render_unit_table
from vitrail.report.pages.audit_words import NEITHER, describe_readings, format_percent
from vitrail.report.pages.page_elements import (
    draw_box,
    draw_empty_frame,
    draw_heat,
    draw_photo,
    format_number,
    image_from_tensor,
    render_rows,
    store_photo,
)

MODEL_NAMES = {"local": "own model", "shared": "shared model"}


def render_finding(example: FindingExample, at: int, shown: bool, doubted: bool) -> Html:
    """The figures of a finding under a heading; `at` numbers it, `shown` allows pixels."""
    finding = example.finding
    return join(
        [
            el("h3", f"{finding.label}: what the models look at"),
            el("p", _write_sentences(example), class_="soft"),
            _render_pictures(example, at) if shown else _render_places(example),
            render_unit_table(finding),
            _render_readings(finding) if doubted else None,
        ]
    )


def _write_sentences(example: FindingExample) -> str:
    sentences = [f"Tested: {example.finding.spot}."]
    if example.overlap is not None:
        sentences.append(
            "The strongest part of the own and of the shared model share "
            f"{format_percent(example.overlap)} of their boxes (intersection over union)."
        )
    for name, attention in example.seen.items():
        if attention.inside is not None:
            share = format_percent(attention.inside)
            sentences.append(f"Attention of the {_name_model(name)} in that place: {share}.")
    return " ".join(sentences)


def _name_model(model: str) -> str:
    return MODEL_NAMES.get(model, f"model of {model}")


def _render_pictures(example: FindingExample, at: int) -> Html:
    """MyTH's figures 4 and 5 and the counterfactuals, on one typical image of the site."""
    label = example.finding.label
    size = _get_size(example)
    stored = [
        store_photo(f"a{at}{name}", image_from_tensor(pixels), size)
        for name, pixels in example.pictures.items()
    ]
    mark = None if example.region is None else draw_box(example.region)
    figures = [
        _render_figure(
            draw_photo(f"a{at}own", size, f"an image of {label} with the tested place", mark),
            format_html("an image of {}, in the middle of its class by effect", el("b", label)),
            example.said["own"],
        )
    ]
    for name, attention in example.seen.items():
        label_text = f"where unit {attention.unit} of the {_name_model(name)} is active"
        drawn = draw_photo(
            f"a{at}own",
            size,
            label_text,
            draw_box(attention.box),
            draw_heat(attention.map, (0, 0, size[1], size[0])),
        )
        figures.append(_render_figure(drawn, f"{_name_model(name)}: its strongest part"))
    other = example.other_label
    for name, text in (
        ("covered", f"the same image, the place {example.finding.undone}"),
        ("other", f"an image of {other}"),
        ("swapped", f"the same image of {other}, the place put in"),
    ):
        drawn = draw_photo(f"a{at}{name}", size, text, None if name == "other" else mark)
        figures.append(_render_figure(drawn, text, example.said[name]))
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
        answers = [el("td", _format_answer(said)) for said in example.said[name].values()]
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
    drawn: Html, caption: object, predictions: Mapping[str, ClassPrediction] | None = None
) -> Html:
    lines = [
        el("div", el("span", _name_model(name)), el("span", _format_answer(said)), class_="answers")
        for name, said in (predictions or {}).items()
    ]
    return el("figure", drawn, el("figcaption", caption, *lines))


def _format_answer(prediction: ClassPrediction) -> str:
    return f"{prediction.predicted} {format_number(100 * prediction.probability, 0)} %"


def _render_readings(finding: Finding) -> Html:
    cards = []
    for name, text, supported in describe_readings(finding):
        head = f"{name}: what the numbers support" if supported else name
        cards.append(el("div", el("h4", head), text, class_="yes" if supported else None))
    neither = el("p", NEITHER) if finding.reading == "open" else None
    return join([neither, el("div", *cards, class_="readings")])


def _get_size(example: FindingExample) -> tuple[int, int]:
    height, width = example.pictures["own"].shape[1:]
    return int(height), int(width)
