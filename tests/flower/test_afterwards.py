"""What a site can do after a federation, with nothing but its own folder."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace

import pytest

from vitrail.audit.audit_run import audit_run
from vitrail.audit.detection.class_summary import ClassSummary
from vitrail.errors import RunError
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.envelope import OpenedMessage, compute_message_id, seal, unseal
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
def federation(birds, tmp_path_factory):
    root = tmp_path_factory.mktemp("afterwards")
    loop = birds.loop(root)
    run_federation(loop, birds.coordinator(**SECTIONS), root / "run", sites=3)
    return root, loop


def test_a_site_has_the_models_it_may_have(federation, birds) -> None:
    root, _ = federation
    run = Run(next((root / "at-north" / "runs").iterdir()))
    assert run.finished and run.sites == ("north",)
    for which in ("global", "personal", "local"):
        assert run.model("north", which) is not None
    assert {row["site"] for row in run.rows()} <= {"north", "*"}


def test_a_site_audits_what_it_learned_with_what_the_others_told(federation) -> None:
    root, _ = federation
    run = Run(next((root / "at-north" / "runs").iterdir()))
    told = json.loads((run.folder.server / "separability.json").read_text())
    assert set(told) == {"east", "north", "west"}
    found = audit_run(run, ["north"]).to_json()
    assert found["sites"]
    ledger = (run.path / "sites" / "north" / "ledger.jsonl").read_text()
    assert (
        '"kind":"audit summary"' in ledger
        and '"kind":"audit histograms"' in ledger
        and '"kind":"enroll"' in ledger
    )


def test_no_site_has_files_of_another(federation) -> None:
    root, _ = federation
    for name in ("east", "north", "west"):
        run = next((root / f"at-{name}" / "runs").iterdir())
        assert [path.name for path in (run / "sites").iterdir()] == [name]
    assert not list((root / "run" / "sites").iterdir())


def test_a_second_farewell_changes_nothing(federation, birds) -> None:
    root, loop = federation
    before = len(loop.asked)
    run_federation(loop, birds.coordinator(**SECTIONS), root / "run", sites=3)
    assert len(loop.asked) == before + 3  # a finished run is only said farewell to


def other_features(table):
    """A table that is right in itself, of fewer features."""
    summary = ClassSummary.from_json(table["summary"])
    fewer = replace(summary, means=summary.means[:, :5], variance=summary.variance[:5])
    return {**table, "summary": fewer.to_json()}


def fewer_classes(table):
    summary = ClassSummary.from_json(table["summary"])
    counts = {"counts": summary.counts[:2], "tested": summary.tested[:2]}
    return {**table, "summary": replace(summary, means=summary.means[:2], **counts).to_json()}


def endless(table):
    return {**table, "summary": {**table["summary"], "counts": [math.inf, 2]}}


def test_a_hostile_table_costs_its_own_site_and_nobody_else(birds, tmp_path) -> None:
    """Refuted by a run that stops, or by an audit at another site that does."""
    loop, spoils = birds.loop(tmp_path), {"east": endless, "west": fewer_classes}

    def lies(raw, reply):
        letter = unseal(reply)
        if "told" not in letter.body:
            return reply
        told = spoils[letter.site](letter.body["told"])
        body = {**letter.body, "told": told}
        return seal(
            letter.kind,
            letter.run,
            letter.site,
            body,
            letter.tensors,
            answers=compute_message_id(raw),
        )

    loop.spoil |= dict.fromkeys(spoils, lies)
    terms = {**SECTIONS, "run": {**birds.terms["run"], "rounds": 1}}
    folder = run_federation(loop, birds.coordinator(**terms), tmp_path / "run", sites=3)
    assert (folder.server / "finished").exists()
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "refused what east told for audits" in log
    assert "refused what west told for audits: 2 classes, and there are 3" in log
    assert set(json.loads((folder.server / "separability.json").read_text())) == {"north"}


@pytest.mark.parametrize("spoil", [other_features, fewer_classes, endless])
def test_a_table_that_does_not_compare_is_left_out_with_what_rests_on_it(
    spoil, federation, tmp_path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(next((federation[0] / "at-north" / "runs").iterdir()), copy)
    file = copy / "server" / "separability.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "west": spoil(told["west"])}))
    with pytest.raises(RunError, match="no other site"):  # histograms are about all summaries
        audit_run(Run(copy), ["north"])
    log = (copy / "log.txt").read_text()
    assert "audit: without what site 'west' told" in log and "histograms of site 'east'" in log


def test_a_farewell_cannot_change_what_a_site_told_itself(federation) -> None:
    root, loop = federation
    farewell = [unseal(raw) for name, raw in loop.asked if name == "north"][-1]
    assert farewell.kind == "farewell"
    run = Run(next((root / "at-north" / "runs").iterdir()))
    file = run.folder.server / "separability.json"
    before = file.read_bytes()
    lie = {**farewell.body["tables"], "north": farewell.body["tables"]["west"]}
    assert loop.stations["north"].answer(_said(farewell, lie))
    assert file.read_bytes() == before


def _said(letter: OpenedMessage, tables: dict[str, object]) -> bytes:
    letter = replace(letter, body={"tables": tables})
    return seal(letter.kind, letter.run, letter.site, letter.body)
