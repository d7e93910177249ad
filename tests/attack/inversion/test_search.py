"""Optimizers against torch's own and against closed forms; budgets; going on after a stop."""

import itertools

import pytest
import torch

from vitrail.attack.budget import Budget
from vitrail.attack.inversion.lbfgs import Lbfgs
from vitrail.attack.inversion.search import search, select_best_rows
from vitrail.attack.job import Job
from vitrail.errors import ConfigError, RunError


def rosenbrock(x):
    return (100 * (x[:, 1::2] - x[:, ::2] ** 2) ** 2 + (1 - x[:, ::2]) ** 2).sum(1)


def test_lbfgs_solves_rows_of_rosenbrock_each_as_if_alone():
    start = torch.tensor([[-1.2, 1.0], [0.5, 0.5], [3.0, -2.0]], dtype=torch.float64)
    together = Lbfgs(start)
    alone = [Lbfgs(start[i : i + 1]) for i in range(3)]
    for _ in range(80):
        together.step(rosenbrock)
        for one in alone:
            one.step(rosenbrock)
    torch.testing.assert_close(together.x, torch.ones_like(start), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together.x, torch.cat([one.x for one in alone]), rtol=1e-6, atol=0)


def test_lbfgs_never_goes_up_and_survives_what_is_no_number():
    def loss(x):
        value = x.square().sum(1)
        return torch.where(x[:, 0] > 2, torch.nan, value)

    solver = Lbfgs(torch.tensor([[1.9, 5.0], [0.0, 0.0]]))
    before = torch.tensor([torch.inf, torch.inf])
    for _ in range(20):
        solver.step(loss)
        assert (solver.loss <= before).all()
        before = solver.loss.clone()
    assert solver.loss[0] < 1e-8 and solver.loss[1] == 0


def quadratic(target):
    def objective(x):
        value = (x - target).square().flatten(1).sum(1)
        return value, value

    return objective


def test_the_first_step_is_the_rate_times_the_sign_and_rates_are_cut():
    target = torch.tensor([[1.0, -1.0]])
    seen = []

    def project(x):
        seen.append(x.clone())
        return x

    search(torch.zeros(1, 2), quadratic(target), project, Job(), iterations=8, lr=0.1)
    torch.testing.assert_close(seen[0], torch.tensor([[0.1, -0.1]]))
    steps = [float((b - a).abs().max()) for a, b in itertools.pairwise(seen)]
    assert steps[0] == pytest.approx(0.1, rel=1e-3)
    assert steps[2] == pytest.approx(0.01, rel=1e-3)  # the 4th of 8 steps, at 3/8 of the way
    assert steps[4] == pytest.approx(1e-3, rel=1e-2)
    assert steps[6] == pytest.approx(1e-4, rel=2e-2)


def test_the_best_point_counts_and_the_best_restart():
    target = torch.tensor([[0.05, 0.05], [0.0, 0.0]])
    found = search(torch.zeros(2, 2), quadratic(target), lambda x: x, Job(), 3, lr=1.0)
    assert (found.loss <= torch.tensor([0.0051, 0.0])).all()  # where it began was best
    assert torch.equal(
        select_best_rows(torch.tensor([3.0, 1.0, torch.nan, 7.0]), 2), torch.tensor([1, 3])
    )


def test_an_attack_that_was_stopped_goes_on_and_ends_with_the_same_bits(tmp_path):
    objective = quadratic(torch.linspace(-1, 1, 6).view(2, 3))
    whole = search(torch.zeros(2, 3), objective, lambda x: x, Job(), 20, lr=0.07)

    class StopError(Exception):
        pass

    calls = []

    def breaking(x):
        calls.append(1)
        if len(calls) == 8:
            raise StopError
        return objective(x)

    file = tmp_path / "state.safetensors"
    job = Job(file=file, same="q")
    job._saved = -1e9  # as if the last save were long ago
    with pytest.raises(StopError):
        search(torch.zeros(2, 3), breaking, lambda x: x, job, 20, lr=0.07)
    job = Job(file=file, same="q")
    assert 0 < job.load()[1] < 20
    again = search(torch.zeros(2, 3), objective, lambda x: x, Job(file=file, same="q"), 20, lr=0.07)
    assert torch.equal(whole.x, again.x) and torch.equal(whole.loss, again.loss)
    with pytest.raises(RunError, match="another attack"):
        Job(file=file, same="other").load()


def test_budgets(tmp_path):
    assert list(Job(Budget(iterations=3)).steps(100)) == [0, 1, 2]
    assert list(Job(Budget(seconds=1e-9)).steps(100)) == []
    assert list(Job().steps(2)) == [0, 1]
    for wrong in ({"iterations": 0}, {"seconds": 0.0}, {"seconds": float("nan")}):
        with pytest.raises(ConfigError):
            Budget(**wrong)
