"""Letters for pictures: the machine's own font, else the one that comes with Pillow."""

from __future__ import annotations

import functools
import unicodedata

from PIL import ImageFont

Font = ImageFont.FreeTypeFont
# wide coverage first; names are looked up in the system's folders of fonts
_NAMES = (("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"), ("NotoSans-Regular.ttf", "NotoSans-Bold.ttf"),
          ("LiberationSans-Regular.ttf", "LiberationSans-Bold.ttf"),
          ("Arial.ttf", "Arial Bold.ttf"), ("arial.ttf", "arialbd.ttf"))  # fmt: skip
_PLAIN = {"\N{MULTIPLICATION SIGN}": "x", "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-"}


@functools.lru_cache(maxsize=128)
def load_font(size: int, bold: bool = False) -> Font | None:
    """A font of the system; None where none of those that are looked for is there."""
    for names in _NAMES:
        try:
            return ImageFont.truetype(names[bold], size)
        except OSError:
            continue
    return None


@functools.lru_cache(maxsize=128)
def _load_packed(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def choose_font(
    text: str, size: int, bold: bool = False
) -> tuple[str, ImageFont.FreeTypeFont | ImageFont.ImageFont]:
    """A font, and the text as it can write it: the packed one knows plain letters only."""
    font = load_font(max(1, size), bold)
    if font is not None:
        return text, font
    return to_plain_letters(text), _load_packed(max(1, size))


def to_plain_letters(text: str) -> str:
    """Accents taken off, signs written as letters, and a question mark for what is left."""
    plain = unicodedata.normalize("NFKD", "".join(_PLAIN.get(letter, letter) for letter in text))
    kept = (letter for letter in plain if not unicodedata.combining(letter))
    return "".join(c if c.isascii() or c in "\u2026\N{MIDDLE DOT}" else "?" for c in kept)
