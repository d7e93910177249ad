"""The same bits for one, two and three workers and on repetition; other bits for another seed."""

import pytest

SETTING = {
    "data": {"augment": {"crop": 2, "flip": True, "rotate": 10.0, "cutout": 3}},
    "partition": {"sites": 6, "minimum": 4},
    "method": {"name": "scaffold"},
}


def run_with(tiny, name, **run):
    changes = {"rounds": 3, "participation": 0.5, "dropout": 0.3, "workers": 1, **run}
    return tiny(name, **SETTING, run=changes)


@pytest.mark.slow
def test_workers_repetition_and_seeds(tiny, same_bits):
    first = run_with(tiny, "first")
    quiet = [{k: v for k, v in row.items() if k != "seconds"} for row in first.rows()]
    for name, changes in (("again", {}), ("two", {"workers": 2}), ("three", {"workers": 3})):
        other = run_with(tiny, name, **changes)
        assert same_bits(first.path, other.path), name
        assert quiet == [{k: v for k, v in row.items() if k != "seconds"} for row in other.rows()]
    assert not same_bits(first.path, run_with(tiny, "seed", seed=6).path)
    log = (first.path / "log.txt").read_text()
    assert "dropped out" in log  # else the setting tests less than it says


def test_threads_of_the_caller_do_not_change_the_bits(tiny, same_bits):
    import torch

    first = tiny("one")
    torch.set_num_threads(2)
    try:
        second = tiny("two")
        assert torch.get_num_threads() == 2  # and the caller gets them back
    finally:
        torch.set_num_threads(1)
    assert same_bits(first.path, second.path)
