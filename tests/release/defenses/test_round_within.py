"""A clipped change in float32: no farther than the clip, whatever model a server sends."""

from __future__ import annotations

import signal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vitrail.release.defenses.client_dp import round_within

NAME = "model/body.running_var"


@pytest.fixture(autouse=True)
def _in_time():
    """The old code never came back from some models: a server could hang every site."""

    def stop(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("-inf"), float("nan")])
def test_a_model_that_no_change_fits_goes_back_as_it_came(value):
    base = {NAME: torch.tensor([value, 1.0], dtype=torch.float64)}
    change = {NAME: torch.tensor([0.05, 0.05], dtype=torch.float64)}
    sent = round_within(change, base, {NAME: base[NAME].float()}, 0.1)
    assert torch.equal(sent[NAME].nan_to_num(9.0), base[NAME].float().nan_to_num(9.0))


@given(
    st.lists(st.floats(-1e9, 1e9, width=32), min_size=1, max_size=8),
    st.floats(1e-6, 1e3),
    st.sampled_from(["model/a", NAME]),
    st.integers(0, 2**31),
)
def test_nothing_is_farther_than_the_clip(values, clip, name, seed):
    base = {name: torch.tensor(values, dtype=torch.float64)}
    change = torch.randn(
        len(values), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    change *= clip / float(change.norm())
    sent = round_within({name: change}, base, {name: base[name].float()}, clip)
    assert float((sent[name].double() - base[name]).norm()) <= clip
