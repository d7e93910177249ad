"""The readings decide what is tried, and a try leaves nothing behind."""

from dataclasses import replace

import pytest

import vitrail
from vitrail.audit.audit_run import audit_run
from vitrail.audit.detection.strata import WithinGroups
from vitrail.audit.remedy_choice import list_remedies
from vitrail.audit.remedy_plan import plan_remedies
from vitrail.audit.remedy_trial import BEFORE, try_remedies
from vitrail.errors import ConfigError
from vitrail.report.pages.remedy_table import render_trial

PROTO = {
    "data": {"aviary": {"images": 200, "classes": 3, "seed": 7}},
    "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
    "model": {"prototypes": {"per_class": 2, "depth": 8}},
    "partition": {"kind": "iid", "sites": 3, "test_fraction": 0.3},
    "run": {"rounds": 2, "local_epochs": 1, "local_reference": True},
}


@pytest.fixture(scope="module")
def audited(tmp_path_factory, tiny_config):
    """A run and its audit, in which everything is clear."""
    run = vitrail.run(tiny_config(**PROTO), tmp_path_factory.mktemp("trial") / "run")
    return run, audit_run(run)


def accuse(audit, **changes):
    """The audit with the first finding of the first site called biased, read as asked."""
    first = audit.sites[0]
    finding = replace(first.findings[0], verdict="biased", **changes)
    site = replace(first, findings=(finding, *first.findings[1:]))
    return replace(audit, sites=(site, *audit.sites[1:])), finding


def needs_the_place(finding):
    """Covering a shortcut takes the own model's answers."""
    local = replace(finding.covered["local"], accuracy=1.0, without=0.0)
    return {**finding.covered, "local": local}


def test_a_remedy_is_tried_and_shown_beside_none(audited):
    run, audit = audited
    before = {path.name for path in run.path.iterdir()}
    covered = needs_the_place(audit.sites[0].findings[0])
    accused, finding = accuse(audit, covered=covered, lacks=False, common=0.0)
    assert finding.reading == "shortcut" and "weigh" in list_remedies(finding)
    trial = try_remedies(run, accused, rounds=1, only=("weigh", "harmonize"))
    assert [one.name for one in trial.tried] == [BEFORE, "weigh", "harmonize"]
    assert trial.tried[0].effect is None and trial.tried[1].effect is not None
    assert {path.name for path in run.path.iterdir()} == before
    told = replace(accused, trial=trial).to_json()
    assert told["trial"]["sentence"] == trial.sentence
    page = str(render_trial(told["trial"]))
    assert all(word in page for word in ("weigh", "harmonize", BEFORE, finding.label))


@pytest.mark.parametrize(
    "changes",
    [{"lacks": True}, {"common": 0.9}, {"within": {"view": WithinGroups(0.5, 0.0, 2.0, 1.0)}}],
    ids=str,
)
def test_what_is_no_doing_of_the_site_is_never_touched(audited, changes):
    run, audit = audited
    covered = needs_the_place(audit.sites[0].findings[0])
    accused, finding = accuse(audit, covered=covered, **changes)
    assert list_remedies(finding) == ()
    assert try_remedies(run, accused).tried == ()
    with pytest.raises(ConfigError, match="calls for a remedy"):
        plan_remedies(run.folder.open(), accused.to_json(), "audit.json", ("weigh",))


def test_nothing_is_tried_where_nothing_is_biased(audited):
    run, audit = audited
    trial = try_remedies(run, audit)
    assert trial.tried == () and "Nothing was tried" in trial.sentence
    assert "Nothing was tried" in str(render_trial(trial.to_json()))
