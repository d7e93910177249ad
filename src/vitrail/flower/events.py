"""What goes on in a real federation, one event a line: for the screen, for files, for machines.

An event is a JSON object: `time`, `event` (its kind), `text` (a sentence), and `run`, `site`,
`round` and more where they are known. Several processes may append to one file. No torch here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from vitrail.errors import ConfigError, suggest_name
from vitrail.flower.plain_text import clean_text

EVENTS_FILE = "events.jsonl"
LogFormat = Literal["text", "json"]
Event = dict[str, Any]
Show = Callable[[str], None]


def parse_log_format(word: str) -> LogFormat:
    """`text` or `json`."""
    for known in get_args(LogFormat):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise ConfigError(
        f"there is no log format {word!r}",
        where="--log-format",
        hint=suggest_name(word, get_args(LogFormat)),
    )


def make_event(kind: str, text: str, facts: Mapping[str, Any]) -> Event:
    """An event that happens now."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    known = {
        name: clean_text(value) if isinstance(value, str) else value  # it may be from the wire
        for name, value in facts.items()
        if value is not None
    }
    return {"time": stamp, "event": kind, **known, "text": clean_text(text)}


def format_event(event: Event, form: LogFormat) -> str:
    """A line for the screen."""
    return json.dumps(event) if form == "json" else str(event.get("text", ""))


@dataclass(frozen=True)
class EventLog:
    """A file of events; `facts` stand in each. That it cannot be written stops nobody's work."""

    path: Path
    facts: Mapping[str, Any] = field(default_factory=dict)

    def write(self, kind: str, text: str, **facts: Any) -> Event:
        """Append an event, in one piece."""
        event = make_event(kind, text, {**self.facts, **facts})
        self.append(event)
        return event

    def append(self, event: Event) -> None:
        """Append an event that was made before."""
        with suppress(OSError):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(handle, json.dumps(event).encode() + b"\n")
            finally:
                os.close(handle)

    def read(self) -> list[Event]:
        """Every whole event so far."""
        return EventFollower(self.path, 0).read_new()


@dataclass
class EventFollower:
    """Reads what was appended since it looked last; a line that is not whole yet waits."""

    path: Path
    position: int

    @staticmethod
    def from_end(path: Path) -> EventFollower:
        """Only what comes from now on."""
        return EventFollower(path, path.stat().st_size if path.exists() else 0)

    def read_new(self) -> list[Event]:
        """The events that are new; a line that is none is skipped."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as handle:
            handle.seek(self.position)
            raw = handle.read()
        whole = raw[: raw.rfind(b"\n") + 1]
        self.position += len(whole)
        events = []
        for line in whole.splitlines():
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    events.append(event)
        return events


class EventTeller:
    """Shows events as they happen, and keeps them in a file once there is a folder for it."""

    def __init__(self, show: Show, form: LogFormat = "text") -> None:
        self._show = show
        self.form: LogFormat = form
        self._log: EventLog | None = None
        self._before: list[Event] = []

    def keep(self, path: Path, run: str) -> None:
        """From now on events go to a file as well, and those from before go there first."""
        self._log = EventLog(path, {"run": run})
        for event in self._before:
            self._log.append({**event, "run": run})
        self._before = []

    def tell(self, kind: str, text: str, **facts: Any) -> None:
        """Show an event, and keep it."""
        if self._log is not None:
            event = self._log.write(kind, text, **facts)
        else:
            event = make_event(kind, text, facts)
            self._before.append(event)
        self._show(format_event(event, self.form))
