"""HTML that is safe by construction: text is escaped unless it is markup already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"meta", "link", "br", "col", "input", "img"})
_SHAPES = frozenset({"rect", "path", "circle", "line", "image", "use", "feColorMatrix"})


class Html(str):
    """Text that is markup; plain text becomes markup only through this module."""

    __slots__ = ()


def to_html(text: object) -> Html:
    """Markup as it is, anything else escaped."""
    return text if isinstance(text, Html) else Html(escape(str(text)))


def el(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. `class_` is `class`, `aria_label` is `aria-label`; None and False are nothing."""
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        written.append(f" {attribute}" if value is True else f' {attribute}="{escape(str(value))}"')
    head = f"<{name}{''.join(written)}>"
    if name in _SHAPES and not children:
        return Html(f"{head[:-1]}/>")
    return Html(head if name in _VOID else f"{head}{join(children)}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Several pieces as one; None is nothing."""
    return Html(escape(between).join(to_html(part) for part in parts if part is not None))


def format_html(text: str, *values: object) -> Html:
    """A sentence with `{}` where values go; markup among them stays markup."""
    return Html(escape(text).format(*(to_html(value) for value in values)))


def make_screen_reader_text(text: object) -> Html:
    """Text for those who listen."""
    return el("span", text, class_="hide")
