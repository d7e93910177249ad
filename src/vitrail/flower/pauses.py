"""How often to look for what may come at any time: often at first, seldom after a long wait."""

from __future__ import annotations

_SHORTEST, _LONGEST = 0.1, 2.0
_SHARE = 0.05


def choose_pause(waited: float) -> float:
    """Seconds until the next look: a twentieth of what was waited already, within bounds. So a
    wait of hours costs few looks, and no wait is much longer than it had to be."""
    return min(_LONGEST, max(_SHORTEST, _SHARE * waited))
