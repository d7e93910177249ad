"""`vitrail flower status`: how each end stands, from files alone."""

from __future__ import annotations

import json
import socket

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.engine.run import lock_folder
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.tasks import MissingReply
from vitrail.errors import RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import unseal
from vitrail.flower.events import EVENTS_FILE, EventLog, EventTeller
from vitrail.flower.status import read_status

NOTHING = EventTeller(lambda _: None)


class StoppedError(Exception):
    """Ends a run in the middle."""


def late_in_round_two(raw, reply):
    task = unseal(raw).body.get("task")
    return MissingReply("it was too late") if task and task["round"] == 2 else reply


@pytest.fixture(scope="module")
def stopped(birds, tmp_path_factory):
    """A federation with a formal mechanism, stopped after round 2; west was late in it."""
    root = tmp_path_factory.mktemp("status")
    loop = birds.loop(root)
    loop.spoil["west"] = late_in_round_two

    def stop(progress):
        if progress.round == 2:
            raise StoppedError

    terms = {
        "run": {**birds.terms["run"], "rounds": 3},
        "release": {"defenses": ["client-dp"], "client-dp": {"noise": 2.0, "accountant": "rdp"}},
    }
    with pytest.raises(StoppedError):
        run_federation(
            loop, birds.coordinator(**terms), root / "run", 3, on_round=stop, teller=NOTHING
        )
    return root


def test_a_coordinators_status_is_read_from_its_folder(stopped, monkeypatch) -> None:
    monkeypatch.setattr(socket, "socket", None)  # no port is looked at
    status = read_status(stopped / "run")
    assert (status.round, status.rounds, status.finished) == (2, 3, False)
    assert status.sites == ("east", "north", "west") and not status.running
    assert status.absent == {"west": "it was too late"}
    assert status.bytes_up == 5 * 4076 and status.disk_bytes > 10_000
    with lock_folder(RunFolder(stopped / "run")):
        assert read_status(stopped / "run").running
    assert not read_status(stopped / "run").running


def test_a_sites_status_has_its_epsilon_and_what_left(stopped) -> None:
    for path in (
        stopped / "north.toml",
        stopped / "at-north",
        next((stopped / "at-north" / "runs").iterdir()),
    ):
        status = read_status(path)
        assert status.site == "north" and not status.running
        (run,) = status.runs
        assert (run.round, run.rounds, run.finished) == (2, 3, False)
        assert run.bytes == 2 * 4076 and run.epsilon["client-dp"] > 0


def test_status_names_proposals_and_the_last_error(birds, tmp_path) -> None:
    home = birds.home("north", tmp_path, yes=False)
    home.propose("a-run", {"data": {}}, ["what leaves"])
    EventLog(home.folder / EVENTS_FILE, {"site": "north"}).write("error", "the disk is full")
    with home.hold_lock():
        said = CliRunner().invoke(app, ["flower", "status", str(home.file)]).output
    assert "site        north, running" in said
    assert "run a-run waits for the operator" in said and "the disk is full" in said


def test_a_coordinator_that_waits_says_for_whom(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    loop.down |= {"west"}
    with pytest.raises(RunError):
        run_federation(
            loop,
            birds.coordinator(),
            tmp_path / "run",
            3,
            patience=0,
            teller=NOTHING,
            names=("east", "north", "west"),
        )
    with lock_folder(RunFolder(tmp_path / "run")):
        asked = ["flower", "status", str(tmp_path / "run"), "--json"]
        status = json.loads(CliRunner().invoke(app, asked).output)
    assert status["awaited"] == ["west"] and status["missing"] == 1 and status["round"] == 0


def test_a_site_that_declined_is_named_with_its_reason(birds, tmp_path) -> None:
    loop = birds.loop(tmp_path)
    object.__setattr__(
        loop.stations["west"].config, "wait", lambda run, terms, lines, patience: False
    )
    run_federation(loop, birds.coordinator(), tmp_path / "run", 2, teller=NOTHING)
    status = read_status(tmp_path / "run")
    assert status.finished and status.sites == ("east", "north")
    assert "has not agreed" in status.declined["west"]
    assert any(line.startswith("declined    west: it says") for line in status.lines())


def test_what_is_no_end_of_a_federation_is_refused(tmp_path) -> None:
    with pytest.raises(RunError, match="neither a coordinator's run folder"):
        read_status(tmp_path)


def test_a_coordinator_behind_a_formal_mechanism_invents_no_count(stopped, tmp_path) -> None:
    """Refuted by a report that says 0 images or 3 (what sites count as), or an epsilon that only a
    site knows."""
    page = tmp_path / "report.html"
    said = CliRunner().invoke(app, ["report", str(stopped / "run"), "--out", str(page)])
    assert said.exit_code == 0, said.output
    text = page.read_text()
    assert "an untold number of images" in text and "<b>untold</b>" in text
    said = CliRunner().invoke(app, ["ledger", str(stopped / "run"), "--site", "north"])
    assert "formal, as agreed: client-dp" in said.output
