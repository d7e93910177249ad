"""The page Ask: an image, what the model says to it, why, and what it would say otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from vitrail.errors import DataError, RunError
from vitrail.explain.evidence import OTHER, Contribution
from vitrail.live.catalog import LiveRun
from vitrail.live.layout import render_live_page
from vitrail.live.question import LinkedQuestion, write_switch
from vitrail.live.uploads import Uploads
from vitrail.report.html import Html, el, format_html, join, make_screen_reader_text
from vitrail.report.pages.evidence_page import round_contributions
from vitrail.report.pages.page_elements import (
    draw_bar,
    format_number,
    image_from_array,
    to_data_uri,
)
from vitrail.report.training_patches import Patches
from vitrail.runs.ask_model import Answer, Question
from vitrail.runs.open_image import OpenedImage, open_any_image

_LISTED = 6  # classes whose probability is shown


def open_linked_image(live: LiveRun, uploads: Uploads, image: str) -> tuple[str, OpenedImage]:
    """The image of an address: one of the run's test images, or one that was dropped."""
    kind, _, key = image.partition("-")
    if kind == "up":
        name, data = uploads.get(key)
        return name, open_any_image(live.run, data, name)
    if kind == "test" and key.isascii() and key.isdecimal():
        rows, words = live.list_test_rows()
        if int(key) not in rows.tolist():
            raise DataError("there is no such test image here")
        if not live.may_see:
            raise DataError("images of sites are not shown", hint="Start with --site NAME.")
        pixels = np.asarray(live.load_federation().images.images[int(key)])
        size = (pixels.shape[0], pixels.shape[1])
        return f"image {key} of {words}", OpenedImage(size, pixels, image_from_array(pixels))
    raise DataError("no image was chosen", hint="Drop one, or choose a test image.")


def answer_question(live: LiveRun, uploads: Uploads, asked: LinkedQuestion) -> Answer:
    """Ask the chosen model what an address asks."""
    asker = live.choose_asker(asked.model)
    live.calibrate_soon(asker)
    _, image = open_linked_image(live, uploads, asked.image)
    paste = None
    if asked.how == "paste" and asked.paste:
        _, paste = open_linked_image(live, uploads, asked.paste)
    cover = asked.cover if asked.how != "paste" or paste is not None else ()
    return asker(
        Question(
            image, cover, asked.how, paste, asked.without, asked.pull, asked.classes, asked.top
        )
    )


def render_ask_page(live: LiveRun, asked: LinkedQuestion, fragment: Html | None) -> str:
    """The whole page around an answer."""
    asked = asked if asked.image else replace(asked, image=_choose_first(live))
    stage = el(
        "section",
        el(
            "div",
            el("img", id="photo", alt="The image that is asked about", draggable="false"),
            el("div", id="overlay"),
            class_="stage",
            id="stage",
            data_run=live.name,
            data_image=asked.image,
        ),
        el("p", "Drag over the image to paint over a region.", class_="soft hint"),
        el("ul", id="regions", class_="regions", aria_label="Painted regions"),
        _render_controls(live, asked),
        aria_label="Image",
        class_="ask-left",
    )
    answer = el(
        "section",
        fragment or el("p", "Drop an image to begin.", class_="soft"),
        id="answer",
        aria_label="Answer",
        aria_busy="false",
    )
    lead = el("p", "Drop an image, see why, and argue: numbers follow at once.", class_="lead")
    body: list[Html | None] = [el("div", stage, answer, class_="ask")]
    return render_live_page("Ask", "ask", live.address, body, lead)


def _choose_first(live: LiveRun) -> str:
    """The first test image that may be shown, if there is one."""
    try:
        rows, _ = live.list_test_rows()
    except (RunError, DataError, OSError):
        return ""
    return f"test-{int(rows[0])}" if len(rows) and live.may_see else ""


def _render_controls(live: LiveRun, asked: LinkedQuestion) -> Html:
    kinds = live.list_models()
    models = [el("option", k, value=k, selected=k == asked.model) for k in kinds]
    modes = [
        el("option", words, value=key, selected=key == asked.how)
        for key, words in (
            ("blur", "fill from around"),
            ("cover", "cover with the mean"),
            ("paste", "paste from another image"),
        )
    ]
    return el(
        "form",
        el("label", "Choose an image (DICOM too) ", el("input", type="file", id="file")),
        el("label", "Painting ", el("select", *modes, id="how")),
        el(
            "label",
            "Paste from ",
            el("input", type="file", id="paste"),
            id="paste-row",
            hidden=True,
        ),
        el("label", "Model ", el("select", *models, id="model")),
        el(
            "label",
            "Pull of other classes ",
            el("input", type="range", id="pull", min="0", max="2", step="0.1", value=asked.pull),
            el("output", f"{asked.pull:g}", id="pull-value", for_="pull"),
        ),
        el("label", "Compare with ", el("input", type="file", id="other")),
        el(
            "div",
            el("button", "Add a region", type="button", id="add"),
            el("button", "Start over", type="button", id="reset"),
            class_="buttons",
        ),
        id="controls",
        class_="controls",
        aria_label="What to change",
    )


