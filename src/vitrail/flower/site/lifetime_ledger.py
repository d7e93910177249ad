"""The lifetime ledger of a site, beside its secret: what every run may spend on which images.

A line is written before anything of a run leaves, with the most that the run may spend; when the
run is over, another line says what it did spend. So a folder that is lost counts in full. Images
are known by salted digests of their files, patients by salted digests of their names. Copies that
were encoded anew escape a digest of files; where patients are known, they are the better key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vitrail.data.image_set import ImageSet
from vitrail.engine.data_pins import PINS_FILE
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.flower.site.site_config import FAREWELL_FILE, SiteConfig
from vitrail.local.inputs import Rows
from vitrail.release.ledger import Ledger
from vitrail.release.ledger_chain import walk_chain
from vitrail.release.lifetime_spending import Spending, read_spending
from vitrail.rng import Key

LIFETIME_FILE = "lifetime.jsonl"


@dataclass(frozen=True)
class RunSpending:
    """One run: on which images, and what it spent or, as long as it is not over, may spend."""

    run: str
    data: str
    keys: frozenset[str] | None  # None: a run from before there was this ledger, on any image
    spending: Spending
    over: bool = False


@dataclass(frozen=True)
class Share:
    """Images that were in the same runs."""

    images: int
    runs: tuple[RunSpending, ...]
    spending: Spending = field(default_factory=Spending)


class LifetimeLedger:
    """`lifetime.jsonl` in the folder of a site."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self.ledger = Ledger(config.folder / LIFETIME_FILE, durable=True)

    def begin(self, run: str, data: str, keys: Iterable[str], plan: Spending) -> None:
        """Count a run in full, before anything of it leaves."""
        self.check()
        self.settle()
        listed = sorted(set(keys))
        self.ledger.write(
            {"kind": "begin", "run": run, "data": data, "images": listed, "plan": plan.to_json()}
        )

    def settle(self) -> None:
        """Write down what runs that are over did spend, instead of what they might have."""
        for at, line in enumerate(self._read()):
            if line["kind"] == "begin" and not self._is_settled(at):
                folder = self.config.run_folder(line["run"]).path
                ended = (folder / "server" / FAREWELL_FILE).exists()
                ledger = SiteFolder(folder, self.config.name).ledger().path
                holds = ended and ledger.exists() and not walk_chain(ledger).problem
                if holds and self._is_last(at, line["run"]):
                    spent = read_spending(self._read_run(folder))
                    self.ledger.write({"kind": "over", "of": at, "spent": spent.to_json()})

    def list_runs(self) -> list[RunSpending]:
        """Every run, in the order in which they began."""
        self.check()
        lines = self._read()
        over = [line for line in lines if line["kind"] == "over"]
        ends = {line["of"]: Spending.read(line["spent"]) for line in over}
        runs = []
        for at, line in enumerate(lines):
            if line["kind"] == "begin":
                keys = None if line["images"] is None else frozenset(line["images"])
                spending = ends[at] if at in ends else self._read_open(line)
                runs.append(RunSpending(line["run"], line["data"], keys, spending, at in ends))
        return runs

    def _read_open(self, line: Mapping[str, Any]) -> Spending:
        """The plan of a run that is not over; no bound once anything left without a proof."""
        plan = Spending.read(line["plan"])
        spent = read_spending(self._read_run(self.config.run_folder(line["run"]).path))
        return replace(plan, bounded=plan.bounded and spent.bounded)

    def list_shares(self, keys: Sequence[str] | None = None) -> list[Share]:
        """Images by the runs they were in: those of `keys`, or all that were in any run."""
        runs = self.list_runs()
        asked = keys if keys is not None else {k for run in runs for k in run.keys or ()}
        groups: dict[tuple[int, ...], int] = {}
        for key in set(asked):
            inside = tuple(i for i, r in enumerate(runs) if r.keys is None or key in r.keys)
            groups[inside] = groups.get(inside, 0) + 1
        shares = []
        for inside, count in groups.items():
            total = Spending()
            for i in inside:
                total = total.join(runs[i].spending)
            shares.append(Share(count, tuple(runs[i] for i in inside), total))
        return shares

    def check(self) -> None:
        """Refuse a ledger that was changed, or put back to before a run that is here."""
        path = self.ledger.path
        if not path.exists():
            self._adopt()
        chain = walk_chain(path) if path.exists() else None
        if chain is not None and chain.problem:
            raise _refuse(f"it does not hold: {chain.problem}", path)
        known = {line["run"] for line in self._read() if line["kind"] == "begin"}
        for pins in sorted(self.config.folder.glob(f"runs/*/{PINS_FILE}")):
            if pins.parent.name not in known:
                raise _refuse(
                    f"it does not know the run {pins.parent.name!r}, which began here", path
                )

    def _adopt(self) -> None:
        """Runs from before there was this ledger count for every image."""
        for config in sorted(self.config.folder.glob("runs/*/config.toml")):
            folder = config.parent
            if not (folder / PINS_FILE).exists():
                plan = read_spending(self._read_run(folder)).to_json()
                line = {"kind": "begin", "run": folder.name, "data": "", "images": None}
                self.ledger.write({**line, "plan": plan})

    def _is_settled(self, at: int) -> bool:
        return any(line["kind"] == "over" and line["of"] == at for line in self._read())

    def _is_last(self, at: int, run: str) -> bool:
        """Whether the folder is that of this line: a run may have begun again under its name."""
        lines = self._read()
        return not any(x["kind"] == "begin" and x["run"] == run for x in lines[at + 1 :])

    def _read(self) -> list[dict[str, Any]]:
        return self.ledger.lines()

    def _read_run(self, folder: Path) -> list[dict[str, Any]]:
        return SiteFolder(folder, self.config.name).ledger().lines()


def list_keys(images: ImageSet, rows: Rows, roots: Sequence[Path], secret: Key) -> list[str]:
    """The salted digest of each image's patient, or, where nobody says whose it is, of its file."""
    key = secret.at("lifetime of an image").secret()
    keys = []
    for row in rows.tolist():
        patient = "" if images.patients is None else str(images.patients[row])
        kind, content = "patient", patient.encode()
        if not patient:
            kind, content = "image", _read_content(images, row, roots)
        keys.append(hashlib.blake2b(kind.encode() + content, key=key, digest_size=12).hexdigest())
    return keys


def _read_content(images: ImageSet, row: int, roots: Sequence[Path]) -> bytes:
    """The bytes of an image's file; of one without a file, its pixels as they were read."""
    for root in roots:
        path = root / str(images.names[row])
        if path.is_file():
            return path.read_bytes()
    pixels = np.ascontiguousarray(images.images[row])
    return json.dumps(pixels.shape).encode() + pixels.tobytes()


def _refuse(why: str, path: Path) -> RunError:
    return RunError(
        f"the lifetime ledger of this site cannot be trusted: {why}",
        where=str(path),
        hint="Restore the newest copy of it; without it nobody knows what was spent on the images.",
    )
