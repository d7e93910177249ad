"""Stopping at a round's end, from outside, and going on to the same bits."""

import pytest
import torch

import vitrail
from vitrail.engine.storage.stop_request import has_stop_request, request_stop
from vitrail.errors import StoppedError

SHAPE = {"run": {"rounds": 3, "local_epochs": 1}, "method": {"name": "fedavg"}}


def test_a_run_that_was_asked_to_stop_ends_its_round_and_goes_on(tmp_path, tiny_config):
    config = tiny_config(**SHAPE)
    whole = vitrail.run(config, tmp_path / "whole")
    out = tmp_path / "stopped"

    def ask(progress):
        if progress.round == 1:
            request_stop(out)

    with pytest.raises(StoppedError, match="after round 1"):
        vitrail.run(config, out, on_round=ask)
    stopped = vitrail.load(out)
    assert stopped.round == 1 and not stopped.finished and not has_stop_request(out)
    resumed = vitrail.resume(out)
    assert resumed.finished
    for name, tensor in whole.model().state_dict().items():
        assert torch.equal(tensor, resumed.model().state_dict()[name])


def test_a_request_before_the_start_or_in_the_last_round_stops_nothing(tmp_path, tiny_config):
    out = tmp_path / "run"

    def ask(progress):
        if progress.round == 3:
            request_stop(out)

    assert vitrail.run(tiny_config(**SHAPE), out, on_round=ask).finished
