"""Figures and settings for MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vitrail.engine.federation import SERVER
from vitrail.engine.loggers.logger import LOGGERS, Logger, Row, iterate_figures
from vitrail.files import write_text

if TYPE_CHECKING:
    from mlflow import MlflowClient

_EXPERIMENT = "vitrail"
_MOST_METRICS, _MOST_PARAMETERS, _LONGEST = 1000, 100, 500  # of one request, of a parameter


@LOGGERS.register("mlflow")
class MlflowLogger(Logger):
    """An MLflow run in the experiment `vitrail`: settings as parameters, figures as metrics.

    The target is a tracking address (`mlflow:sqlite:///runs.db`); without one, the folder
    `mlruns` of the run folder. Addresses in the environment are not looked at.
    """

    package = "mlflow"
    extra = "loggers"
    _client: MlflowClient | None = None
    _run = ""

    def start(self, begun: int) -> None:
        """Make an MLflow run, or go on with the one of this run folder."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing phones home
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        address = self.target or (self.folder / "mlruns").resolve().as_uri()
        self._client = MlflowClient(tracking_uri=address)
        file = self.folder / "mlflow-run.txt"
        if begun and file.exists():
            self._run = file.read_text(encoding="utf-8").strip()
            return
        experiment = self._client.get_experiment_by_name(_EXPERIMENT)
        number = (
            self._client.create_experiment(_EXPERIMENT)
            if experiment is None
            else experiment.experiment_id
        )
        self._run = self._client.create_run(number, run_name=self.folder.name).info.run_id
        write_text(file, self._run + "\n")
        self._write_settings()

    def _write_settings(self) -> None:
        """The configuration, key by key."""
        from mlflow.entities import Param

        pairs = [Param(name, str(value)[:_LONGEST]) for name, value in flatten(self.settings)]
        for at in range(0, len(pairs), _MOST_PARAMETERS):
            self._send(params=pairs[at : at + _MOST_PARAMETERS])

    def log(self, rows: Sequence[Row]) -> None:
        """One point a figure and round."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        points = [
            Metric(name, value, now, round_)
            for name, round_, value in iterate_figures(rows, SERVER)
            if value == value
        ]
        for at in range(0, len(points), _MOST_METRICS):
            self._send(metrics=points[at : at + _MOST_METRICS])

    def close(self) -> None:
        """Mark the MLflow run as ended."""
        if self._client is not None:
            self._client.set_terminated(self._run)

    def _send(self, **batch: Any) -> None:
        if self._client is not None:
            self._client.log_batch(self._run, **batch)


def flatten(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested tables, by dotted names."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value
