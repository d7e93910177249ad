"""The evidence for one finding: pictures side by side, or the same places without any pixel."""

from __future__ import annotations

from html import escape

import numpy as np
from PIL import Image
from torch import Tensor

from vitrail.audit.finding import Finding
from vitrail.audit.look import Look, Said
from vitrail.explain.evidence import Box
from vitrail.report.audit_figures import empty_frame
from vitrail.report.audit_units import unit_table
from vitrail.report.audit_words import NEITHER, percent, readings
from vitrail.report.evidence_html import drawing, framed, heat, number, store

NAMES = {"local": "own model", "shared": "shared model"}


def evidence_of(look: Look, at: int, shown: bool, doubted: bool) -> str:
    """The figures of a finding under a heading; `at` numbers it, `shown` allows pixels."""
    finding = look.finding
    body = _pictures(look, at) if shown else _places(look)
    both = unit_table(finding) + (_readings(finding) if doubted else "")
    return (
        f"<h3>{escape(finding.label)}: what the models look at</h3>"
        f'<p class="soft">{escape(_told(look))}</p>{body}{both}'
    )


def _told(look: Look) -> str:
    told = [f"Tested: {look.finding.spot}."]
    if look.overlap is not None:
        told.append(
            "The strongest part of the own and of the shared model share "
            f"{percent(look.overlap)} of their boxes (intersection over union)."
        )
    for name, seen in look.seen.items():
        if seen.inside is not None:
            told.append(f"Attention of the {_name(name)} in that place: {percent(seen.inside)}.")
    return " ".join(told)


def _name(model: str) -> str:
    return NAMES.get(model, f"model of {model}")


def _pictures(look: Look, at: int) -> str:
    """MyTH's figures 4 and 5 and the counterfactuals, on one typical image of the site."""
    label = look.finding.label
    size = _size(look)
    stored = "".join(
        store(f"a{at}{name}", _photo(pixels), size) for name, pixels in look.pictures.items()
    )
    mark = "" if look.region is None else framed(look.region)
    figures = [
        _figure(
            drawing(f"a{at}own", size, f"an image of {label} with the tested place", mark),
            f"an image of <b>{escape(label)}</b>, in the middle of its class by effect",
            look.said["own"],
        )
    ]
    for name, seen in look.seen.items():
        what = f"where unit {seen.unit} of the {_name(name)} is active"
        drawn = drawing(
            f"a{at}own", size, what, framed(seen.box), heat(seen.map, (0, 0, size[1], size[0]))
        )
        figures.append(_figure(drawn, f"{escape(_name(name))}: its strongest part of the class"))
    for name, text in (
        ("covered", f"the same image, the place {look.finding.undone}"),
        ("other", f"an image of <b>{escape(look.other_label)}</b>"),
        ("swapped", f"the same image of {escape(look.other_label)}, the place put in"),
    ):
        plain = text.replace("<b>", "").replace("</b>", "")
        shown = mark if name != "other" else ""
        drawn = drawing(f"a{at}{name}", size, _plain(plain), shown)
        figures.append(_figure(drawn, text, look.said[name]))
    return f'{stored}<div class="looks">{"".join(figures)}</div>'


def _plain(markup: str) -> str:
    """Text of a caption whose names were escaped once; `drawing` escapes again."""
    return markup.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _places(look: Look) -> str:
    """The same without pixels: boxes of every image in an empty frame, and what was said."""
    size, label = _size(look), look.finding.label
    count = len(look.finding.rows)
    figures = []
    for name, seen in look.seen.items():
        told = f"where the {_name(name)} looks in {count} images of {label}"
        drawn = empty_frame(size, seen.boxes, _middle(seen.boxes), told)
        figures.append(_figure(drawn, escape(told)))
    rows = "".join(
        f"<tr><td>{escape(text)}</td>"
        + "".join(f"<td>{_answer(said)}</td>" for said in look.said[name].values())
        + "</tr>"
        for name, text in (
            ("own", f"a typical image of {label}"),
            ("covered", f"the place {look.finding.undone}"),
            ("other", f"an image of {look.other_label}"),
            ("swapped", "with the place put in"),
        )
    )
    heads = "".join(f"<th>{escape(_name(name))}</th>" for name in look.said["own"])
    return (
        f'<div class="looks">{"".join(figures)}</div><div class="wide"><table class="audit">'
        f"<thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
        '<p class="soft">Images are not shown, so that this page can be shared; '
        "<code>--with-images</code> shows them.</p>"
    )


def _middle(boxes: tuple[Box, ...]) -> Box:
    edges = np.sort(np.array(boxes), axis=0)[(len(boxes) - 1) // 2]
    return int(edges[0]), int(edges[1]), int(edges[2]), int(edges[3])


def _figure(drawn: str, caption: str, said: object = None) -> str:
    lines = ""
    if isinstance(said, dict):
        lines = "".join(
            f'<div class="said"><span>{escape(_name(name))}</span><span>{_answer(one)}</span></div>'
            for name, one in said.items()
        )
    return f"<figure>{drawn}<figcaption>{caption}{lines}</figcaption></figure>"


def _answer(said: Said) -> str:
    return f"{escape(said.predicted)} {number(100 * said.probability, 0)} %"


def _readings(finding: Finding) -> str:
    cards = []
    for name, text, supported in readings(finding):
        head = f"{name}: what the numbers support" if supported else name
        cards.append(f"<div{' class=yes' if supported else ''}><h4>{head}</h4>{escape(text)}</div>")
    neither = f"<p>{NEITHER}</p>" if finding.reading == "open" else ""
    return f'{neither}<div class="readings">{"".join(cards)}</div>'


def _size(look: Look) -> tuple[int, int]:
    height, width = look.pictures["own"].shape[1:]
    return int(height), int(width)


def _photo(pixels: Tensor) -> Image.Image:
    """A picture [C, H, W] in 0..1 for the eye."""
    values = (pixels.clamp(0, 1) * 255).round().to("cpu").permute(1, 2, 0).numpy().astype(np.uint8)
    return Image.fromarray(values[..., 0] if values.shape[2] == 1 else values)
