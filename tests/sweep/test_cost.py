"""What a run cost, from its metrics."""

from types import SimpleNamespace

from vitrail.sweep.cost import compute_cost, compute_mean_cost


def run(*rows):
    return SimpleNamespace(rows=lambda: list(rows))


def test_sites_and_server_count_and_evaluations_are_no_rounds():
    cost = compute_cost(
        run(
            {"site": "a", "image_steps": 30.0, "bytes_up": 5, "seconds": 9.0},
            {"site": "b", "image_steps": None},
            {"site": "*", "accepted": 2, "image_steps": 12.0, "seconds": 3.0, "bytes_up": 10},
            {"site": "*", "accepted": 0, "seconds": 1.0, "bytes_up": 20, "bytes_down": 8},
            {"site": "*", "accuracy": 0.5},
        )
    )
    assert (cost.rounds, cost.image_steps) == (2, 42.0)
    assert (cost.seconds, cost.bytes_up, cost.bytes_down) == (2.0, 15.0, 4.0)
    assert cost.text() == "42 image-steps in 2 rounds; a round 2.0 s, 15 B up, 4 B down"


def test_where_nobody_tells_no_steps_are_claimed():
    none = compute_cost(run())
    assert none.rounds == 0 and none.text().startswith("0 rounds; a round 0.0 s")


def test_repeats_are_averaged():
    two = [compute_cost(run({"site": "a", "image_steps": n})) for n in (10.0, 20.0)]
    assert compute_mean_cost(two).image_steps == 15.0
