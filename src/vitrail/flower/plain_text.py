"""Text that came over a wire, made safe for terminals and logs."""

from __future__ import annotations

import re

# control characters, and marks that change the direction in which a line is read
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def clean_text(text: str, longest: int = 2000) -> str:
    """One line without control characters or hidden marks, of bounded length."""
    return _UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)[:longest]
