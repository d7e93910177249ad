"""The transcript: exactly what the server sent and received, kept if `run.record_updates`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from vitrail.engine.tasks import RoundMessage, Task
from vitrail.errors import RunError, suggest_name
from vitrail.files import make_folder_name, read_header, read_tensors, write_tensors
from vitrail.release.update import Update


class Transcript:
    """`server/transcript/round-N/`: `sent.safetensors`, and `updates/SITE.safetensors` each."""

    def __init__(self, server: Path) -> None:
        self.folder = server / "transcript"

    def _round(self, number: int) -> Path:
        return self.folder / f"round-{number:05d}"

    def write_sent(self, down: RoundMessage) -> None:
        """Write down what went to the sites in a round."""
        meta = {"round": down.round, "digest": down.digest}
        write_tensors(self._round(down.round) / "sent.safetensors", down.tensors, meta)

    def write_received(
        self, task: Task, update: Update, weight: float, refused: str | None
    ) -> None:
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
        name = f"{make_folder_name(task.site)}.safetensors"
        write_tensors(self._round(task.round) / "updates" / name, update.tensors, meta)


@dataclass(frozen=True)
class ReceivedUpdate:
    """One update as it came, what it weighed in the sum, and why it was refused if it was."""

    update: Update
    weight: float
    refused: str | None


class Recording:
    """A transcript opened for reading: rounds, what was sent, and who answered what."""

    def __init__(self, server: Path) -> None:
        self.folder = server / "transcript"
        if not self.rounds():
            raise RunError(
                "this run kept no updates",
                where=str(server.parent),
                hint="Run it again with `--set run.record_updates=true` ([run] record_updates).",
            )

    def rounds(self) -> list[int]:
        """The rounds that were recorded, in order."""
        paths = self.folder.glob("round-*/sent.safetensors")
        return sorted(int(path.parent.name.removeprefix("round-")) for path in paths)

    def _round(self, number: int) -> Path:
        if number not in self.rounds():
            known = self.rounds()
            raise RunError(
                f"round {number} was not recorded",
                where=str(self.folder),
                hint=f"Rounds {known[0]} to {known[-1]} were.",
            )
        return self.folder / f"round-{number:05d}"

    def sites(self, number: int) -> tuple[str, ...]:
        """Who answered in a round, by name."""
        folder = self._round(number) / "updates"
        return tuple(sorted(read_header(path)["site"] for path in folder.glob("*.safetensors")))

    def read_sent(self, number: int) -> dict[str, Tensor]:
        """The message of a round."""
        return read_tensors(self._round(number) / "sent.safetensors")[0]

    def read_received(self, number: int, site: str) -> ReceivedUpdate:
        """A site's answer in a round."""
        path = self._round(number) / "updates" / f"{make_folder_name(site)}.safetensors"
        if not path.is_file():
            raise RunError(
                f"site {site!r} sent nothing in round {number}",
                where=str(self.folder),
                hint=suggest_name(site, self.sites(number)),
            )
        tensors, meta = read_tensors(path)
        update = Update(
            site=meta["site"],
            round=int(meta["round"]),
            stage=meta["stage"],
            tensors=tensors,
            counts=meta["counts"],
            metrics=meta["metrics"],
        )
        return ReceivedUpdate(update, float(meta["weight"]), meta["refused"])
