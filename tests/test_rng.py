"""Draws depend on root, path and nothing else."""

import hashlib

import scipy.stats
import torch

from vitrail import rng


def test_a_draw_depends_on_the_whole_path_and_on_its_borders():
    root = rng.derive_server_key(1)
    keys = [
        root,
        root.at("a"),
        root.at("a", "b"),
        root.at("ab"),
        root.at("a", ""),
        rng.derive_server_key(2).at("a"),
        rng.derive_site_key(1, "a"),
        rng.derive_site_key(11, ""),
        rng.derive_site_key(1, "1/"),
    ]
    assert len({key.integer() for key in keys}) == len(keys)
    assert root.at("x", 3).integer() == rng.derive_server_key(1).at("x").at("3").integer()


def test_generators_repeat_and_do_not_share_state():
    key = rng.derive_server_key(5).at("noise")
    first = torch.randn(4, generator=key.torch())
    key.numpy().random(10)
    assert torch.equal(first, torch.randn(4, generator=key.torch()))


def test_scope_seeds_the_global_generator_and_puts_it_back():
    before = torch.random.get_rng_state()
    with rng.seed_torch(rng.derive_server_key(1).at("dropout")):
        one = torch.rand(3)
    with rng.seed_torch(rng.derive_server_key(1).at("dropout")):
        two = torch.rand(3)
    assert torch.equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())


# streams: what hides something


def test_a_stream_uses_the_whole_secret():
    """Refuted if 32 bits of it decide: torch's generators cannot be told apart by more."""
    one, other = bytes(32), bytes(31) + b"\x01"
    assert not torch.equal(rng.Stream(one).normal([8]), rng.Stream(other).normal([8]))
    low = [torch.Generator().manual_seed(seed) for seed in (7, 7 + 2**32)]
    drawn = [torch.randn(8, generator=generator) for generator in low]
    assert torch.equal(*drawn)  # why there are streams


def test_a_stream_repeats_and_goes_on():
    key = rng.derive_server_key(5).at("noise")
    first, second = (stream := key.stream()).normal([3]), stream.normal([3])
    assert torch.equal(first, key.stream().normal([3])) and not torch.equal(first, second)
    assert rng.Stream(bytes(32)).words(3).tolist() == rng.Stream(bytes(32)).words(5)[:3].tolist()


def test_a_stream_is_shake_of_the_secret_and_the_number_of_the_draw():
    stream = rng.Stream(b"k" * 32)
    stream.words(2)
    raw = hashlib.shake_128(b"k" * 32 + (1).to_bytes(8, "little")).digest(24)
    wanted = [int.from_bytes(raw[i : i + 8], "little") for i in (0, 8, 16)]
    assert stream.words(3).tolist() == wanted
    pieces = rng.Stream(b"k" * 32)
    assert len(pieces.words(2**20 + 5)) == 2**20 + 5  # longer than one piece


def test_streams_have_the_right_distributions():
    stream = rng.derive_server_key(3).stream()
    u = stream.uniform([50_000])
    assert u.dtype == torch.float64 and u.min() > 0 and u.max() < 1
    assert scipy.stats.kstest(u.numpy(), "uniform").pvalue > 1e-4
    z = stream.normal([100, 500])
    assert z.shape == (100, 500) and z.dtype == torch.float32
    assert scipy.stats.kstest(z.flatten().double().numpy(), "norm").pvalue > 1e-4
    assert stream.normal([0]).shape == (0,) and stream.normal([]).shape == ()
    whole = stream.below(3, 9_000)
    assert scipy.stats.chisquare(torch.bincount(whole, minlength=3).numpy()).pvalue > 1e-4
    assert whole.min() == 0 and whole.max() == 2 and not stream.below(1, 4).any()
    order = stream.permutation(500)
    assert torch.equal(order.sort().values, torch.arange(500))
    assert not torch.equal(order, torch.arange(500)) and len(stream.permutation(0)) == 0
