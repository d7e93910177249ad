"""What an audit says of the server's alarms: who, when, how sure, and what nobody saw."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from vitrail.audit.update_alarms import describe_false_alarms, read_update_alarms
from vitrail.engine.alarms import FALSE_ALARMS, THRESHOLD
from vitrail.report.pages.update_alarms_table import render_update_alarms


@pytest.fixture
def run(tmp_path):
    """A function: a run of which the server's log has these sums, by round and site."""

    def make(rounds=(), secure=False, alarms=True):
        (tmp_path / "server").mkdir(exist_ok=True)
        lines = [
            {"round": n, "sites": {site: {"sum": total} for site, total in sums.items()}}
            for n, sums in enumerate(rounds, 1)
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / "server" / "alarms.jsonl").write_text(text)
        release = SimpleNamespace(secure_sum=secure)
        config = SimpleNamespace(release=release, aggregate=SimpleNamespace(alarms=alarms))
        return SimpleNamespace(path=tmp_path, config=config)

    return make


def test_sites_are_named_with_their_first_round_and_their_sums(run):
    rounds = [{"a": 2.0, "b": 0.0}, {"a": THRESHOLD, "b": 1.5}, {"a": 3.0}]
    alarms = read_update_alarms(run(rounds))
    assert "under alarm: a from round 2 (3 rounds)" in alarms.describe()[0]
    told = alarms.to_json()
    assert told["sites"]["a"] == {
        "first_alarm": 2,
        "peak": THRESHOLD,
        "sums": {"1": 2.0, "2": THRESHOLD, "3": 3.0},
    }
    assert told["sites"]["b"]["first_alarm"] is None and told["unseen"] is None
    page = str(render_update_alarms(alarms))
    assert "from round 2" in page and "round 3" in page and "1.5" in page


def test_without_an_alarm_the_oddest_site_is_told_and_how_often_alarms_are_wrong(run):
    said = " ".join(read_update_alarms(run([{"a": 0.0, "b": 6.0}])).describe())
    assert f"no site under alarm in 1 rounds; the oddest was b, 6.0 of {THRESHOLD:g}" in said
    assert f"of {FALSE_ALARMS[1]} runs without an attacker {FALSE_ALARMS[0]} had one" in said
    assert describe_false_alarms() in said


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"secure": True}, "cannot be told from these records"),
        ({"alarms": False}, "aggregate.alarms = false"),
        ({}, "No round had enough updates"),
    ],
)
def test_what_nobody_saw_is_said(run, options, why):
    alarms = read_update_alarms(run(**options))
    assert why in alarms.describe()[0] and len(alarms.describe()) == 1
    assert why in alarms.to_json()["unseen"] and why in str(render_update_alarms(alarms))
