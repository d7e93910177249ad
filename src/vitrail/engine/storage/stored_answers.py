"""What a site answered, as it left, so that the same message gets the same bytes again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vitrail.engine.tasks import Reply
from vitrail.errors import RunError
from vitrail.files import read_tensors, write_tensors
from vitrail.release.update import Update


@dataclass(frozen=True)
class StoredAnswers:
    """`answers/` in a site's folder of a run; the last `count` rounds are kept."""

    folder: Path
    count: int

    def save(self, update: Update, kept: bool, message: str) -> None:
        """Keep an answer before it is counted and before it leaves."""
        header = Reply(update, kept).header()
        write_tensors(self._file(update.round), update.tensors, {"message": message, **header})
        for file in self.folder.glob("round-*.safetensors"):
            if file.name < self._file(update.round - self.count).name:
                file.unlink(missing_ok=True)

    def load(self, round_: int, message: str) -> Reply:
        """The answer to a message that was answered before, or a refusal."""
        file = self._file(round_)
        tensors, header = read_tensors(file) if file.exists() else ({}, {})
        if header.get("message") != message:
            raise RunError(
                f"round {round_} was answered, and the answer is no longer kept here",
                where=str(file.parent),
                hint="Another one would have other noise, and two of them tell more than one.",
            )
        return Reply.read(header, tensors)

    def _file(self, round_: int) -> Path:
        return self.folder / f"round-{max(0, round_):05d}.safetensors"
