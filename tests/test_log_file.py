"""`log.txt` in its two forms."""

from __future__ import annotations

import json
import re

from vitrail.log_file import append_log, begin_log, is_json_log, read_log


def test_a_log_of_json_lines_stays_one(tmp_path) -> None:
    file = tmp_path / "folder" / "log.txt"
    begin_log(file, as_json=True)
    append_log(file, 'round 1: without "east":\nit was too late', site="east", round=1)
    begin_log(file, as_json=False)  # a restart without the flag
    append_log(file, "the end")
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert [entry["text"] for entry in entries][1:] == [
        'round 1: without "east":\nit was too late',
        "the end",
    ]
    assert entries[1]["site"] == "east" and entries[1]["round"] == 1
    assert all("time" in entry for entry in entries)


def test_a_log_of_sentences_stays_one(tmp_path) -> None:
    file = tmp_path / "log.txt"
    begin_log(file, as_json=False)
    assert file.exists() and not is_json_log(file)
    append_log(file, "first", site="east")
    begin_log(file, as_json=True)
    append_log(file, "{second}")
    lines = file.read_text().splitlines()
    assert [re.sub(r"^[\d -]{11}[\d:]{8} ", "", line) for line in lines] == ["first", "{second}"]


def test_both_forms_are_read_the_same_way(tmp_path) -> None:
    plain, structured = tmp_path / "a.txt", tmp_path / "b.txt"
    begin_log(plain, False)
    begin_log(structured, True)
    for file in (plain, structured):
        append_log(file, "round 2: without west: it was too late")
    one, two = read_log(plain), read_log(structured)[1:]
    assert [line[20:] for line in one] == [line[20:] for line in two]
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d round 2: ", line) for line in one + two)
    assert read_log(tmp_path / "none.txt") == []


def test_a_torn_line_hides_no_other(tmp_path) -> None:
    file = tmp_path / "log.txt"
    begin_log(file, True)
    with file.open("a") as handle:
        handle.write('{"time": "2026-03\n[]\n3\n')
    append_log(file, "after")
    assert read_log(file)[-1].endswith(" after") and len(read_log(file)) == 5
