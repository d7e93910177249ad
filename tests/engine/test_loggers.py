"""Loggers: every one repeats the run's own figures, after a kill too, and none can end a run."""

from __future__ import annotations

import copy
import csv
import json
import math

import pytest

import vitrail
from vitrail.engine.federation import SERVER
from vitrail.engine.loggers import LOGGERS, Logger
from vitrail.engine.loggers.logger import iterate_figures
from vitrail.errors import ConfigError

BASE = {
    "data": {"image_size": 16, "aviary": {"images": 60, "classes": 3}},
    "partition": {"sites": 2},
    "model": {"backbone": "small-cnn", "width": 4},
    "run": {"rounds": 3, "seed": 3, "checkpoint_every": 2},
}


def play(path, *loggers, on_round=None, **run):
    config = copy.deepcopy(BASE)
    config["run"] |= {"loggers": list(loggers), **run}
    return vitrail.run(config, path, on_round)


def stop_after(round_):
    def stop(progress):
        if progress.round == round_:
            raise KeyboardInterrupt

    return stop


def read_metrics(path):
    lines = (path / "metrics.jsonl").read_text().splitlines()
    return sorted(iterate_figures(map(json.loads, lines), SERVER))


def read_json(path):
    lines = (path / "metrics.log.jsonl").read_text().splitlines()
    return sorted(iterate_figures(map(json.loads, lines), SERVER))


def read_csv(path):
    with (path / "metrics.csv").open(newline="") as handle:
        rows = [
            {k: v if k == "site" else float(v) for k, v in row.items() if v != ""}
            for row in csv.DictReader(handle)
        ]
    return sorted(iterate_figures(rows, SERVER))


def read_tensorboard(path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulators.EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    return sorted((tag, e.step, e.value) for tag in tags for e in events.Scalars(tag))


def read_mlflow(path):
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(tracking_uri=(path / "mlruns").resolve().as_uri())
    number = (path / "mlflow-run.txt").read_text().strip()
    run = client.get_run(number)
    assert run.data.params["run.rounds"] == "3" and run.info.status == "FINISHED"
    points = {
        (name, m.step, m.value)
        for name in run.data.metrics
        for m in client.get_metric_history(number, name)
    }
    return sorted(points)


READERS = {
    "csv": read_csv,
    "json": read_json,
    "tensorboard": read_tensorboard,
    "mlflow": read_mlflow,
}


def assert_same_figures(given, expected):
    names = [(name, round_) for name, round_, value in expected if math.isfinite(value)]
    assert [(name, round_) for name, round_, value in given if math.isfinite(value)] == names
    numbers = [value for *_, value in expected if math.isfinite(value)]
    assert [v for *_, v in given if math.isfinite(v)] == pytest.approx(numbers, rel=1e-6)


def test_every_logger_is_tested():
    assert set(READERS) == {n for n in LOGGERS if LOGGERS[n].__module__.startswith("vitrail.")}


def test_all_loggers_have_the_runs_own_figures(tmp_path):
    play(tmp_path / "run", *READERS)
    expected = read_metrics(tmp_path / "run")
    assert {"seconds", "accuracy"} <= {name.rpartition("/")[2] for name, *_ in expected}
    for read in READERS.values():
        assert_same_figures(read(tmp_path / "run"), expected)


@pytest.mark.parametrize("name", ["csv", "json", "tensorboard"])
def test_a_resumed_run_has_every_figure_once(name, tmp_path):
    """It stops in round 3, after the checkpoint of round 2: figures of round 3 come again."""
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", name, on_round=stop_after(3))
    vitrail.resume(tmp_path / "run")
    given, expected = READERS[name](tmp_path / "run"), read_metrics(tmp_path / "run")
    assert_same_figures(given, expected)


def test_a_torn_line_is_forgotten(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path / "run", "csv", on_round=stop_after(3))
    with (tmp_path / "run" / "metrics.csv").open("a") as handle:
        handle.write("2,2,si")
    vitrail.resume(tmp_path / "run")
    assert_same_figures(read_csv(tmp_path / "run"), read_metrics(tmp_path / "run"))


def test_a_target_is_where_it_goes(tmp_path):
    play(tmp_path / "run", f"csv:{tmp_path / 'there.csv'}")
    assert (tmp_path / "there.csv").exists() and not (tmp_path / "run" / "metrics.csv").exists()


def test_mlflow_looks_at_no_address_in_the_environment(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    play(tmp_path / "run", "mlflow")
    assert_same_figures(read_mlflow(tmp_path / "run"), read_metrics(tmp_path / "run"))


@LOGGERS.register("broken-here")
class Broken(Logger):
    """Fails in the second round."""

    count = 0

    def log(self, rows):
        self.count += 1
        if self.count > 2:
            raise OSError("no space left")


def test_a_logger_that_fails_is_left_out_and_said(tmp_path):
    run = play(tmp_path / "run", "broken-here", "csv")
    assert run.finished
    assert (tmp_path / "run" / "log.txt").read_text().count("'broken-here' cannot be used") == 1
    assert_same_figures(read_csv(tmp_path / "run"), read_metrics(tmp_path / "run"))


def test_unknown_and_missing_loggers_are_refused_before_the_start(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="no logger called 'tensorbord'"):
        play(tmp_path / "a", "tensorbord")
    monkeypatch.setattr(Broken, "package", "not_a_package_at_all")
    with pytest.raises(ConfigError, match="not_a_package_at_all, which is not installed"):
        play(tmp_path / "b", "broken-here")
    assert not (tmp_path / "b" / "config.toml").exists()


def test_a_run_is_the_same_with_and_without(tmp_path):
    plain, logged = play(tmp_path / "a"), play(tmp_path / "b", "csv")
    assert str(plain.model().state_dict()) == str(logged.model().state_dict())
