"""Text files of words separated by blanks, as the public data sets use them."""

from __future__ import annotations

from pathlib import Path

from vitrail.errors import DataError


def read_lines(path: Path, least: int, most: int | None = None) -> list[list[str]]:
    """The words of every line that is not blank; `most` keeps the last word whole."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as err:
        raise DataError(f"cannot be read ({err.strerror})", where=str(path)) from err
    rows: list[list[str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split() if most is None else line.split(maxsplit=most - 1)
        if not words:
            continue
        if len(words) < least:
            raise DataError(
                f"line {number} has {len(words)} words, {least} are needed", where=str(path)
            )
        rows.append([word.strip() for word in words])
    return rows
