"""The words that a coordinator was started with, kept in its folder: who goes on says the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from vitrail.files import write_json

_FILE = "command.json"
_HEAD = ["flower", "server"]


def keep_command(folder: Path, words: Sequence[str]) -> None:
    """Keep what comes after `vitrail flower server`; paths are absolute, nothing is secret."""
    write_json(folder / "server" / _FILE, [*_HEAD, *words])


def read_command(folder: Path) -> list[str]:
    """The words that go on with a coordinator's run; none where they are not known."""
    try:
        words = json.loads((folder / "server" / _FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    is_command = isinstance(words, list) and all(isinstance(word, str) for word in words)
    is_known = is_command and words[:2] == _HEAD and "--allow-plugins" not in words
    return words if is_known else []  # that permission is a user's to give, never a folder's
