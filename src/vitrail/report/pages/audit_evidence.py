"""The evidence for one finding: pictures side by side, or the same places without any pixel."""

from __future__ import annotations

from html import escape

import numpy as np
from PIL import Image
from torch import Tensor

from vitrail.audit.counterfactual.finding_pictures import ClassPrediction, FindingExample
from vitrail.audit.finding import Finding
from vitrail.explain.evidence import Box
from vitrail.report.pages.audit_figures import draw_empty_frame
from vitrail.report.pages.audit_units import render_unit_table
from vitrail.report.pages.audit_words import NEITHER, describe_readings, format_percent
from vitrail.report.pages.page_elements import (
    draw_box,
    draw_heat,
    draw_photo,
    format_number,
    store_photo,
)

MODEL_NAMES = {"local": "own model", "shared": "shared model"}


def render_finding(example: FindingExample, at: int, shown: bool, doubted: bool) -> str:
    """The figures of a finding under a heading; `at` numbers it, `shown` allows pixels."""
    finding = example.finding
    body = _render_pictures(example, at) if shown else _render_places(example)
    both = render_unit_table(finding) + (_render_readings(finding) if doubted else "")
    return (
        f"<h3>{escape(finding.label)}: what the models look at</h3>"
        f'<p class="soft">{escape(_write_sentences(example))}</p>{body}{both}'
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


def _render_pictures(example: FindingExample, at: int) -> str:
    """MyTH's figures 4 and 5 and the counterfactuals, on one typical image of the site."""
    label = example.finding.label
    size = _get_size(example)
    stored = "".join(
        store_photo(f"a{at}{name}", _make_photo(pixels), size)
        for name, pixels in example.pictures.items()
    )
    mark = "" if example.region is None else draw_box(example.region)
    figures = [
        _render_figure(
            draw_photo(f"a{at}own", size, f"an image of {label} with the tested place", mark),
            f"an image of <b>{escape(label)}</b>, in the middle of its class by effect",
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
        figures.append(
            _render_figure(drawn, f"{escape(_name_model(name))}: its strongest part of the class")
        )
    for name, text in (
        ("covered", f"the same image, the place {example.finding.undone}"),
        ("other", f"an image of <b>{escape(example.other_label)}</b>"),
        ("swapped", f"the same image of {escape(example.other_label)}, the place put in"),
    ):
        plain = text.replace("<b>", "").replace("</b>", "")
        shown = mark if name != "other" else ""
        drawn = draw_photo(f"a{at}{name}", size, _unescape(plain), shown)
        figures.append(_render_figure(drawn, text, example.said[name]))
    return f'{stored}<div class="looks">{"".join(figures)}</div>'


def _unescape(markup: str) -> str:
    """Text of a caption whose names were escaped once; `draw_photo` escapes again."""
    return markup.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _render_places(example: FindingExample) -> str:
    """The same without pixels: boxes of every image in an empty frame, and what was said."""
    size, label = _get_size(example), example.finding.label
    count = len(example.finding.rows)
    figures = []
    for name, attention in example.seen.items():
        caption = f"where the {_name_model(name)} looks in {count} images of {label}"
        drawn = draw_empty_frame(
            size, attention.boxes, _compute_median_box(attention.boxes), caption
        )
        figures.append(_render_figure(drawn, escape(caption)))
    rows = "".join(
        f"<tr><td>{escape(text)}</td>"
        + "".join(
            f"<td>{_format_answer(prediction)}</td>" for prediction in example.said[name].values()
        )
        + "</tr>"
        for name, text in (
            ("own", f"a typical image of {label}"),
            ("covered", f"the place {example.finding.undone}"),
            ("other", f"an image of {example.other_label}"),
            ("swapped", "with the place put in"),
        )
    )
    heads = "".join(f"<th>{escape(_name_model(name))}</th>" for name in example.said["own"])
    return (
        f'<div class="looks">{"".join(figures)}</div><div class="wide"><table class="audit">'
        f"<thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="soft">Images are not shown, so that this page can be shared; '
        "<code>--with-images</code> shows them.</p>"
    )


def _compute_median_box(boxes: tuple[Box, ...]) -> Box:
    edges = np.sort(np.array(boxes), axis=0)[(len(boxes) - 1) // 2]
    return int(edges[0]), int(edges[1]), int(edges[2]), int(edges[3])


def _render_figure(drawn: str, caption: str, predictions: object = None) -> str:
    lines = ""
    if isinstance(predictions, dict):
        lines = "".join(
            f'<div class="said"><span>{escape(_name_model(name))}</span>'
            f"<span>{_format_answer(prediction)}</span></div>"
            for name, prediction in predictions.items()
        )
    return f"<figure>{drawn}<figcaption>{caption}{lines}</figcaption></figure>"


def _format_answer(prediction: ClassPrediction) -> str:
    return f"{escape(prediction.predicted)} {format_number(100 * prediction.probability, 0)} %"


def _render_readings(finding: Finding) -> str:
    cards = []
    for name, text, supported in describe_readings(finding):
        head = f"{name}: what the numbers support" if supported else name
        cards.append(f"<div{' class=yes' if supported else ''}><h4>{head}</h4>{escape(text)}</div>")
    neither = f"<p>{NEITHER}</p>" if finding.reading == "open" else ""
    return f'{neither}<div class="readings">{"".join(cards)}</div>'


def _get_size(example: FindingExample) -> tuple[int, int]:
    height, width = example.pictures["own"].shape[1:]
    return int(height), int(width)


def _make_photo(pixels: Tensor) -> Image.Image:
    """A picture [C, H, W] in 0..1 for the eye."""
    values = (pixels.clamp(0, 1) * 255).round().to("cpu").permute(1, 2, 0).numpy().astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
