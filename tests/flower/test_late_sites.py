"""Sites that come, decline and leave while a run goes on: nobody waits, and it is all written."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from vitrail.config import Loaded
from vitrail.engine.federation import load_federation
from vitrail.engine.members import SimulatedSites
from vitrail.engine.resolve_config import resolve_config
from vitrail.engine.run import Engine, lock_folder, plan_run
from vitrail.engine.storage.roster_log import RosterLog
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.engine.tasks import MissingReply
from vitrail.engine.workers.processes import start_workers
from vitrail.files import read_tensors
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.site.policy import SitePolicy
from vitrail.runs.opened_run import Run

ROUNDS = 6


def play(birds, tmp_path, loop, come, sections=None, rounds=ROUNDS):
    """A run of which `west` is away until round `come` is over."""
    loop.down.add("west")
    log = RosterLog(tmp_path / "run" / "server" / "roster.jsonl")

    def on_round(progress):
        if progress.round == come and not progress.note:
            loop.down.discard("west")
        deadline = time.monotonic() + 20  # a thread asks it: let it be heard before the end
        while come < progress.round < rounds and time.monotonic() < deadline:
            if any(name == "west" for name, _ in loop.asked):
                break
            time.sleep(0.05)

    run = {"rounds": rounds, "batch_size": 8, "seed": 5}
    config = birds.coordinator(**{**(sections or {}), "run": run})
    return run_federation(loop, config, tmp_path / "run", sites=2, on_round=on_round), log


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_site_that_comes_later_joins_between_rounds(method, secure, birds, tmp_path):
    if secure and method == "scaffold":
        pytest.skip("one method is enough under masks")
    loop = birds.loop(tmp_path)
    sections = {"method": {"name": method}, "release": {"secure_sum": secure}}
    folder, log = play(birds, tmp_path, loop, come=1, sections=sections)
    events = [(e.site, e.event, e.round) for e in log.read()]
    assert events[:2] == [("east", "joined", 0), ("north", "joined", 0)]
    (joined,) = events[2:]
    assert joined[:2] == ("west", "joined") and 1 <= joined[2] < ROUNDS
    rounds = {r["round"] for r in Run(folder.path).rows() if r["site"] == "west" and r["round"] > 0}
    assert min(rounds) > 1 and max(rounds) >= ROUNDS
    text = (folder.path / "log.txt").read_text()
    assert f"site west joins before round {joined[2] + 1}" in text
    assert list((tmp_path / "at-west").glob("runs/*/server/parted"))


def test_a_late_site_that_declines_stops_nothing_and_is_asked_once(birds, tmp_path):
    loop = birds.loop(tmp_path)
    object.__setattr__(loop.stations["west"].config, "policy", SitePolicy(rounds=1))
    folder, log = play(birds, tmp_path, loop, come=1)
    assert (folder.server / "finished").exists()
    assert [(e.site, e.event) for e in log.read()][2:] == [("west", "declined")]
    assert "policy.rounds" in log.read()[-1].why


def test_a_site_that_was_there_and_goes_is_missed_and_waited_for_by_nobody(birds, tmp_path):
    loop = birds.loop(tmp_path)
    run = {"rounds": 3, "batch_size": 8, "seed": 5}

    def on_round(progress):
        if progress.round == 1:
            loop.down.add("west")

    folder = run_federation(
        loop, birds.coordinator(run=run), tmp_path / "run", sites=2, on_round=on_round
    )
    text = (folder.path / "log.txt").read_text()
    assert "round 2: without west: it is not connected" in text
    assert (folder.server / "finished").exists()


class ReplayedSites(SimulatedSites):
    """A simulation in which sites join and stay away as the record of a real federation says."""

    record: RosterLog
    there: set[tuple[int, str]]  # rounds, and sites whose update was accepted

    def _joined(self, after):
        return {e.site for e in self.record.read() if e.event == "joined" and e.round == after}

    def enroll(self, plan, folder):
        everybody = super().enroll(plan, folder)
        return {name: everybody[name] for name in everybody if name in self._joined(0)}

    def welcome(self, plan, folder, roster, round_):
        names = self._joined(round_ - 1) - set(roster)
        everybody = super().enroll(plan, folder) if names else {}
        return {name: everybody[name] for name in sorted(names)}

    def pool(self, plan, network, folder):
        pool = super().pool(plan, network, folder)
        turns = pool.turns

        def replayed(tasks, down):
            present = [t for t in tasks if t.closing or (t.round, t.site) in self.there]
            replies = dict(zip([t.site for t in present], turns(present, down), strict=True))
            yield from (replies.get(task.site, MissingReply("away")) for task in tasks)

        pool.turns = replayed
        return pool


def simulate(loaded: Loaded, real: RunFolder, out) -> RunFolder:
    """Play the same configuration in one process, replayed from the record of a real run."""
    loaded = replace(loaded, config=resolve_config(loaded))
    federation, folder = load_federation(loaded), RunFolder(out)
    plan, network = plan_run(loaded, federation)
    folder.create(loaded.config)
    with lock_folder(folder), start_workers(loaded.config.run) as crew:
        members = ReplayedSites(federation, crew)
        object.__setattr__(members, "record", RosterLog(real.server / "roster.jsonl"))
        rows = [r for r in real.rows() if r["site"] != "*" and r.get("train_loss") is not None]
        object.__setattr__(members, "there", {(r["round"], r["site"]) for r in rows})
        Engine(folder, plan, network, members, None).run(fresh=True)
    return folder


def load_last(folder: RunFolder) -> dict[str, torch.Tensor]:
    return read_tensors(sorted((folder.server / "checkpoints").glob("*"))[-1])[0]


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_a_real_run_with_comings_and_goings_is_the_simulation_of_its_record(
    method, birds, tmp_path
):
    """Same bits from the same configuration, weights and accepted sites of each round."""
    loop = birds.loop(tmp_path)
    gone = iter([False, False, True])  # hello, shares, round 1
    ask = loop.ask

    def losing(sites, make_message, patience):  # north is away in one round
        if len(sites) > 1:
            (loop.down.add if next(gone, False) else loop.down.discard)("north")
        return ask(sites, make_message, patience)

    loop.ask = losing
    aggregate = {"largest_weight": 1.2}
    sections = {"method": {"name": method}, "aggregate": aggregate}
    real, log = play(birds, tmp_path, loop, come=2, sections=sections)
    assert [e.site for e in log.read() if e.round > 0] == ["west"]
    assert "without north" in (real.path / "log.txt").read_text()
    run = {"rounds": ROUNDS, "batch_size": 8, "seed": 5}
    simulated = simulate(birds.simulated(**sections, run=run), real, tmp_path / "simulated")
    first, second = load_last(real), load_last(simulated)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
