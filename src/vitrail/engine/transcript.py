"""The transcript: exactly what the server sent and received, kept if `run.record_updates`."""

from __future__ import annotations

from pathlib import Path

from vitrail.engine.tasks import Down, Task
from vitrail.files import folder_name, write_tensors
from vitrail.release.update import Update


class Transcript:
    """`server/transcript/round-N/`: `sent.safetensors`, and `updates/SITE.safetensors` each."""

    def __init__(self, server: Path) -> None:
        self.folder = server / "transcript"

    def _round(self, number: int) -> Path:
        return self.folder / f"round-{number:05d}"

    def sent(self, down: Down) -> None:
        """Write down what went to the sites in a round."""
        meta = {"round": down.round, "digest": down.digest}
        write_tensors(self._round(down.round) / "sent.safetensors", down.tensors, meta)

    def received(self, task: Task, update: Update, weight: float, refused: str | None) -> None:
        """Write down an update as it came, and why it was refused if it was."""
        meta = {
            "site": update.site,
            "round": update.round,
            "stage": update.stage,
            "counts": dict(update.counts),
            "metrics": dict(update.metrics),
            "weight": weight,
            "refused": refused,
        }
        name = f"{folder_name(task.site)}.safetensors"
        write_tensors(self._round(task.round) / "updates" / name, update.tensors, meta)
