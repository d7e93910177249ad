"""The sampler against the definition of the discrete Gaussian, in exact arithmetic and by tests."""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from vitrail import discrete_gaussian
from vitrail.discrete_gaussian import DiscreteGaussian, make_sampler
from vitrail.errors import ConfigError
from vitrail.rng import Key, Stream

SECRET = bytes(range(32))


def compute_weight(k: int, scale: float) -> Fraction:
    """exp(-k^2 / 2 scale^2) to 90 digits, as the definition has it."""
    with localcontext(Context(prec=90, Emin=-(10**9))):
        return Fraction((-(Decimal(k) ** 2) / (2 * Decimal(scale) ** 2)).exp())


def compute_probabilities(scale: float) -> dict[int, Fraction]:
    """The definition, as far as 2^-200 of the weight of 0."""
    most = math.ceil(17 * scale) + 1
    weights = {k: compute_weight(k, scale) for k in range(-most, most + 1)}
    total = sum(weights.values())
    return {k: weight / total for k, weight in weights.items()}


def compute_sampled(sampler: DiscreteGaussian) -> dict[int, Fraction]:
    """What the sampler does, from its table and its coins: every branch, in exact arithmetic."""
    ends = [Fraction(t, 2**128) for t in (*sampler.thresholds, 2**128)]
    kept: dict[int, Fraction] = {}
    for block, (low, high) in enumerate(zip([Fraction(0), *ends], ends)):
        for place in range(2**sampler.shift):
            chance = Fraction(sampler._compute_chance(block, place))
            part = (high - low) / 2**sampler.shift * chance / 2
            size = (block << sampler.shift) + place
            kept[size] = part
            if size:
                kept[-size] = part
    total = sum(kept.values())
    assert total >= Fraction(49, 100)  # `total_variation` counts on about 1/2 at least
    return {k: part / total for k, part in kept.items()}


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 2.5, 64.0, 127.9, 130.0, 300.0])
def test_table_and_coins_are_the_definition(scale: float) -> None:
    sampler = DiscreteGaussian(scale)
    wanted, sampled = compute_probabilities(scale), compute_sampled(sampler)
    gap = sum(abs(wanted.get(k, 0) - sampled.get(k, 0)) for k in wanted.keys() | sampled.keys()) / 2
    assert gap <= Fraction(sampler.total_variation)
    assert sampler.total_variation < 2.0**-114


@pytest.mark.parametrize("scale", [0.6, 1.0, 3.0, 20.0, 150.0])
def test_chi_square(scale: float) -> None:
    numbers = make_sampler(scale).draw(200_000, Key(SECRET).at("chi", scale).stream())
    chances = {k: float(p) for k, p in compute_probabilities(scale).items()}
    often = [k for k, p in chances.items() if p * len(numbers) >= 10]
    counts = [int((numbers == k).sum()) for k in often]
    expected = [chances[k] * len(numbers) for k in often]
    rest = len(numbers) - sum(expected)
    if rest >= 10:
        counts, expected = [*counts, len(numbers) - sum(counts)], [*expected, rest]
    else:
        expected = [e * sum(counts) / sum(expected) for e in expected]
    assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("scale", [90.0, 2.0**20 + 0.3, 2.0**46, discrete_gaussian.LARGEST])
def test_large_scales_have_the_moments_and_tails_of_a_gaussian(scale: float) -> None:
    count = 400_000
    z = make_sampler(scale).draw(count, Key(SECRET).at("moments", scale).stream()) / scale
    assert abs(z.mean()) < 5 / math.sqrt(count)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / count)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / count)
    for beyond in (1.0, 2.0, 3.0, 4.0):
        chance = 2 * stats.norm.sf(beyond)
        if scale < 2**20:  # a staircase, whose step counts whole
            chance = float(
                np.sum(
                    2
                    * stats.norm.pdf((np.arange(1500) + 1) / scale)
                    / scale
                    * ((np.arange(1500) + 1) / scale > beyond)
                )
            )
        hits = int((abs(z) > beyond).sum())
        assert stats.binomtest(hits, count, chance).pvalue > 1e-4
    if scale > 2**20:
        assert stats.kstest(z[:50_000], "norm").pvalue > 1e-4


def test_low_bits_of_large_scales_are_uniform() -> None:
    numbers = make_sampler(2.0**46).draw(100_000, Key(SECRET).at("low").stream())
    assert stats.chisquare(np.bincount(numbers & 255, minlength=256)).pvalue > 1e-4


def test_floating_point_decides_as_decimals_do() -> None:
    sampler, source = DiscreteGaussian(2.0**46), Stream(SECRET)
    count = 3_000
    block = sampler._draw_blocks(count, source)
    words = source.words(count)
    place = (words & np.uint64(2**40 - 1)).view(np.int64)
    coins = words >> np.uint64(48)
    fast = sampler._toss(block, place, coins, Stream(SECRET))
    for at in range(count):
        chance = sampler._compute_chance(int(block[at]), int(place[at]))
        below, above = Decimal(int(coins[at])) / 2**16, Decimal(int(coins[at]) + 1) / 2**16
        if above <= chance or below >= chance:  # the 16 bits decide
            assert fast[at] == (above <= chance)


def test_coins_that_the_first_bits_leave_open_are_tossed_exactly() -> None:
    """Of coins whose 16 bits are those of the probability, as many fall as there is room left."""
    sampler = DiscreteGaussian(2.0**46)
    block, place = 64, 2**39 + 12345
    scaled = sampler._compute_chance(block, place) * 2**16
    coin, room = int(scaled), float(scaled % 1)
    count = 4_000
    kept = sampler._toss(
        np.full(count, block),
        np.full(count, place),
        np.full(count, coin, np.uint64),
        Stream(SECRET),
    )
    assert stats.binomtest(int(kept.sum()), count, room).pvalue > 1e-4


def test_shortcut_into_the_table_changes_nothing() -> None:
    quick, slow = DiscreteGaussian(100.0), DiscreteGaussian(100.0)
    slow._entry = np.full_like(slow._entry, -1)
    assert (quick.draw(50_000, Stream(SECRET)) == slow.draw(50_000, Stream(SECRET))).all()


class FixedWords(Stream):
    """A stream that gives the words it was handed."""

    def __init__(self, words: list[int]) -> None:
        super().__init__(b"")
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, np.uint64)


@pytest.mark.parametrize("index", [0, 5, 500, 800])
@pytest.mark.parametrize(("beyond", "more"), [(-1, 0), (0, 1), (1, 1)])
def test_the_lower_word_decides_where_the_upper_is_a_threshold(
    index: int, beyond: int, more: int
) -> None:
    sampler = DiscreteGaussian(64.0)
    whole = sampler.thresholds[index] + beyond
    source = FixedWords([whole >> 64, whole % 2**64])
    assert sampler._draw_blocks(1, source).tolist() == [index + more]
    assert not source.left


def test_ends() -> None:
    assert make_sampler(0.0).draw(5, Stream(SECRET)).tolist() == [0] * 5
    assert make_sampler(3.0).draw(0, Stream(SECRET)).tolist() == []
    first, again = (make_sampler(3.0).draw(9, Stream(SECRET)) for _ in range(2))
    assert (first == again).all()
    for bad in (-1.0, math.nan, math.inf, 2.0**60):
        with pytest.raises(ConfigError, match="no discrete noise"):
            DiscreteGaussian(bad)
