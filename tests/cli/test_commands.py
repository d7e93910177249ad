"""The command line as a user meets it: figures on stdout, one sentence on stderr, an exit code."""

import subprocess
import sys
import tomllib

import pytest

import vitrail
from vitrail.config import parse
from vitrail.methods import METHODS


@pytest.fixture
def vitrail_command(command, birds_file):
    """A function: run a command in a folder with a small configuration; code, stdout, stderr."""
    birds_file()
    return command


def test_run_resume_and_compare(vitrail_command, tmp_path):
    code, out, err = vitrail_command("run", "birds.toml")
    assert code == 0 and "round 2/2" in err and "accuracy" in err
    folder = tmp_path / "runs" / "birds"
    assert (
        str(folder.relative_to(tmp_path)) in out and (folder / "figures" / "partition.png").exists()
    )
    code, _, _ = vitrail_command("run", "birds.toml", "--set", "method.name=fedprox", "--quiet")
    assert code == 0 and (tmp_path / "runs" / "birds-2" / "server" / "finished").exists()
    code, out, _ = vitrail_command("compare", "runs/birds", "runs/birds-2", "--out", "figures")
    assert code == 0 and "fedavg" in out and "fedprox" in out
    assert list((tmp_path / "figures").glob("*.png"))
    before = (folder / "metrics.parquet").read_bytes()
    code, _, _ = vitrail_command("resume", "runs/birds")
    assert code == 0 and (folder / "metrics.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["run", "absent.toml"], "no file"),
        (["run", "birds.toml", "--set", "run.round=3"], "'rounds'"),
        (["run", "birds.toml", "--set", "method.name=fedavgg"], "birds.toml: method.name"),
        (["run", "birds.toml", "--out", "."], "not empty"),
        (["resume", "birds.toml"], "not a run folder"),
        (["sweep", "birds.toml"], "no [sweep]"),
        (["config", "show", "absent.toml"], "no file"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(vitrail_command, tmp_path, words, told):
    code, out, err = vitrail_command(*words)
    assert code == 2 and told in err and out == ""
    assert err.startswith("vitrail: ") and len(err.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["birds.toml"]


def test_debug_adds_the_traceback(vitrail_command):
    code, _, err = vitrail_command("--debug", "run", "absent.toml")
    assert code == 2 and "Traceback" in err


def test_a_fault_of_ours_says_so(vitrail_command, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("vitrail.engine.run.start", broken)
    code, _, err = vitrail_command("run", "birds.toml")
    assert code == 70 and "fault of Vitrail" in err and "Traceback" not in err


def test_config_show_fills_in_the_methods_own_choices(vitrail_command):
    code, out, _ = vitrail_command("config", "show", "birds.toml", "--set", "method.name=feddyn")
    config = parse(tomllib.loads(out)).config
    assert code == 0 and config.method.options == {"alpha": 0.01, "clip": 10.0}
    assert config.optimizer.lr is not None


def test_methods_and_version(vitrail_command):
    code, out, _ = vitrail_command("methods")
    assert code == 0 and all(name in out for name in METHODS)
    assert vitrail_command("--version")[1].strip() == f"vitrail {vitrail.__version__}"
    same = [sys.executable, "-m", "vitrail", "--version"]
    assert subprocess.check_output(same, text=True).strip() == f"vitrail {vitrail.__version__}"


@pytest.mark.parametrize("words", [["run"], ["resume"], ["predict"], ["evaluate"], ["compare"]])
def test_help_explains_arguments(vitrail_command, words):
    code, out, _ = vitrail_command(*words, "--help")
    assert code == 0 and ("folder" in out or "TOML" in out)


def test_the_library_makes_a_folder_of_its_own_where_none_is_named(vitrail_command, tmp_path):
    run = vitrail.run("birds.toml")
    assert run.path.resolve() == tmp_path / "runs" / "birds" and run.finished
    assert vitrail.run("birds.toml", overrides=("run.rounds=0",)).path.name == "birds-2"