def render_answer(live: LiveRun, asked: LinkedQuestion, answer: Answer) -> Html:
    """The part of the page that follows every change; its data tell the script what to draw."""
    entry = answer.evidence[0]
    marks = draw_marks(answer, asked)
    asker = live.choose_asker(asked.model)
    is_soon = live.calibrate_soon(asker)
    patches = live.find_patches(asker) if answer.has_parts else Patches("")
    links = [
        el(
            "a",
            kind.upper(),
            href=f"{live.address}/answer.{kind}?{asked.to_query()}",
            download="",
        )
        for kind in ("json", "csv", "png", "svg")
    ]
    return join(
        [
            el("template", marks, data_overlay=True),
            el(
                "div",
                el(
                    "div",
                    el("span", "predicted", class_="soft"),
                    el("p", entry.name, class_="answer", id="predicted"),
                    el("p", _describe_confidence(answer), class_="soft"),
                ),
                _render_seen(answer),
                class_="ask-head",
                data_again=is_soon,
            ),
            _render_chances(answer, asked),
            _render_evidence(answer, patches),
            _render_off(asked),
            el("p", "Download ", join(links, " \N{MIDDLE DOT} "), class_="soft downloads"),
        ]
    )


def _describe_confidence(answer: Answer) -> str:
    sure = f"{100 * answer.confidence:.1f} % sure"
    if answer.calibration is None:
        return f"{sure}, not calibrated \N{MIDDLE DOT} {answer.model}"
    c = answer.calibration
    return (
        f"{sure}, calibrated on {c.images} {c.source} (temperature {c.temperature:.2f}) "
        f"\N{MIDDLE DOT} {answer.model}"
    )


def _render_seen(answer: Answer) -> Html:
    source = to_data_uri(image_from_array(answer.seen))
    picture = el("img", src=source, alt="What the model saw, painted over", class_="seen")
    return el("figure", picture, el("figcaption", "what the model saw"))


def _render_chances(answer: Answer, asked: LinkedQuestion) -> Html:
    shown = answer.calibrated or answer.probabilities
    ranked = sorted(range(len(shown)), key=lambda c: -shown[c])
    chosen = ranked[:_LISTED] + [c for c in ranked[_LISTED:] if answer.classes[c] in asked.classes]
    rows: list[Html] = []
    for label in chosen:
        share = 100 * shown[label]
        bar = el("span", el("i", style=f"width:{share:.1f}%"), class_="track", aria_hidden="true")
        name = el(
            "button", answer.classes[label], type="button", class_="why",
            data_why=answer.classes[label],
            title="Why this class?", id=f"why-{label}",
            aria_pressed="true" if answer.classes[label] in asked.classes else "false",
        )  # fmt: skip
        rows += [el("dt", name), el("dd", bar), el("dd", f"{share:.1f} %", class_="share")]
    left = len(shown) - len(chosen)
    more = el("small", f"{left} more classes") if left > 0 else None
    return join([el("dl", *rows, class_="chances"), more])


def _render_evidence(answer: Answer, patches: Patches) -> Html:
    blocks = []
    for entry, switches in zip(answer.evidence, answer.switches):
        shown = round_contributions(entry) if answer.has_parts else [entry.logit]
        largest = max((abs(v) for v in (shown[:-1] if answer.has_parts else shown)), default=0.0)
        rows = [
            _render_row(at, row, value, largest, switch, entry.name, patches)
            for at, (row, value, switch) in enumerate(
                zip(entry.contributions, shown, switches, strict=True)
            )
        ]
        total = el(
            "div",
            el("span", "sum, which is the logit"),
            el("span", class_="bar-cell"),
            el("b", format_number(round(sum(shown), 3)), class_="value", data_logit=True),
            el("span"),
            class_="part total",
        )
        note = None
        if not answer.has_parts:
            note = el("p", "This model has no parts: the map shows where it looks.", class_="soft")
        title = f"Why {entry.name}"
        blocks.append(
            el("div", el("h2", title), note, *rows, total, class_="why-block", data_sum=True)
        )
    return join(blocks)


