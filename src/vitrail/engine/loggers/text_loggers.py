"""Figures as text files that grow with the run: CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from vitrail.engine.loggers.logger import LOGGERS, Logger, Row
from vitrail.engine.storage.journal import COLUMNS
from vitrail.files import write_text

_KEYS = ("at", "round", "site")


class TextLogger(Logger):
    """A file of lines, `metrics.SUFFIX` in the run folder unless a target names another."""

    suffix: ClassVar[str]

    @property
    def file(self) -> Path:
        """Where it writes."""
        return Path(self.target) if self.target else self.folder / f"metrics.{self.suffix}"

    def start(self, begun: int) -> None:
        """Keep the rows of rounds that count; a torn last line goes."""
        kept = []
        if begun and self.file.exists():
            text = self.file.read_text(encoding="utf-8")
            kept = [
                row
                for row in self.read(text[: text.rfind("\n") + 1])
                if int(str(row["at"])) <= begun
            ]
        write_text(self.file, self.make_heading() + "".join(map(self.format_row, kept)))

    def log(self, rows: Sequence[Row]) -> None:
        """Append some lines."""
        with self.file.open("a", encoding="utf-8", newline="") as handle:
            handle.write("".join(map(self.format_row, rows)))

    def make_heading(self) -> str:
        """What stands above the rows."""
        return ""

    def format_row(self, row: Row) -> str:
        """One line."""
        raise NotImplementedError(f"{type(self).__name__} must format_row")

    def read(self, text: str) -> list[dict[str, object]]:
        """The rows of a file, `at` as a number."""
        raise NotImplementedError(f"{type(self).__name__} must read")


@LOGGERS.register("csv")
class CsvLogger(TextLogger):
    """A table for a spreadsheet, one line per round and site."""

    suffix = "csv"

    def make_heading(self) -> str:
        """The columns."""
        return self._format([*_KEYS, *COLUMNS])

    def format_row(self, row: Row) -> str:
        """One line; what is not known is empty."""
        return self._format([row.get(name) for name in (*_KEYS, *COLUMNS)])

    def read(self, text: str) -> list[dict[str, object]]:
        """Rows as they were written."""
        rows = csv.DictReader(io.StringIO(text))
        return [{**row, "at": int(row["at"])} for row in rows]

    def _format(self, cells: Sequence[object]) -> str:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(
            ["" if cell is None else cell for cell in cells]
        )
        return line.getvalue()


@LOGGERS.register("json")
class JsonLogger(TextLogger):
    """JSON lines, as in `metrics.jsonl` of the run folder, somewhere else."""

    suffix = "log.jsonl"

    def format_row(self, row: Row) -> str:
        """One object; NaN and infinity, which JSON does not have, are null."""
        return json.dumps({k: v if v == v else None for k, v in row.items()}) + "\n"

    def read(self, text: str) -> list[dict[str, object]]:
        """Rows as they were written."""
        return [json.loads(line) for line in text.splitlines()]
