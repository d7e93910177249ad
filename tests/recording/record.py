"""Record what the cases come to: `python tests/recording/record.py [--only NAME ...]`.

Prints every row that changed, was added or was removed, and which of checkpoint, state, ledger and
metrics it is; all other rows stay as they are. Each row says on which machine it was recorded.

Re-record only in a commit that names each changed row and says why it changed. A row that changes
without a reason is a bug, not a new truth.

`--folders` writes the run folders of `cases.STORED` that are not there yet, and what their runs
come to. One that is there is never written again: it stands for what users have on their disks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from cases import CASES, STORED, Stored
from measure import KINDS, machine, measure
from play import play

import vitrail

HERE = Path(__file__).resolve().parent
FILE = HERE / "digests.json"
FOLDERS = HERE / "folders" / "v0.1"
Rows = dict[str, dict[str, Any]]


def read() -> dict[str, Any]:
    """The recorded digests, with what they were recorded on."""
    if not FILE.exists():
        return {"machines": {}, "cases": {}, "folders": {}}
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def changes(old: Rows, new: Rows, name: str) -> str | None:
    """One line on what became of a row, or None if nothing did."""
    if name not in new:
        return f"removed  {name}"
    if name not in old:
        return f"added    {name}"
    parts = [kind for kind in (*KINDS, "sketch") if old[name][kind] != new[name][kind]]
    return f"changed  {name}: {', '.join(parts)}" if parts else None


def name_machine(recorded: dict[str, Any]) -> str:
    """The name under which a file knows this machine; a new one is written down."""
    here, machines = machine(), recorded["machines"]
    for name, known in machines.items():
        if known == here:
            return str(name)
    name = f"{here['processor']['capability'].lower()}-{len(machines) + 1}"
    machines[name] = here
    return name


def record(names: list[str]) -> Rows:
    """Play some cases."""
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = play(CASES[name], Path(folder))
    return found


class Stop(Exception):
    """Ends a run that is to be stored unfinished."""


def store(stored: Stored, folder: Path) -> dict[str, Any]:
    """Write a run folder, up to its round; what the same run comes to if nobody stops it."""

    def stop(progress: Any) -> None:
        if progress.round == stored.until:
            raise Stop

    with suppress(Stop):
        vitrail.run(stored.config(), folder, stop)
    (folder / "lock").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as whole:
        return measure(vitrail.run(stored.config(), Path(whole) / "run").path)


def write(recorded: dict[str, Any]) -> None:
    """One line a row, so that a difference names its rows."""
    lines = []
    for part in ("machines", "cases", "folders"):
        rows = [f"  {json.dumps(n)}: {json.dumps(row)}" for n, row in recorded[part].items()]
        lines.append(f' "{part}": {{\n' + ",\n".join(rows) + "\n }" + ("," * (part != "folders")))
    FILE.write_text("{\n" + "\n".join(lines) + "\n}\n")


def main() -> None:
    """Record, and say what changed."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--only", nargs="+", metavar="NAME", help="these cases, and no other")
    words.add_argument("--folders", action="store_true", help="store run folders that are missing")
    asked = words.parse_args()
    recorded, own = read(), [name for name, case in CASES.items() if case.same is None]
    unknown = [name for name in asked.only or () if name not in own]
    if unknown:
        sys.exit(f"there is no case {unknown[0]!r} with digests of its own in cases.py")
    here = name_machine(recorded)
    if asked.folders:
        for name, stored in STORED.items():
            if not (FOLDERS / name).exists():
                row = store(stored, FOLDERS / name)
                recorded["folders"][name] = {"machine": here, **row}
                print(f"stored   {name}")
    else:
        new = {name: {"machine": here, **row} for name, row in record(asked.only or own).items()}
        rows = {**recorded["cases"], **new} if asked.only else new
        names = sorted({*recorded["cases"], *rows})
        told = [line for name in names if (line := changes(recorded["cases"], rows, name))]
        print("\n".join(told) or "nothing changed")
        recorded["cases"] = {name: rows[name] for name in own if name in rows}
    write(recorded)


if __name__ == "__main__":
    os.environ["VITRAIL_CACHE"] = tempfile.mkdtemp()
    try:
        main()
    finally:
        shutil.rmtree(os.environ["VITRAIL_CACHE"])
