"""`log.txt`: an entry a line with its time, as a sentence or as a JSON object.

The first line decides for the whole file. So every process that appends to a log, now and after a
restart, writes what whoever reads it expects.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from vitrail.files import report_write_errors

LOG_FILE = "log.txt"
_STAMP, _PLAIN_STAMP = "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d %H:%M:%S"


def begin_log(path: Path, as_json: bool) -> None:
    """Begin a log; one that exists goes on in the form it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with report_write_errors(path), path.open("a", encoding="utf-8") as handle:
        if as_json and not handle.tell():
            handle.write(_format_json("the log begins", {}))


def is_json_log(path: Path) -> bool:
    """Whether a log holds JSON lines; one that holds nothing yet does not."""
    try:
        with path.open("rb") as handle:
            return handle.read(1) == b"{"
    except OSError:
        return False


def append_log(path: Path, text: str, **facts: Any) -> None:
    """Append an entry; `facts` are told in a log of JSON lines only."""
    if is_json_log(path):
        line = _format_json(text, facts)
    else:
        line = f"{time.strftime(_PLAIN_STAMP)} {text}\n"
    with (
        report_write_errors(path),
        path.open("a", encoding="utf-8", errors="backslashreplace") as handle,
    ):
        handle.write(line)


def read_log(path: Path) -> list[str]:
    """The entries of a log as sentences, each with its time, whatever its form."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [_to_sentence(line) for line in lines] if is_json_log(path) else lines


def _to_sentence(line: str) -> str:
    """A JSON line as a sentence; a line that is none, as it is."""
    try:
        entry = json.loads(line)
        stamp = time.strptime(entry["time"], _STAMP)
        return f"{time.strftime(_PLAIN_STAMP, stamp)} {entry['text']}"
    except (ValueError, TypeError, KeyError):
        return line


def _format_json(text: str, facts: dict[str, Any]) -> str:
    stamp = time.strftime(_STAMP)
    return json.dumps({"time": stamp, **facts, "text": text}) + "\n"
