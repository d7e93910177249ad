"""What a site can do after a federation, with nothing but its own folder."""

from __future__ import annotations

import json

import pytest

from vitrail.audit.gather import audit_run
from vitrail.engine.loaded import Run
from vitrail.flower.coordinator import coordinate

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
    coordinate(loop, birds.coordinator(**SECTIONS), root / "run", sites=3)
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
    assert '"kind":"separability"' in ledger and '"kind":"enroll"' in ledger


def test_no_site_has_files_of_another(federation) -> None:
    root, _ = federation
    for name in ("east", "north", "west"):
        run = next((root / f"at-{name}" / "runs").iterdir())
        assert [path.name for path in (run / "sites").iterdir()] == [name]
    assert not list((root / "run" / "sites").iterdir())


def test_a_second_farewell_changes_nothing(federation, birds) -> None:
    root, loop = federation
    before = len(loop.asked)
    coordinate(loop, birds.coordinator(**SECTIONS), root / "run", sites=3)
    assert len(loop.asked) == before + 3  # a finished run is only said farewell to
