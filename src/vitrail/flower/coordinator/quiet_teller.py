"""Telling an operator of what may happen a hundred times a second, without filling the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

_SILENCE = 60.0


@dataclass
class QuietTeller:
    """Tells of each subject at most once a minute."""

    tell: Callable[[str], None]
    _told: dict[str, float] = field(default_factory=dict, init=False)

    def tell_of(self, subject: str, text: str) -> None:
        """Tell, unless the same subject was told of within the last minute."""
        now = time.monotonic()
        if now - self._told.get(subject, -_SILENCE) >= _SILENCE:
            self._told[subject] = now
            self.tell(text)
