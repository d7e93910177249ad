"""The ledger never rolls back, never repeats itself, and survives a kill inside a line."""

import errno
import json
import os

import pytest

from vitrail.errors import RunError
from vitrail.files import read_tensors
from vitrail.release.ledger import Ledger


def line(round_, message="m", **more):
    return {"kind": "release", "round": round_, "message": message, **more}


def test_answers_each_round_once(tmp_path):
    ledger = Ledger(tmp_path / "site" / "ledger.jsonl")
    assert not ledger.has_answered(1, "m1") and ledger.lines() == []
    ledger.write({"kind": "enroll", "facts": {}})
    assert not ledger.has_answered(1, "m1")
    ledger.write(line(1, "m1"))
    ledger.write(line(4, "m4"))
    again = Ledger(ledger.path)
    assert again.has_answered(1, "m1") and again.has_answered(4, "m4")
    assert not again.has_answered(2, "m2") and not again.has_answered(5, "m4")
    for round_ in (1, 4):
        with pytest.raises(RunError, match="another message") as err:
            again.has_answered(round_, "other")
        assert str(ledger.path) in str(err.value)


@pytest.mark.parametrize("size", [10, 20_000])
def test_a_long_ledger_is_read_from_its_end(tmp_path, size):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for round_ in range(1, 40):
        ledger.write(line(round_, f"m{round_}", pad="x" * size))
    ledger.write({"kind": "declaration", "pad": "x" * size})
    assert (
        ledger.has_answered(39, "m39")
        and ledger.has_answered(1, "m1")
        and not ledger.has_answered(40, "m")
    )


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_torn_last_line_is_cut_and_written_again(tmp_path, cut):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.write(line(1))
    ledger.write(line(2))
    path.write_bytes(path.read_bytes()[:-cut])
    torn = Ledger(path)
    assert torn.has_answered(1, "m") and not torn.has_answered(2, "m") and len(torn.lines()) == 1
    torn.write(line(2))
    assert [json.loads(row)["round"] for row in path.read_text().splitlines()] == [1, 2]


def test_a_first_line_that_is_torn_leaves_an_empty_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"kind": "rel')
    ledger = Ledger(path)
    assert ledger.lines() == [] and not ledger.has_answered(1, "m")
    ledger.write(line(1))
    assert ledger.lines() == [line(1)]


def test_a_line_that_does_not_fit_on_the_disk_is_an_error(tmp_path, monkeypatch):
    """A full disk takes the first bytes of a line without an error; the release must not leave."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(line(1))
    real, taken = os.write, []

    def full(handle, raw):
        if taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(real(handle, bytes(raw)[:10]))
        return taken[0]

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match="disk is full"):
        ledger.write(line(2))
    monkeypatch.undo()
    after = Ledger(ledger.path)
    assert not after.has_answered(2, "m")
    after.write(line(2))
    assert [row["round"] for row in after.lines()] == [1, 2]


def test_a_number_that_is_not_finite_is_not_written(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        ledger.write(line(1, figure=float("nan")))
    assert ledger.lines() == []


def test_bytes_in_the_ledger_are_the_bytes_that_were_sent(tiny, releases):
    run = tiny(method={"name": "scaffold"}, run={"rounds": 2, "record_updates": True})
    for site, lines in releases(run.path).items():
        assert [row["round"] for row in lines] == [1, 2, 3]
        for row in lines[:2]:
            folder = run.path / f"server/transcript/round-{row['round']:05d}/updates"
            sent = read_tensors(folder / f"{site}.safetensors")[0]
            assert row["bytes"] == sum(t.numel() * t.element_size() for t in sent.values()) > 0
            assert row["mechanism"] == ["none"] and "no formal guarantee" in row["guarantee"]
        assert lines[2]["bytes"] == 0 and lines[2]["metrics"]
        text = (run.path / "sites" / site / "ledger.jsonl").read_text().splitlines()
        declared = [row for row in map(json.loads, text) if row["kind"] == "declaration"]
        names = {row["id"]: [name for name, *_ in row["tensors"]] for row in declared}
        assert len(declared) == 2  # one for the rounds, one for the closing turn
        assert set(names[lines[0]["declaration"]]) == set(sent)
        assert [json.loads(text[0])["kind"], json.loads(text[0])["facts"]["examples"] > 0] == [
            "enroll",
            True,
        ]
