"""`vitrail report` as a user meets it."""

import sys

import pytest

import vitrail
from vitrail.cli import main


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("reported")
    vitrail.run(tiny_config(run={"rounds": 1}), folder / "run")
    return folder / "run"


@pytest.fixture
def report(monkeypatch, capsys, tmp_path):
    """A function: call the command; code, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["vitrail", "report", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, capsys.readouterr().err

    return call


def test_a_report_lies_in_the_run_folder_and_is_made_again(made, report):
    for _ in range(2):
        code, told = report(made)
        assert code == 0 and "report.html" in told
    assert (made / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_figures_and_tables_beside_it(made, report, tmp_path):
    code, told = report(made, "--out", "a.html", "--figures", "figures")
    assert code == 0 and "files in figures" in told
    assert {f.suffix for f in (tmp_path / "figures").iterdir()} == {".svg", ".png", ".csv"}


def test_a_named_file_is_not_overwritten_unasked(made, report, tmp_path):
    (tmp_path / "a.html").write_text("mine")
    code, told = report(made, "--out", "a.html")
    assert code == 2 and "exists" in told
    assert (tmp_path / "a.html").read_text() == "mine"
    assert report(made, "--out", "a.html", "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--out", "a.pdf"), "cannot be written as"),
        (("--site", "nowhere"), "there is no site"),
    ],
)
def test_bad_input_is_one_sentence(made, report, words, reason):
    code, told = report(made, *words)
    assert code == 2 and reason in told and told.strip().count("\n") == 0


def test_a_folder_that_is_no_run_is_one_sentence(report, tmp_path):
    code, told = report(tmp_path)
    assert code == 2 and "not a run folder" in told
    assert not (tmp_path / "report.html").exists()
