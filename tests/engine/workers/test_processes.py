"""Workers that are kept between runs give the same bits as fresh ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vitrail
from vitrail.config import parse
from vitrail.engine.run import start
from vitrail.engine.workers.processes import WorkerProcesses
from vitrail.runs.opened_run import Run

CONFIG = {
    "data": {"source": "embedded", "limit": 60, "image_size": 32},
    "partition": {"sites": 3},
    "model": {"backbone": "lenet"},
    "run": {"rounds": 2, "workers": 2},
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    return final(vitrail.run(CONFIG, tmp_path_factory.mktemp("fresh") / "run"))


def final(run: Run) -> torch.Tensor:
    return torch.cat([p.flatten() for p in run.model().parameters()])


def test_kept_workers_give_the_bits_of_fresh_ones(tmp_path: Path, fresh: torch.Tensor) -> None:
    other = {**CONFIG, "data": {**CONFIG["data"], "limit": 40}, "partition": {"sites": 2}}
    with WorkerProcesses() as crew:
        start(parse(other, tmp_path), tmp_path / "other", crew=crew)
        pids = {worker.process.pid for worker in crew._idle}
        start(parse(CONFIG, tmp_path), tmp_path / "second", crew=crew)
        assert {worker.process.pid for worker in crew._idle} == pids  # or this test shows nothing
    assert torch.equal(final(vitrail.load(tmp_path / "second")), fresh)


def test_a_worker_that_died_while_idle_is_replaced(tmp_path: Path, fresh: torch.Tensor) -> None:
    with WorkerProcesses(2) as crew:
        for worker in crew._idle:
            worker.process.kill()
            worker.process.wait()
        start(parse(CONFIG, tmp_path), tmp_path / "run", crew=crew)
    assert torch.equal(final(vitrail.load(tmp_path / "run")), fresh)


def test_a_kept_worker_lets_go_of_the_last_run(tmp_path: Path) -> None:
    """Else its folder would stay locked, and a resume of it be refused."""
    with WorkerProcesses() as crew:
        start(parse(CONFIG, tmp_path), tmp_path / "run", crew=crew)
        finished = tmp_path / "run" / "server" / "finished"
        finished.unlink()
        vitrail.resume(tmp_path / "run")
        assert finished.exists() and crew._idle  # resumed while the crew was still there
