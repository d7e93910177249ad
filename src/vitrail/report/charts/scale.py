"""Numbers to places: ticks a person would choose, labels that fit, text that is cut to a width."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.engine.release_summary import format_size
from vitrail.report.pages.page_elements import format_number

# Widths of letters as shares of the font size, of the widest of the fonts that screens use: a name
# that is wider than was thought loses its first letters at the edge of the sheet.
_NARROW, _THIN, _WIDE = "iljI'.,:;|!", 'ftr()[]{}-/ "`*', "mwMW@%\u2026\u2014"
LETTER = 0.64  # of most letters and of digits


@dataclass(frozen=True)
class Scale:
    """A straight map from low..high to start..end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value; a domain of one point lies in the middle."""
        if self.high == self.low:
            return (self.start + self.end) / 2
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def choose_ticks(low: float, high: float, most: int = 6, whole: bool = False) -> list[float]:
    """Round numbers from low to high, at most `most`; `whole` allows no fractions."""
    if not (math.isfinite(low) and math.isfinite(high)) or high < low:
        return []
    if high == low:
        return [low]
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw * (1 - 1e-9))
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def pad_range(values: Sequence[float], share: float = 0.06) -> tuple[float, float]:
    """The range of values with a little room; of equal ones, a little around them."""
    low, high = min(values), max(values)
    room = (high - low) * share or abs(high) * share or 0.05
    return low - room, high + room


def format_tick(value: float) -> str:
    """A tick as people write it."""
    text = f"{value:,.6g}" if abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "\N{MINUS SIGN}")


def format_percent(value: float | None, places: int = 1) -> str:
    """A share of one in percent; a dash for nothing."""
    return "\N{EN DASH}" if value is None else f"{format_number(100 * value, places)} %"


def format_value(value: float | None, places: int = 3) -> str:
    """A number, or a dash for nothing."""
    if value is None or not math.isfinite(value):
        return "\N{EN DASH}"
    return format_number(value, places)


def format_bytes(value: float | None) -> str:
    """Bytes for people; a dash for nothing."""
    return "\N{EN DASH}" if value is None else format_size(value)


def format_count(value: float, singular: str, plural: str | None = None) -> str:
    """Such as "1 site" and "1,200 images"."""
    return f"{value:,.0f} {singular if value == 1 else plural or singular + 's'}"


def estimate_width(text: str, font: float) -> float:
    """How wide a text is drawn, at most."""
    return font * sum(map(_estimate_letter, text))


def _estimate_letter(letter: str) -> float:
    if letter in _NARROW:
        return 0.35
    if letter in _THIN:
        return 0.41
    if letter in _WIDE or unicodedata.east_asian_width(letter) in "WF":
        return 1.0
    if unicodedata.combining(letter):
        return 0.0
    is_latin = letter < "\u0250"
    return (0.79 if letter.isupper() else LETTER) if is_latin else 0.9


def shorten_text(text: str, room: float, font: float) -> str:
    """A text that fits a width, shortened in the middle where it must be."""
    plain_text = " ".join(text.split()) or "(no name)"
    if estimate_width(plain_text, font) <= room or len(plain_text) <= 3:
        return plain_text
    kept = len(plain_text) - 1
    while True:
        head = kept * 2 // 3
        short = f"{plain_text[:head]}…{plain_text[len(plain_text) - (kept - head) :]}"
        if kept <= 2 or estimate_width(short, font) <= room:
            return short
        kept -= 1
