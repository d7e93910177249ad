"""The lifetime ledger of a site, beside its secret: what every run may spend on which images.

A line is written before anything of a run leaves, with the most that the run may spend; when the
run is over, another line says what it did spend. So a folder that is lost counts in full. What
images and patients are known by is `lifetime_keys`, whose budget it is `lifetime_units`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vitrail.engine.data_pins import PINS_FILE
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.flower.site.lifetime_keys import ImageKeys
from vitrail.flower.site.lifetime_lines import count_keys, is_recognized, list_known_keys
from vitrail.flower.site.lifetime_units import RunSpending, Share, group_units
from vitrail.flower.site.site_config import FAREWELL_FILE, SiteConfig
from vitrail.release.ledger import Ledger
from vitrail.release.ledger_chain import walk_chain
from vitrail.release.lifetime_spending import Spending, read_spending
from vitrail.release.patient_budgets import find_largest_patient

LIFETIME_FILE = "lifetime.jsonl"


class LifetimeLedger:
    """`lifetime.jsonl` in the folder of a site."""

    def __init__(self, config: SiteConfig) -> None:
        self.config = config
        self.ledger = Ledger(config.folder / LIFETIME_FILE, durable=True)

    def begin(
        self, run: str, data: str, keys: ImageKeys, plan: Spending, against: Sequence[str] = ()
    ) -> None:
        """Count a run in full, before anything of it leaves."""
        self.check()
        self.settle()
        self.ledger.write(
            {
                "kind": "begin",
                "run": run,
                "data": data,
                "images": sorted(keys.images),
                "tested": sorted(keys.tested),
                "patients": dict(sorted(keys.patients.items())),
                "against": list(against),
                "plan": plan.to_json(),
            }
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

    def list_runs(self, planned: ImageKeys | None = None) -> list[RunSpending]:
        """Every run, in the order in which they began. Older ones may be recognized by the images
        of a `planned` run."""
        self.check()
        lines = self._read()
        over = [line for line in lines if line["kind"] == "over"]
        ends = {line["of"]: Spending.read(line["spent"]) for line in over}
        known = list_known_keys(lines, planned)
        runs = []
        for at, line in enumerate(lines):
            if line["kind"] == "begin":
                if at in ends:
                    spending = self._read_over(ends[at], at, line)
                else:
                    spending = self._read_open(line)
                largest = 1 if "patients" in line else self._find_largest(line["run"])
                unmatched = not is_recognized(line, known)
                if largest is None or unmatched:  # nobody can say any more which or how many
                    spending, largest = replace(spending, bounded=False), 1
                more = (line.get("patients", {}), largest, tuple(line.get("against", ())))
                keys = count_keys(line, spending.bounded)
                run = RunSpending(line["run"], line["data"], keys, spending, at in ends, *more)
                runs.append(replace(run, unmatched=unmatched))
        return runs

    def count_images(self, run: str) -> tuple[Counter[str], Counter[str]]:
        """The images that were counted when a run began last: trained on, and looked at."""
        begun = [x for x in self._read() if x["kind"] == "begin" and x["run"] == run]
        last = begun[-1] if begun else {}
        return Counter(last.get("images") or ()), Counter(last.get("tested") or ())

    def _read_over(self, settled: Spending, at: int, line: Mapping[str, Any]) -> Spending:
        """What a run had spent when it was over, and what left of it since: an audit's figures, or
        a model that was lent, leave after the end."""
        if not self._is_last(at, line["run"]):
            return settled
        now = read_spending(self._read_run(self.config.run_folder(line["run"]).path))
        return settled.join(now.leave_out(settled))

    def _find_largest(self, run: str) -> int | None:
        """The most images of a patient in a run whose line of older versions does not say whose
        its images are; None where its folder is gone."""
        lines = self._read_run(self.config.run_folder(run).path)
        return max(1, find_largest_patient(lines)) if lines else None

    def _read_open(self, line: Mapping[str, Any]) -> Spending:
        """The plan of a run that is not over; no bound once anything left without a proof."""
        plan = Spending.read(line["plan"])
        spent = read_spending(self._read_run(self.config.run_folder(line["run"]).path))
        return replace(plan, bounded=plan.bounded and spent.bounded)

    def list_shares(self, planned: ImageKeys | None = None) -> list[Share]:
        """Images or patients by the runs they were in: those of a planned run, or of any."""
        return group_units(self.list_runs(planned), planned)

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


def _refuse(why: str, path: Path) -> RunError:
    return RunError(
        f"the lifetime ledger of this site cannot be trusted: {why}",
        where=str(path),
        hint="Restore the newest copy of it; without it nobody knows what was spent on the images.",
    )
