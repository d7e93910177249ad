"""Who came to a federation, declined and left."""

from __future__ import annotations

from vitrail.engine.storage.roster_log import RosterEvent, RosterLog


def test_events_come_back_in_order_and_a_torn_line_is_skipped(tmp_path) -> None:
    log = RosterLog(tmp_path / "server" / "roster.jsonl")
    assert log.read() == []
    log.add(0, "north", "joined")
    log.add(3, "west", "declined", why="the operator said no")
    with log.path.open("a") as handle:
        handle.write('{"round": 4, "site": "ea')
    assert log.read() == [
        RosterEvent(0, "north", "joined"),
        RosterEvent(3, "west", "declined", "the operator said no"),
    ]
