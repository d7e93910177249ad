"""What operators see of a federation while it goes on: who came, each round, why it stopped."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading

import pytest

from vitrail.engine.tasks import MissingReply
from vitrail.errors import ConfigError, RunError
from vitrail.flower.coordinator.allowed_routes import ROUTES, AllowedRoutes
from vitrail.flower.coordinator.attendance import Attendance
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import unseal
from vitrail.flower.events import (
    EVENTS_FILE,
    EventFollower,
    EventLog,
    EventTeller,
    parse_log_format,
)
from vitrail.flower.site import site_command
from vitrail.flower.site.site_command import SiteConnection, run_site


def test_a_follower_sees_every_whole_line_once(tmp_path) -> None:
    log = EventLog(tmp_path / "site" / EVENTS_FILE, {"site": "north"})
    follower = EventFollower.from_end(log.path)
    log.write("came", "hello\x1b[31m", round=None)
    with log.path.open("ab") as handle:
        handle.write(b'{"event": "torn"')
    (event,) = follower.read_new()
    assert event["site"] == "north" and "round" not in event and "\x1b" not in event["text"]
    assert follower.read_new() == []
    with log.path.open("ab") as handle:
        handle.write(b', "text": "whole now"}\nnonsense\n')
    assert [event["event"] for event in follower.read_new()] == ["torn"]


def test_the_coordinator_names_who_is_awaited_whenever_that_changes() -> None:
    shown: list[str] = []
    seen = Attendance(EventTeller(shown.append), None, ("east", "north", "west"))
    for present in ((), (), ("north",), ("north",), ("east", "north"), ("east", "north", "west")):
        seen.look(present, 3)
    seen.look(("east", "north"))
    assert shown == [
        "waiting for east, north, west",
        "site north is connected",
        "waiting for east, west",
        "site east is connected",
        "waiting for west",
        "site west is connected",
        "all 3 sites are there",
        "site west is no longer connected",
    ]


def test_without_names_the_coordinator_says_how_many_are_missing() -> None:
    shown: list[str] = []
    Attendance(EventTeller(shown.append)).look((), 2)
    assert shown == ["waiting for 2 more sites"]


def play(birds, root, teller):
    loop = birds.loop(root)

    def late(raw, reply):
        task = unseal(raw).body.get("task")
        return MissingReply("it was too late") if task and task["round"] == 1 else reply

    loop.spoil["west"] = late
    run_federation(loop, birds.coordinator(), root / "run", 3, teller=teller)


def test_both_ends_keep_a_json_line_for_each_event(birds, tmp_path) -> None:
    shown: list[str] = []
    teller = EventTeller(shown.append, "json")
    teller.tell("listening", "listening")  # before there is a folder
    play(birds, tmp_path, teller)
    events = [json.loads(line) for line in shown]
    kept = EventLog(tmp_path / "run" / "server" / EVENTS_FILE).read()
    assert [event["event"] for event in kept] == [event["event"] for event in events]
    assert kept[0]["event"] == "listening" and all(event["run"] for event in kept)
    absent = [event for event in kept if event["event"] == "absent"]
    assert [(e["round"], e["site"], e["why"]) for e in absent] == [(1, "west", "it was too late")]
    assert "site north is connected" in (tmp_path / "run" / "log.txt").read_text()

    own = EventLog(tmp_path / "at-north" / EVENTS_FILE).read()
    kinds = ["joined", "shares", "round", "round", "closing", "finished"]
    assert [e["event"] for e in own] == kinds and own[1]["sites"] == 3
    first = own[2]
    assert first["round"] == 1 and first["bytes"] == 4076 and first["site"] == "north"
    assert 0 <= first["accuracy"] <= 1 and first["loss"] > 0 and first["seconds"] >= 0
    assert first["text"].startswith("round 1: accuracy ") and "4.1 kB left" in first["text"]
    log = (next((tmp_path / "at-north" / "runs").iterdir()) / "log.txt").read_text()
    assert "north takes part in run" in log.splitlines()[0] and first["text"] in log


def test_a_coordinators_log_is_there_before_anybody_came(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    loop.down |= set(loop.stations)
    with pytest.raises(RunError, match="3 sites are expected and 0 came"):
        run_federation(
            loop, birds.coordinator(), tmp_path / "run", 3, patience=0, names=("east", "west")
        )
    assert "waiting for east, west" in (tmp_path / "run" / "log.txt").read_text()


def test_a_declined_run_is_told_at_both_ends(birds, tmp_path) -> None:
    loop, shown = birds.loop(tmp_path), []
    object.__setattr__(
        loop.stations["west"].config, "wait", lambda run, terms, lines, patience: False
    )
    run_federation(loop, birds.coordinator(), tmp_path / "run", 2, teller=EventTeller(shown.append))
    assert any("site west does not take part: it says: the operator" in line for line in shown)
    (event,) = EventLog(tmp_path / "at-west" / EVENTS_FILE).read()
    assert event["event"] == "declined" and "has not agreed" in event["why"]


class NoResident:
    """In place of the process that answers."""

    def __init__(self, *words: object) -> None:
        pass

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


def make_client(act):
    class Client:
        def __init__(self, *words: object) -> None:
            pass

        def serve(self, answer, leaving: threading.Event, tell) -> None:
            act(tell)
            leaving.wait(20)

    return Client


@pytest.fixture
def site(birds, tmp_path, monkeypatch):
    monkeypatch.setattr(site_command, "ResidentProcess", NoResident)
    monkeypatch.setattr(site_command, "_PARTING_SECONDS", 0.0)
    monkeypatch.setattr(site_command, "_POLL_SECONDS", 0.01)
    return SiteConnection(birds.home("north", tmp_path), "127.0.0.1:1")


def test_a_site_that_declines_once_ends_with_an_error(site, monkeypatch) -> None:
    log = EventLog(site.config.folder / EVENTS_FILE, {"site": "north"})
    act = make_client(lambda tell: log.write("declined", "north does not take part", run="x"))
    monkeypatch.setattr(site_command, "FleetClient", act)
    shown: list[str] = []
    with pytest.raises(RunError, match="north does not take part"):
        run_site(site, shown.append, lambda _: False, once=True)
    assert shown[0].startswith("site north: files in ") and "north does not take part" in shown
    assert "north does not take part" in (site.config.folder / "log.txt").read_text()


def test_a_site_that_finishes_once_says_so(site, monkeypatch) -> None:
    def act(tell) -> None:
        tell("nobody answers")
        mark = site.config.folder / "runs" / "x" / "server" / "parted"
        mark.parent.mkdir(parents=True)
        mark.write_text("")

    monkeypatch.setattr(site_command, "FleetClient", make_client(act))
    shown: list[str] = []
    run_site(site, shown.append, lambda _: True, once=True, form="json")
    events = [json.loads(line) for line in shown]
    assert [event["event"] for event in events] == ["started", "connection", "left"]
    assert events[1]["text"] == "nobody answers" and events[-1]["text"] == "finished"
    log = [json.loads(line) for line in (site.config.folder / "log.txt").read_text().splitlines()]
    assert [entry.get("event") for entry in log[1:]] == ["started", "connection", "left"]
    assert log[2]["text"] == "nobody answers" and log[2]["site"] == "north"


def test_a_key_that_is_not_let_in_is_told_once_a_minute() -> None:
    told: list[str] = []

    async def refuse(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": []})

    async def send(event) -> None:
        pass

    routes = AllowedRoutes(refuse, ROUTES, told.append)
    scope = {"type": "http", "path": min(ROUTES), "method": "POST", "client": ("10.0.0.9", 1)}
    for _ in range(3):
        asyncio.run(routes(scope, None, send))
    assert len(told) == 1 and "10.0.0.9" in told[0] and "not registered" in told[0]


def test_an_unknown_log_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no log format 'xml'"):
        parse_log_format("xml")


def test_the_process_that_keeps_the_connection_has_no_torch() -> None:
    code = "import sys, vitrail.flower.site.site_command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
