"""The accountant against opacus, against the closed form, and against itself."""

import builtins
import math
import warnings

import pytest

from vitrail.errors import ConfigError
from vitrail.grid_noise import reserve_delta
from vitrail.release.accounting import gaussian
from vitrail.release.accounting.accountant import (
    ORDERS,
    Event,
    calibrate_noise,
    combine_noise,
    compute_epsilon,
    merge_events,
)

DELTA = 1e-5
STEPS = [(0.8, 0.01, 10_000), (1.1, 0.02, 3_000), (4.0, 0.3, 100), (5.0, 1.0, 50), (2.0, 0.5, 1)]


def opacus_rdp(events, orders=ORDERS):
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(e.noise, e.rate, e.times) for e in events]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return accountant.get_epsilon(DELTA, alphas=list(orders))


def opacus_prv(events, error):
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = [(e.noise, e.rate, e.times) for e in events]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return accountant.get_epsilon(DELTA, eps_error=error, delta_error=DELTA / 1000)


@pytest.mark.parametrize("step", STEPS)
def test_renyi_agrees_with_opacus(step):
    events = [Event(*step)]
    assert compute_epsilon(events, DELTA, "rdp") == pytest.approx(opacus_rdp(events), rel=1e-6)


def test_renyi_agrees_with_opacus_on_a_mixture():
    events = [Event(1.5, 0.02, 200), Event(2.5, 0.02, 300), Event(10.0, 1.0, 4)]
    assert compute_epsilon(events, DELTA, "rdp") == pytest.approx(opacus_rdp(events), rel=1e-6)


@pytest.mark.parametrize("step", STEPS)
def test_loss_distributions_agree_with_opacus_within_its_error(step):
    events = [Event(*step)]
    error = 0.02
    ours, theirs = (
        compute_epsilon(events, DELTA),
        opacus_prv(events, error),
    )  # both are upper bounds
    assert theirs - 2 * error <= ours <= theirs + error
    assert ours <= compute_epsilon(events, DELTA, "rdp")


def test_without_sampling_the_closed_form_is_exact():
    events = [Event(3.0, 1.0, 7), Event(8.0, 1.0, 2)]
    one = 1 / math.sqrt(7 / 9 + 2 / 64)
    assert combine_noise(events) == pytest.approx(one, rel=1e-12)
    assert compute_epsilon(events, DELTA) == pytest.approx(
        gaussian.compute_epsilon(one, reserve_delta(DELTA), 1.0), rel=1e-12
    )
    assert calibrate_noise(2.0, DELTA, [Event(1.0, 1.0, 25)]) == pytest.approx(
        5 * gaussian.compute_sigma(2.0, DELTA, 1.0), rel=3e-3
    )


@pytest.mark.parametrize("how", ["pld", "rdp"])
@pytest.mark.parametrize("target", [0.3, 2.0, 8.0])
def test_calibrated_noise_hits_the_target(target, how):
    shape = [Event(1.0, 0.1, 150), Event(0.5, 0.1, 50)]
    factor = calibrate_noise(target, DELTA, shape, how)
    found = compute_epsilon([Event(e.noise * factor, e.rate, e.times) for e in shape], DELTA, how)
    assert 0.99 * target <= found <= target


def test_a_schedule_of_many_levels_costs_at_least_what_each_round_costs():
    noises = [2.0 * 0.98**t for t in range(20)]
    schedule = [Event(noise, 0.1, 10) for noise in noises]
    found = compute_epsilon(schedule, DELTA)
    assert compute_epsilon([Event(max(noises), 0.1, 200)], DELTA) < found
    assert found < compute_epsilon([Event(min(noises), 0.1, 200)], DELTA)
    assert found == pytest.approx(opacus_rdp(schedule), rel=0.15)


def test_more_steps_less_noise_and_larger_samples_cost_more():
    base = compute_epsilon([Event(1.0, 0.1, 100)], DELTA)
    assert base < compute_epsilon([Event(1.0, 0.1, 200)], DELTA)
    assert base < compute_epsilon([Event(0.9, 0.1, 100)], DELTA)
    assert (
        base
        < compute_epsilon([Event(1.0, 0.2, 100)], DELTA)
        < compute_epsilon([Event(1.0, 1.0, 100)], DELTA)
    )


def test_the_ends():
    assert compute_epsilon([], DELTA) == 0.0
    assert compute_epsilon([Event(1.0, 0.1, 0), Event(1.0, 0.0, 5)], DELTA) == 0.0
    assert compute_epsilon([Event(0.0, 0.1, 1)], DELTA) == math.inf
    assert calibrate_noise(1.0, DELTA, []) == 0.0
    assert merge_events([Event(1.0, 0.5, 2), Event(1.0, 0.5, 3)]) == (Event(1.0, 0.5, 5),)


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_a_target_that_means_nothing_is_refused(target):
    with pytest.raises(ConfigError, match="above 0"):
        calibrate_noise(target, DELTA, [Event(1.0)])


@pytest.mark.parametrize("bad", [(-1.0, 0.5, 1), (math.nan, 0.5, 1), (1.0, 1.5, 1), (1.0, 0.5, -1)])
def test_a_step_that_means_nothing_is_refused(bad):
    with pytest.raises(ConfigError, match="no such private step"):
        Event(*bad)
    with pytest.raises(ConfigError, match="delta"):
        compute_epsilon([Event(1.0)], 0.0)
    with pytest.raises(ConfigError, match="without noise"):
        calibrate_noise(1.0, DELTA, [Event(0.0)])


def test_a_missing_library_is_one_sentence(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **more):
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"vitrail\[privacy\]"):
        compute_epsilon([Event(1.234, 0.1, 3)], DELTA)
    assert compute_epsilon([Event(1.234, 1.0, 3)], DELTA) > 0  # nothing is needed without sampling
