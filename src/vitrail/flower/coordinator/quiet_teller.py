"""Telling an operator of what may happen a hundred times a second, without filling the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_SILENCE = 60.0
_MOST = 20  # subjects a minute: whoever has many addresses fills no log either


@dataclass
class QuietTeller:
    """Tells of each subject at most once a minute, and of so many subjects in it."""

    tell: Callable[[str], None]
    _told: dict[str, float] = field(default_factory=dict, init=False)

    def tell_of(self, subject: str, text: str) -> None:
        """Tell, unless the same subject was told of within the last minute."""
        now = time.monotonic()
        self._told = {name: at for name, at in self._told.items() if now - at < _SILENCE}
        if subject not in self._told and len(self._told) < _MOST:
            self._told[subject] = now
            self.tell(text)
