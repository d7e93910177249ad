"""The run folder: who knows what is kept apart, and every file is whole or not there."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from vitrail.config import Config, Loaded, dump, load
from vitrail.errors import RunError
from vitrail.files import report_write_errors, write_text
from vitrail.log_file import LOG_FILE, append_log

_WAIT_SECONDS = 20.0
PRIVATE_METRICS_FILE = "figures.jsonl"  # of a site, in its own folder
HISTORY_FILE = "lifetime.json"
"""At a site of a real federation: what all its runs have spent so far. It is never sent."""
AUDIT_TABLES_FILE = "separability.json"  # in the server's: what sites told for audits


class RunFolder:
    """`config.toml`, metrics and log at the top; `server/` and `sites/` below."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.toml"
        self.metrics_file = self.path / "metrics.jsonl"
        self.parquet_file = self.path / "metrics.parquet"
        self.log_file = self.path / LOG_FILE
        self.server = self.path / "server"
        self.sites = self.path / "sites"
        self._lock: int | None = None

    def check_free(self) -> None:
        """Refuse a folder that holds any file; empty folders of a killed start do not count."""
        files = (p for p in self.path.rglob("*") if not p.is_dir() and p.suffix != ".tmp")
        if self.path.exists() and (not self.path.is_dir() or next(files, None) is not None):
            raise RunError(
                "this folder exists and is not empty",
                where=str(self.path),
                hint="Choose another --out, or go on with `vitrail resume`.",
            )

    def create(self, config: Config) -> None:
        """Make a new folder; one that holds anything is never touched."""
        self.check_free()
        with report_write_errors(self.config_file):
            self.server.mkdir(parents=True, exist_ok=True)
            self.sites.mkdir(exist_ok=True)
        write_text(self.config_file, dump(config))

    def open(self) -> Loaded:
        """The stored configuration of an existing run."""
        if not self.config_file.is_file():
            raise RunError(
                "this is not a run folder (it has no config.toml)",
                where=str(self.path),
                hint="`vitrail run FILE.toml --out DIR` makes one.",
            )
        return load(self.config_file, stored=True)

    def lock(self) -> int:
        """Hold the folder; workers inherit the lock, so that no orphan works beside a resume."""
        with report_write_errors(self.path / "lock"):
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > deadline:
                    os.close(handle)
                    raise RunError(
                        "another process is working in this run folder",
                        where=str(self.path),
                        hint="Wait until it ends, or stop it first.",
                    ) from None
                time.sleep(0.1)
        self._lock = handle
        return handle

    @property
    def lock_handle(self) -> tuple[int, ...]:
        """The held lock as a descriptor to pass on, if there is one."""
        return () if self._lock is None else (self._lock,)

    def sweep_up(self) -> None:
        """Remove the half-written files of a killed process."""
        for path in self.path.rglob(".*.tmp"):
            path.unlink(missing_ok=True)

    def unlock(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def log(self, text: str) -> None:
        """Append a line with the time to log.txt."""
        append_log(self.log_file, text)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append metrics as JSON lines."""
        text = "".join(json.dumps(_null_non_finite(row)) + "\n" for row in rows)
        with (
            report_write_errors(self.metrics_file),
            self.metrics_file.open("a", encoding="utf-8") as handle,
        ):
            handle.write(text)

    def commit(self) -> None:
        """Bring the metrics to disk before the checkpoint that counts on them."""
        if self.metrics_file.exists():
            with report_write_errors(self.metrics_file), self.metrics_file.open("rb") as handle:
                os.fsync(handle.fileno())

    def cut_back(self, round_: int) -> None:
        """Forget metrics written after a round, and a torn last line."""
        if self.metrics_file.exists():
            kept = [row for row in self.lines() if row["at"] <= round_]
            write_text(self.metrics_file, "".join(json.dumps(row) + "\n" for row in kept))

    def lines(self) -> list[dict[str, Any]]:
        """Every whole metrics line."""
        if not self.metrics_file.exists():
            return []
        raw = self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in raw if line.endswith("\n")]

    def read_private_metrics(self) -> list[dict[str, Any]]:
        """Figures that never left a site; in simulation they are in reach."""
        rows = []
        for path in sorted(self.sites.glob(f"*/{PRIVATE_METRICS_FILE}")):
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):  # the torn line of a killed process
                    rows.append(json.loads(line))
        return rows

    def rows(self) -> list[dict[str, Any]]:
        """One row per round and site: what was written about it in two turns, together. That one
        end of a federation does not know a figure hides it from nobody who does."""
        by_place: dict[tuple[int, str], dict[str, Any]] = {}
        for line in (*self.read_private_metrics(), *self.lines()):
            row = by_place.setdefault((line["round"], line["site"]), {})
            known = {name for name, value in row.items() if value is not None}
            row.update(
                {k: v for k, v in line.items() if k != "at" and (v is not None or k not in known)}
            )
        return [by_place[key] for key in sorted(by_place)]

    def write_parquet(self, columns: tuple[str, ...]) -> None:
        """Write metrics.parquet with all columns, also those nobody filled."""
        rows = self.rows()
        table: dict[str, Any] = {
            "round": pa.array([r["round"] for r in rows], pa.int64()),
            "site": pa.array([r["site"] for r in rows], pa.string()),
        }
        for name in columns:
            table[name] = pa.array([_number(r.get(name)) for r in rows], pa.float64())
        temporary = self.parquet_file.with_suffix(".tmp")
        with report_write_errors(self.parquet_file):
            pq.write_table(pa.table(table), temporary)
            temporary.replace(self.parquet_file)


def find_free_folder(parent: Path, stem: str) -> Path:
    """The first of stem, stem-2, stem-3 ... that does not exist."""
    names = (stem if n == 1 else f"{stem}-{n}" for n in itertools.count(1))
    return next(parent / name for name in names if not (parent / name).exists())


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _null_non_finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what is not a finite number is null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
