"""The section on privacy: formal and empirical apart."""

from types import SimpleNamespace

from vitrail.report.blocks import iterate_leaves, render_block
from vitrail.report.run_record import RunRecord
from vitrail.report.sections.privacy_section import (
    is_formal,
    list_ledger_lines,
    make_privacy_blocks,
    write_release_sentence,
)


def test_a_guarantee_is_formal_only_if_its_line_says_so():
    assert is_formal({"guarantee": "formal: (epsilon, delta) = (2, 1e-05) for one image"})
    assert not is_formal({"guarantee": "empirical: no formal guarantee"})
    assert not is_formal({}) and not is_formal({"guarantee": "informal"})


def test_a_remark_on_a_part_of_an_update_adds_no_bytes_and_no_release():
    update = {"kind": "release", "round": 2, "bytes": 100, "mechanism": ["none"]}
    remark = {"kind": "images", "round": 2, "bytes": 90, "mechanism": "local-dp"}
    ledger = [
        {**update, "guarantee": "empirical: no formal guarantee"},
        {**remark, "guarantee": "formal: local DP", "epsilon": 10.0, "delta": 1e-5},
    ]
    run = SimpleNamespace(sites=("a",), card={}, end="simulation")
    record = RunRecord(run, "run", [], None, {"a": ledger})
    assert [line["bytes"] for _, line in list_ledger_lines(record)] == [100]
    assert "100 B" in str(write_release_sentence(record)) and "1 release" in str(
        write_release_sentence(record)
    )
    page = "".join(map(render_block, make_privacy_blocks(record)))
    part = "images, formal: local DP: epsilon 10, delta 1e-05."
    assert f"Of a part of the updates: {part}" in page
    table = next(x for x in iterate_leaves(make_privacy_blocks(record)) if getattr(x, "rows", ()))
    assert [row[1:5] for row in table.rows] == [
        ("update", 1, 100.0, "none"), ("images, in an update", 1, None, "local-dp"),
    ]  # fmt: skip
