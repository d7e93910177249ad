"""Numbers to places: ticks a person would choose, labels that fit, text that is cut to a width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitrail.engine.release_summary import format_size
from vitrail.report.pages.page_elements import format_number

_LETTER = 0.56  # of the font size: the mean width of a letter in the fonts of screens


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
    """About how wide a text is drawn."""
    return len(text) * font * _LETTER


def shorten_text(text: str, room: float, font: float) -> str:
    """A text that fits a width, shortened in the middle where it must be."""
    plain_text = " ".join(text.split()) or "(no name)"
    most = max(3, int(room / (font * _LETTER)))
    if len(plain_text) <= most:
        return plain_text
    head = (most - 1) * 2 // 3
    return f"{plain_text[:head]}…{plain_text[len(plain_text) - (most - 1 - head) :]}"
