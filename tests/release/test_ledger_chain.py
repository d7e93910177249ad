"""The chain of a ledger: whatever was done to a line, the first one that does not fit is named."""

import json
import os

import pytest

from vitrail.release.ledger import Ledger
from vitrail.release.ledger_chain import Head, walk_chain, walk_on


def line(round_):
    return {"kind": "release", "round": round_, "message": f"m{round_}"}


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for round_ in range(1, 6):
        ledger.write(line(round_))
    return ledger


def test_what_was_written_is_chained_and_read_back_without_hashes(ledger):
    chain = walk_chain(ledger.path, range(6))
    assert (chain.lines, chain.unchained, chain.problem) == (5, 0, "")
    assert ledger.lines() == [line(round_) for round_ in range(1, 6)]
    last = json.loads(ledger.path.read_text().splitlines()[-1])
    assert chain.head == Head(5, last["chain"]) and len(set(chain.hashes.values())) == 6


def swap(rows):
    return [rows[0], rows[2], rows[1], *rows[3:]]


TAMPERED = {
    "changed": (lambda rows: [*rows[:1], rows[1].replace(b"m2", b"mm"), *rows[2:]], 2),
    "last changed": (lambda rows: [*rows[:4], rows[4].replace(b"m5", b"mm")], 5),
    "reformatted": (lambda rows: [rows[0].replace(b'"round":1', b'"round": 1'), *rows[1:]], 1),
    "removed": (lambda rows: rows[:2] + rows[3:], 3),
    "first removed": (lambda rows: rows[1:], 1),
    "repeated": (lambda rows: [*rows[:3], rows[2], *rows[3:]], 4),
    "inserted": (lambda rows: [*rows[:3], b'{"kind":"release"}\n', *rows[3:]], 4),
    "reordered": (swap, 2),
    "hash removed": (lambda rows: [*rows[:4], rows[4].split(b',"chain"')[0] + b"}\n"], 5),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_the_first_line_that_does_not_fit_is_named(how, ledger):
    change, named = TAMPERED[how]
    rows = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(b"".join(change(rows)))
    assert walk_chain(ledger.path).problem.startswith(f"line {named} ")


def test_a_tail_that_was_cut_off_or_written_anew_does_not_contain_an_old_head(ledger):
    head = walk_chain(ledger.path).head
    rows = ledger.path.read_bytes().splitlines(keepends=True)
    ledger.path.write_bytes(b"".join(rows[:3]))
    cut = walk_chain(ledger.path, {head.lines})
    assert not cut.problem and not cut.contains(head)
    for round_ in (4, 50):
        ledger.write(line(round_))
    anew = walk_chain(ledger.path, {head.lines, 4})
    assert not anew.problem and anew.lines == 5 and not anew.contains(head)
    assert anew.contains(Head(4, json.loads(rows[3])["chain"]))  # the same line as before


def test_an_older_ledger_is_chained_from_where_chaining_begins(tmp_path):
    path = tmp_path / "ledger.jsonl"
    old = "".join(json.dumps(line(round_), separators=(",", ":")) + "\n" for round_ in (1, 2))
    path.write_text(old)
    Ledger(path).write(line(3))
    Ledger(path).write(line(4))
    chain = walk_chain(path)
    assert (chain.lines, chain.unchained, chain.problem) == (4, 2, "")
    assert path.read_text().startswith(old) and len(Ledger(path).lines()) == 4
    path.write_text(path.read_text().replace("m1", "mm"))  # of the part without hashes too
    assert walk_chain(path).problem.startswith("line 3 ")


def test_two_writers_of_one_ledger_keep_the_chain(tmp_path):
    one, other = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    for round_ in range(1, 5):
        (one if round_ % 2 else other).write(line(round_))
    assert walk_chain(one.path).problem == "" and len(one.lines()) == 4


@pytest.mark.parametrize("cut", [1, 3, 80, 10**6])
def test_a_kill_inside_a_line_leaves_the_same_bytes_in_the_end(ledger, cut):
    whole = ledger.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    ledger.path.write_bytes(whole[: max(last, len(whole) - cut)])
    Ledger(ledger.path).write(line(5))
    assert ledger.path.read_bytes() == whole


def test_a_write_reads_the_end_of_a_long_ledger_and_no_more(ledger, monkeypatch):
    ledger.write({"kind": "declaration", "pad": "x" * 300_000})
    real, read = os.pread, []

    def count(handle, size, at):
        read.append(size)
        return real(handle, size, at)

    monkeypatch.setattr(os, "pread", count)
    Ledger(ledger.path).write(line(6))
    assert sum(read) < 70_000
    read.clear()
    ledger.write(line(7))
    ledger.write(line(8))  # its own end is remembered; the first was written by somebody else
    assert sum(read) < 70_000 and walk_chain(ledger.path).problem == ""


def test_a_ledger_that_is_walked_on_is_what_a_whole_walk_finds(tmp_path):
    """After every line, from every earlier walk, with every line that was asked for then."""
    ledger, earlier = Ledger(tmp_path / "ledger.jsonl"), []
    for number in range(6):
        wanted = set(range(number + 1))
        for before in earlier:
            assert walk_on(ledger.path, before, wanted) == walk_chain(ledger.path, wanted)
        earlier.append(walk_chain(ledger.path, wanted))
        ledger.write({"kind": "release", "round": number})
    told = walk_on(ledger.path, earlier[-1])
    assert told.head == walk_chain(ledger.path).head
    assert walk_on(ledger.path, told, {3, 5}).contains(Head(3, earlier[3].hash))


def test_a_ledger_that_was_put_back_is_walked_anew(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for number in range(3):
        ledger.write({"kind": "release", "round": number})
    old = ledger.path.read_bytes()
    ledger.write({"kind": "release", "round": 3})
    walked = walk_chain(ledger.path)
    ledger.path.write_bytes(old)
    again = walk_on(ledger.path, walked, {4})
    assert again.lines == 3 and not again.contains(walked.head)
    ledger.path.write_bytes(old.replace(b'"round":1', b'"round":9'))
    assert "line 2" in walk_on(ledger.path, walked).problem
