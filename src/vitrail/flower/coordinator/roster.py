"""The coordinator's record of who came, declined and left; reports read the same file."""

from __future__ import annotations

from vitrail.engine.storage.roster_log import ROSTER_FILE, RosterEvent, RosterLog

__all__ = ["ROSTER_FILE", "RosterEvent", "RosterLog"]
