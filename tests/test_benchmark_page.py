"""`make bench`: the page holds what the commands printed, and keeps what was not run again."""

import importlib.util

import pytest


@pytest.fixture
def page(project, monkeypatch):
    spec = importlib.util.spec_from_file_location("page", project / "benchmarks" / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_section_is_a_script(page, project):
    for _, words in page.SECTIONS.values():
        assert (project / "benchmarks" / words[0]).exists()


def test_a_section_that_is_not_run_again_stays(page, tmp_path):
    out = tmp_path / "page.md"
    title = {name: page.SECTIONS[name][0] for name in page.SECTIONS}
    first = f"## {title['lrp']}\n\nold\n"
    page.write_page(out, {"lrp": first})
    page.write_page(out, {**page.read_sections(out), "engine": f"## {title['engine']}\n\nnew\n"})
    text = out.read_text()
    assert text.index("new") < text.index("old")  # in the order of the list
    page.write_page(out, {**page.read_sections(out), "lrp": first.replace("old", "newest")})
    assert "old" not in out.read_text() and "newest" in out.read_text()


def test_a_script_that_fails_leaves_the_page_alone(page, tmp_path, monkeypatch):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('no')")
    monkeypatch.setitem(page.SECTIONS, "lrp", ("Broken", [str(broken)]))
    with pytest.raises(SystemExit, match="failed"):
        page.run_section("lrp")