def _render_row(
    at: int,
    row: Contribution,
    value: float,
    largest: float,
    switch: int | tuple[int, int] | None,
    class_name: str,
    patches: Patches,
) -> Html:
    if row.part == OTHER:
        words: object = f"{row.units} more parts"
    else:
        name = row.part.removesuffix(f" of class {class_name}")
        words = name if row.box is None else join([el("b", at + 1, class_="number-tag"), " ", name])
    terms = None
    if row.score is not None and row.weight is not None and row.part != "whole image":
        terms = el(
            "small",
            f"{format_number(row.score)} \N{MULTIPLICATION SIGN} {format_number(row.weight)}",
        )
    button = el("span")
    if switch is not None:
        key = write_switch(switch)
        button = el(
            "button", "Off", make_screen_reader_text(f": {row.part}"), type="button",
            data_off=key, id=f"off-{class_name}-{key}", class_="small",
        )  # fmt: skip
    return el(
        "div",
        el("span", _render_patch(row, patches), el("span", words, terms), class_="part-name"),
        el("span", draw_bar(value, largest), class_="bar-cell"),
        el("span", format_number(value), class_="value", data_value=True),
        button,
        class_="part",
    )


def _render_patch(row: Contribution, patches: Patches) -> Html | None:
    """The training patch that a part was learned from, cut out of its image."""
    patch = patches.get(None if row.map is None else row.unit)
    if patch is None:
        return None
    x0, y0, x1, y1 = patch.box
    cut = image_from_array(patch.pixels).crop((x0, y0, x1, y1))
    cut.thumbnail((96, 96))
    return el("img", src=to_data_uri(cut), alt=f"learned from: {row.part}", class_="patch",
              title="the training patch that this part was learned from")  # fmt: skip


def _render_off(asked: LinkedQuestion) -> Html | None:
    if not asked.without:
        return None
    buttons = []
    for item in asked.without:
        words = f"place {item[0]}, {item[1]}" if isinstance(item, tuple) else f"unit {item}"
        key = write_switch(item)
        buttons.append(
            el(
                "li",
                el("button", f"{words}: switch on", type="button", data_on=key, id=f"on-{key}"),
            )
        )
    return join([el("h2", "Switched off"), el("ul", *buttons, class_="regions")])


def draw_marks(answer: Answer, asked: LinkedQuestion) -> Html:
    """Boxes of parts and painted regions in the coordinates of the original."""
    height, width = answer.size
    shapes: list[Html] = []
    for x0, y0, x1, y1 in asked.cover:
        shapes.append(el("rect", class_="painted", x=x0, y=y0, width=x1 - x0, height=y1 - y0))
    for at, row in enumerate(answer.evidence[0].contributions):
        if row.box is not None and row.contribution > 0:
            x0, y0, x1, y1 = row.box
            place = {"x": x0, "y": y0, "width": x1 - x0, "height": y1 - y0}
            shapes.append(el("rect", class_="edge", **place))
            shapes.append(el("rect", class_="box", **place))
            size = max(8.0, 0.05 * width)
            shapes.append(
                el(
                    "text",
                    at + 1,
                    class_="tag-text",
                    x=x0 + 0.2 * size,
                    y=y0 + size,
                    font_size=size,
                )
            )
    return el(
        "svg", *shapes, viewBox=f"0 0 {width} {height}", preserveAspectRatio="none",
        role="img", aria_label=f"{len(asked.cover)} painted regions, parts in boxes",
    )  # fmt: skip


def render_comparison(live: LiveRun, name: str, image: OpenedImage, answer: Answer) -> Html:
    """Another image beside the first, as the same model sees it."""
    del live
    picture = el(
        "img", src=to_data_uri(image.shown), alt=f"The other image: {name}", class_="other"
    )
    plain = LinkedQuestion()
    return el(
        "div",
        el("h2", "The other image"),
        el(
            "div",
            el("figure", picture, el("figcaption", name)),
            el(
                "div",
                el("p", answer.predicted, class_="answer"),
                el("p", _describe_confidence(answer), class_="soft"),
                _render_chances(answer, plain),
            ),
            class_="summary",
        ),
        class_="compare",
    )


def describe_error(error: Exception) -> Html:
    """One sentence in the place of an answer."""
    return el("p", format_html("{}", str(error)), class_="note", role="alert")
