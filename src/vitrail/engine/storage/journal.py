"""The journal of a run: one metrics row per round and site, and a log a person can read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from vitrail.engine.federation import SERVER
from vitrail.engine.plan import CLASSIFIER_METRICS, PARTS_METRICS, Plan
from vitrail.engine.release_summary import summarize_release
from vitrail.engine.round_report import RoundReport
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.files import write_text
from vitrail.release.update import Update

if TYPE_CHECKING:
    from vitrail.engine.loggers import LoggerGroup

AGREEMENT = ("eigengap_mean", "eigengap_min", "consensus_mean", "consensus_min")
SERVER_METRICS = (*AGREEMENT, "image_steps")  # what a method's own work at the server comes to
COLUMNS = (
    *CLASSIFIER_METRICS,
    *PARTS_METRICS,
    "test_examples",
    "train_loss",
    "examples",
    "steps",
    "shared_images",
    "image_steps",
    "bytes_up",
    "bytes_down",
    "seconds",
    "accepted",
    "dropped",
    "refused",
    *AGREEMENT,
)


class Journal:
    """Writes what happened. A site's figures of round t travel with its turn t + 1."""

    def __init__(self, folder: RunFolder, plan: Plan) -> None:
        self.folder = folder
        self.plan = plan
        self.loggers: LoggerGroup | None = None  # where rows go as well
        self._at = 0
        self._latest: dict[str, float | None] = {"accuracy": None, "loss": None}
        self._has_server_test = False

    def start(self, roster: Mapping[str, Mapping[str, float]]) -> None:
        """The first lines of the log."""
        config, shared = self.plan.config, summarize_release(self.plan)
        images = sum(facts["examples"] for facts in roster.values())
        count = (
            "an untold number of images" if self.plan.private else f"{images:.0f} training images"
        )
        self.folder.log(
            f"{config.method.name} on {config.model.backbone}: {len(roster)} sites, "
            f"{count}, {len(self.plan.classes)} classes"
        )
        for line in (*shared.lines(), f"shared: {shared.text()}"):
            self.folder.log(line)

    def write_round(self, report: RoundReport, seconds: float) -> None:
        """One finished round: a row for every site that took part, one for the server."""
        self._at = report.round
        rows: list[dict[str, Any]] = []
        for update in report.updates:
            rows.extend(self._make_evaluation_rows(update))
            rows.append(
                {
                    **self._key(report.round, update.site),
                    "examples": update.counts.get("examples"),
                    "steps": update.counts.get("steps"),
                    "train_loss": update.metrics.get("train_loss"),
                    "seconds": update.metrics.get("seconds"),
                    "bytes_up": report.sizes[update.site][0],
                    "bytes_down": report.sizes[update.site][1],
                    "shared_images": update.metrics.get("shared_images"),
                    "image_steps": update.metrics.get("image_steps"),
                }
            )
        rows.append(
            {
                **self._key(report.round, SERVER),
                "seconds": seconds,
                "bytes_up": report.bytes_up,
                "bytes_down": report.bytes_down,
                "accepted": len(report.accepted),
                "dropped": len(report.dropped),
                "refused": len(report.refused),
                **{n: report.figures[n] for n in SERVER_METRICS if n in report.figures},
            }
        )
        self._append(rows)
        self._note(report.updates)
        self._log_absent(report, f"round {report.round}")
        for site in report.alarmed:
            self.folder.log(
                f"round {report.round}: alarm: the updates of {site} have been odd for some rounds "
                "(server/alarms.jsonl)"
            )
        if report.void:
            why = f": {report.shortage}" if report.shortage else ""
            count = len(report.accepted)
            self.folder.log(f"round {report.round}: void, {count} accepted updates{why}")

    def write_server(self, round_: int, figures: Mapping[str, float | None]) -> None:
        """The global model on the server's test images."""
        self._has_server_test = True
        metrics = {name: figures.get(name) for name in CLASSIFIER_METRICS}
        self._append(
            [
                {
                    **self._key(round_, SERVER),
                    **metrics,
                    "test_examples": figures["examples"],
                    "at": round_,
                }
            ]
        )
        self._latest = {"accuracy": figures["accuracy"], "loss": figures["loss"]}
        self.folder.log(f"round {round_}: global model accuracy {_text(figures['accuracy'])}")

    def write_closing(self, report: RoundReport) -> None:
        """The figures of the final model at every site."""
        self._at = report.round
        self._append(row for update in report.updates for row in self._make_evaluation_rows(update))
        self._note(report.updates)
        self._log_absent(report, "closing turn")

    def _append(self, rows: Iterable[dict[str, Any]]) -> None:
        """Rows for the metrics of the folder, and for the loggers of the run."""
        rows = list(rows)
        self.folder.append(rows)
        if self.loggers is not None:
            self.loggers.log(rows)

    def _log_absent(self, report: RoundReport, when: str) -> None:
        for site, reason in {**report.dropped, **report.refused}.items():
            verb = "refused" if site in report.refused else "without"
            self.folder.log(f"{when}: {verb} {site}: {reason}")

    def write_finished(self) -> None:
        """The last line; `finished` looks for it."""
        self.folder.log(f"finished after {self.plan.config.run.rounds} rounds")
        write_text(self.folder.server / "finished", "")

    def latest(self) -> tuple[float | None, float | None]:
        """Accuracy and loss as last seen, for a progress bar."""
        return self._latest["accuracy"], self._latest["loss"]

    def _key(self, round_: int, site: str) -> dict[str, Any]:
        return {"at": self._at, "round": round_, "site": site}

    def _make_evaluation_rows(self, update: Update) -> list[dict[str, Any]]:
        """A site's figures of the model it received, which is that of the round before."""
        if "accuracy" not in update.metrics:
            return []
        metrics = {
            name: update.metrics.get(name)
            for name in (*CLASSIFIER_METRICS, *PARTS_METRICS, "test_examples")
        }
        return [{**self._key(update.round - 1, update.site), **metrics}]

    def _note(self, updates: list[Update]) -> None:
        """Without test images at the server, the sites' mean stands for the global figure."""
        if self._has_server_test:
            return
        for name in ("accuracy", "loss"):
            pairs = [
                (value, update.metrics.get("test_examples") or 0.0)
                for update in updates
                if (value := update.metrics.get(name)) is not None
            ]
            total = sum(weight for _, weight in pairs)
            if total:
                self._latest[name] = sum(value * weight for value, weight in pairs) / total


def _text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
