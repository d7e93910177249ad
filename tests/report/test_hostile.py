"""Names that are code, names without end, runs without anything: escaped and still readable."""

import json
import shutil

import pytest

from vitrail.errors import RunError

SECTIONS = {
    "summary": "Summary",
    "training": "Training",
    "parts": "What the model looks for",
    "why": "Why",
    "fidelity": "Fidelity",
    "audit": "Audit",
    "privacy": "Privacy",
    "compare": "Compare",
    "reproduce": "Reproduce",
}


def check(document, read_page):
    """Whole, every section there, nothing from elsewhere, one script: ours."""
    page = read_page(document.html)
    assert {
        name: text.strip().split("\n")[0][: len(SECTIONS[name])]
        for name, text in page.sections.items()
    } == SECTIONS
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids
    assert len(page.scripts) == 1 and "alert" not in page.scripts[0]
    return page


def test_a_class_that_is_a_script_and_a_site_that_is_a_path(secret, report, read_page):
    page = check(report(secret, site="../../x"), read_page)
    assert "<script>alert(1)</script>" in page.sections["training"]  # as text, that is
    assert "../../x" in page.sections["training"]
    assert "x" * 200 in page.sections["training"]
    assert "<img src=x onerror=alert(1)>" in page.sections["privacy"]


def test_with_images_too(secret, report, read_page):
    check(report(secret, site="<img src=x onerror=alert(1)>", with_images=True), read_page)


def test_a_spreadsheet_runs_nothing(secret, report):
    tables = [leaf.to_csv() for leaf in report(secret).leaves if hasattr(leaf, "to_csv")]
    cells = [cell for text in tables for line in text.splitlines() for cell in line.split(",")]
    assert any(cell.lstrip('"').startswith("'=cmd") for cell in cells)
    assert not any(cell.lstrip('"').startswith("=") for cell in cells)


@pytest.mark.parametrize("changes", [{"rounds": 0}, {"rounds": 1}])
def test_a_run_of_no_round_and_of_one_site(tiny, report, changes, read_page):
    run = tiny(run=changes, partition={"kind": "iid", "sites": 1})
    page = check(report(run.path), read_page)
    summary = page.sections["summary"]
    assert "1 site" in summary
    if not changes["rounds"]:
        assert "for 0 rounds" in summary
        assert "No round is finished" in page.sections["why"]


def test_two_hundred_classes(many_classes, report, read_page):
    document = report(many_classes, site="here")
    page = check(document, read_page)
    assert "class number 199" in page.sections["training"]
    assert len(document.html) < 10e6
    narrow = [leaf.draw(330) for leaf in document.leaves if hasattr(leaf, "draw")]
    assert all(drawing.width == 330 and drawing.height < 4000 for drawing in narrow)


def test_a_run_without_any_explanation(birds, report, read_page):
    page = check(report(birds / "fedavg"), read_page)
    assert "black box" in page.sections["parts"]
    assert "Grad-CAM" in page.sections["why"]
    assert "No audit was made" in page.sections["audit"]
    assert "No attack was tried" in page.sections["privacy"]


def test_images_that_are_gone_are_a_sentence_without_names(secret, report, tmp_path, read_page):
    copy = tmp_path / "run"
    shutil.copytree(secret, copy)
    config = copy / "config.toml"
    text = config.read_text().replace("SECRET-list.csv", "SECRET-gone.csv")
    config.write_text(text)
    page = check(report(copy, site="../../x"), read_page)
    assert "could not be opened here" in page.sections["why"]
    assert "SECRET" not in page.sections["why"]


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_broken_finding_is_one_sentence(birds, report, tmp_path, text):
    copy = tmp_path / "run"
    shutil.copytree(birds / "fedavg", copy)
    (copy / "audit.json").write_text(text)
    with pytest.raises(RunError, match=r"audit\.json"):
        report(copy)


def test_findings_of_an_attacker_are_escaped(birds, report, tmp_path, read_page):
    copy = tmp_path / "run"
    shutil.copytree(birds / "fedavg", copy)
    rows = [{"defense": "none", "attack": "<b onclick=x()>", "psnr": 31.5, "deep": {"a": 1}}]
    (copy / "attack.json").write_text(json.dumps({"rows": rows}))
    page = check(report(copy), read_page)
    assert "<b onclick=x()>" in page.sections["privacy"]
    assert "31.5 dB" in page.sections["summary"]
