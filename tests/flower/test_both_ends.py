"""What each command says at the coordinator and at a site: what that end has, and nothing false."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.engine.storage.roster_log import RosterLog
from vitrail.engine.tasks import MissingReply
from vitrail.errors import RunError, VitrailError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import unseal
from vitrail.runs.opened_run import Run

SECTIONS = {
    "method": {"name": "fedgrasp"},
    "model": {
        "backbone": "small-cnn",
        "width": 4,
        "subspaces": {"dimension": 2, "depth": 8, "hidden": 8, "top": 2},
    },
}


@pytest.fixture(scope="module")
def ends(birds, tmp_path_factory):
    """A finished federation in which west was late once: the coordinator's folder and north's."""
    root = tmp_path_factory.mktemp("ends")
    loop = birds.loop(root)

    def late(raw, reply):
        task = unseal(raw).body.get("task")
        return MissingReply("it was too late") if task and task["round"] == 1 else reply

    loop.spoil["west"] = late
    run_federation(loop, birds.coordinator(**SECTIONS), root / "run", sites=3)
    return root / "run", next((root / "at-north" / "runs").iterdir())


def call(*words: object) -> str:
    """What a command says; an error is its sentence, after a mark."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(done.exception, VitrailError):
        return f"REFUSED {done.exception}"
    assert done.exit_code == 0, done.output
    return done.output


def read_page(run, out) -> str:
    call("report", run, "--out", out)
    body = re.sub(r"(?s)<(style|script).*?</\1>", "", out.read_text())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


def test_the_coordinators_report_counts_images_bytes_and_absences(ends, tmp_path) -> None:
    page = read_page(ends[0], tmp_path / "page.html")
    assert "a federation of 3 sites" in page and "as the coordinator has it" in page
    assert "72 images" in page and "90 images of 3 classes" in page
    assert "Nothing has left" not in page and "0 images" not in page.replace("90 images", "")
    assert "as it reached the coordinator" in page
    assert "3 sites took part; 1 absence, 0 refused updates." in page
    assert "The coordinator has no images to look at the model with" in page
    assert "vitrail flower server config.toml" in page and "follow from the seed" not in page


def test_a_sites_report_speaks_of_that_site(ends, tmp_path) -> None:
    page = read_page(ends[1], tmp_path / "page.html")
    assert "the part of site north in a federation" in page
    assert "22 images" in page and "at site north, together with others" in page
    assert "a federation of 1 site" not in page and "no site dropped out" not in page
    assert "all sites together" not in page and "Who took part" not in page


def test_a_report_shows_who_declined_joined_late_and_left(ends, tmp_path) -> None:
    roster = RosterLog(ends[0] / "server" / "roster.jsonl")
    before = roster.path.read_bytes()
    roster.add(0, "south", "declined", "its operator did not agree")
    roster.add(1, "west", "left", "its disk is full")
    try:
        page = read_page(ends[0], tmp_path / "page.html")
    finally:
        roster.path.write_bytes(before)
    assert "1 declined (south)" in page
    assert "declined: its operator did not agree" in page and "left: its disk is full" in page


def test_a_coordinators_ledger_is_what_reached_it(ends, tmp_path) -> None:
    out = tmp_path / "ledger.json"
    said = call("ledger", ends[0], "--json", out)
    assert "This is the coordinator" in said
    content = json.loads(out.read_text())
    assert content["end"] == "coordinator" and not content["mismatches"]
    rounds = {
        site["site"]: [line["round"] for line in site["lines"] if line["kind"] == "release"]
        for site in content["sites"]
    }
    assert rounds == {"east": [1, 2], "north": [1, 2], "west": [2]}
    assert "What came from north" in call("ledger", ends[0], "--site", "north")
    assert "This is the coordinator" not in call("ledger", ends[1])


def test_a_coordinators_audit_is_what_the_sites_told(ends, tmp_path) -> None:
    out = tmp_path / "told.json"
    assert "The sites told these figures" in call("audit", ends[0], "--json", out)
    assert json.loads(out.read_text())["told"] == ["east", "north", "west"]


REFUSED_AT_THE_COORDINATOR = {
    "personalize": ("--site", "north"),
    "fidelity": ("RUN",),
    "attack": (),
    "preview": (),
    "leakage": (),
    "export": ("--site", "north", "--out", "model.safetensors"),
}


@pytest.mark.parametrize("command", REFUSED_AT_THE_COORDINATOR)
def test_what_a_coordinator_cannot_do_is_refused_in_a_true_sentence(
    command, ends, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [ends[0] if w == "RUN" else w for w in REFUSED_AT_THE_COORDINATOR[command]]
    said = call(command, ends[0], *words)
    assert said.startswith("REFUSED")
    assert "embedded" not in said and "birds" not in said and "there is no file" not in said
    assert "coordinator" in said or "this is a folder" in said


def test_both_ends_have_the_same_global_model(ends, birds, tmp_path) -> None:
    for number, run in enumerate(ends):
        call("predict", run, birds.root / "000.png", "--out", tmp_path / f"{number}.csv")
    assert (tmp_path / "0.csv").read_text() == (tmp_path / "1.csv").read_text()


def test_a_site_does_not_pretend_to_know_the_agreement_of_all(ends, tmp_path) -> None:
    words = ("--consensus", "--out", tmp_path / "c.json")
    assert "known to the coordinator" in call("explain", ends[1], *words)
    assert "agreed most" in call("explain", ends[0], *words)


def test_comparing_both_ends_names_whose_figures_they_are(ends) -> None:
    said = call("compare", *ends)
    assert "figures = of all sites" in said and "figures = of site north" in said
    assert "embedded" not in said and "aviary" not in said


class StoppedError(Exception):
    """Ends a run in the middle."""


def test_an_unfinished_end_is_never_resumed_as_a_simulation(birds, tmp_path) -> None:
    """Refuted by a resume that draws birds, or by a site that predicts with an untrained model."""

    def stop(progress):
        if progress.round == 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_federation(
            birds.loop(tmp_path), birds.coordinator(), tmp_path / "run", 3, on_round=stop
        )
    site = next((tmp_path / "at-north" / "runs").iterdir())
    assert "vitrail flower server" in call("resume", tmp_path / "run")
    assert "vitrail flower site" in call("resume", site)
    with pytest.raises(RunError, match="when the federation is finished"):
        Run(site).model()
