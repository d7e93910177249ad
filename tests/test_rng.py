"""Draws depend on root, path and nothing else."""

import torch

from vitrail import rng


def test_a_draw_depends_on_the_whole_path_and_on_its_borders():
    root = rng.server(1)
    keys = [
        root,
        root.at("a"),
        root.at("a", "b"),
        root.at("ab"),
        root.at("a", ""),
        rng.server(2).at("a"),
        rng.simulated_site(1, "a"),
        rng.simulated_site(11, ""),
        rng.simulated_site(1, "1/"),
    ]
    assert len({key.integer() for key in keys}) == len(keys)
    assert root.at("x", 3).integer() == rng.server(1).at("x").at("3").integer()


def test_generators_repeat_and_do_not_share_state():
    key = rng.server(5).at("noise")
    first = torch.randn(4, generator=key.torch())
    key.numpy().random(10)
    assert torch.equal(first, torch.randn(4, generator=key.torch()))


def test_scope_seeds_the_global_generator_and_puts_it_back():
    before = torch.random.get_rng_state()
    with rng.scope(rng.server(1).at("dropout")):
        one = torch.rand(3)
    with rng.scope(rng.server(1).at("dropout")):
        two = torch.rand(3)
    assert torch.equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())
