"""Whole numbers from the discrete Gaussian, P(k) proportional to exp(-k^2 / 2 scale^2), and from
the discrete Laplace distribution, P(k) proportional to exp(-|k| / scale).

Canonne, Kamath and Steinke 2020, arXiv:2004.00010, sample them one number at a time by rejection
in exact arithmetic. Here the same rejection works on whole arrays: an inversion table
over 128 random bits picks a block of neighboring numbers, further bits pick one of the block, and a
coin of its exact probability keeps it. What floating point cannot decide is decided in decimals, so
the only gap to the definition is the last of the 128 bits: `total_variation` for each number.
Constant time is not claimed.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal, localcontext
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vitrail.errors import ConfigError
from vitrail.rng import Stream

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]

LARGEST = 2.0**53  # of a scale: what is drawn then fits in 60 bits
_BITS = 128  # of the table
_DIGITS = 80  # of decimal arithmetic; 2^-128 needs 39
_BLOCKS = 64  # in a deviation, at least, where the scale is that large
_TOP = 16  # bits by which the table is entered
_LEFT_OUT = Decimal(2) ** -140  # relative weight from which on blocks are left out
_SIGN = np.uint64(2 ** (63 - _TOP))  # the bit of a word that is the sign
_TOGETHER = 2**14  # numbers that are worked on at once: what a processor keeps close to itself
_SLACK = 2.0**-45  # what a probability in float64 may be off, generously


class DiscreteSampler:
    """Symmetric whole numbers whose weight falls with their size, block by block.

    A subclass says by how much the weight falls from block to block and inside one.
    """

    def __init__(self, scale: float) -> None:
        if not 0 <= scale <= LARGEST:
            raise ConfigError(f"there is no discrete noise of scale {scale}", where="scale")
        self.scale = scale
        self.shift = max(0, math.frexp(scale / _BLOCKS)[1] - 1) if scale else 0
        self.thresholds = self._make_thresholds() if scale else []
        self._high = np.array([t >> 64 for t in self.thresholds], np.uint64)
        edges = np.arange(2**_TOP, dtype=np.uint64) << np.uint64(64 - _TOP)
        low = np.searchsorted(self._high, edges, side="left")
        last = edges | np.uint64(2 ** (64 - _TOP) - 1)
        self._entry = np.where(np.searchsorted(self._high, last, side="right") == low, low, -1)

    @property
    def total_variation(self) -> float:
        """A bound on the distance of each number's distribution to the definition.

        Every block's probability is off by at most 2^-128, what is left out of the tail by less;
        numbers are kept with a probability of at least 1/2, which makes that up to four times
        as much.
        """
        return 4 * (len(self.thresholds) + 2) * 2.0**-_BITS

    def draw(self, count: int, source: Stream) -> Numbers:
        """`count` independent numbers."""
        drawn = np.empty(count, np.int64)
        missing = np.arange(count)
        while len(missing):
            numbers, keep = self._propose(len(missing), source)
            drawn[missing[keep]] = numbers[keep]
            missing = missing[~keep]
        return drawn

    def _propose(self, count: int, source: Stream) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """Numbers, and which of them are kept.

        The second word of each has 16 bits of the coin, the sign, and the place in the block.
        """
        size = self._draw_blocks(count, source)
        words, keep = source.words(count), np.empty(count, np.bool_)
        for at in range(0, count, _TOGETHER):
            part = slice(at, at + _TOGETHER)
            block, word = size[part], words[part]
            place = (word & np.uint64(2**self.shift - 1)).view(np.int64)
            kept = self._toss(block, place, word >> np.uint64(64 - _TOP), source)
            block <<= self.shift
            block += place
            negative = (word & _SIGN) != 0
            kept &= ~(negative & (block == 0))  # 0 has one sign
            np.negative(block, out=block, where=negative)
            keep[part] = kept
        return size, keep

    def _draw_blocks(self, count: int, source: Stream) -> Numbers:
        """The number of thresholds that are at most a uniform number of 128 bits.

        The first bits decide nearly always; the lower word is drawn where the upper one is equal
        to that of a threshold.
        """
        words = source.words(count)
        block: Numbers = self._entry[words >> np.uint64(64 - _TOP)]
        open_ = np.nonzero(block < 0)[0]
        looked = words[open_]
        block[open_] = np.searchsorted(self._high, looked, side="left")
        ends = np.searchsorted(self._high, looked, side="right")
        for at in open_[block[open_] < ends].tolist():
            whole = (int(words[at]) << 64) | int(source.words(1)[0])
            block[at] = sum(threshold <= whole for threshold in self.thresholds)
        return block

    def _toss(
        self, block: Numbers, place: Numbers, coins: Words, source: Stream
    ) -> npt.NDArray[np.bool_]:
        """Whether a coin fell whose probability is the weight of a number over its block's."""
        if not self.shift:
            return np.ones(len(block), np.bool_)
        chance = self._estimate_chance((block << self.shift) / self.scale, place / self.scale)
        coin = coins.astype(np.float64) * 2.0**-_TOP
        keep: npt.NDArray[np.bool_] = coin + 2.0**-_TOP <= chance - _SLACK
        for at in np.nonzero(~keep & (coin < chance + _SLACK))[0].tolist():
            exact = self._compute_chance(int(block[at]), int(place[at]))
            more = source.words(2)
            whole = (int(coins[at]) << _BITS) | (int(more[0]) << 64) | int(more[1])
            with localcontext(Context(prec=_DIGITS, Emin=-(10**9))):
                keep[at] = whole < exact * 2 ** (_BITS + _TOP)
        return keep

    def _make_thresholds(self) -> list[int]:
        """2^128 times the probabilities of the first block, of the first two ..., but the last."""
        with localcontext(Context(prec=_DIGITS, Emin=-(10**9))):
            ratio, fall = self._compute_ratios(Decimal(2**self.shift) / Decimal(self.scale))
            weights, weight = list[Decimal](), Decimal(1)
            while weight > _LEFT_OUT:
                weights.append(weight)
                weight, ratio = weight * ratio, ratio * fall
            total = sum(weights)
            sums, cumulative = list[int](), Decimal(0)
            for weight in weights[:-1]:
                cumulative += weight
                sums.append(int(cumulative / total * 2**_BITS))
            return sums

    def _compute_ratios(self, width: Decimal) -> tuple[Decimal, Decimal]:
        """The weight of the second block over the first's, and what that ratio is multiplied by
        from block to block; `width` is a block's, over the scale."""
        raise NotImplementedError

    def _estimate_chance(self, start: Floats, beyond: Floats) -> Floats:
        """The probability to keep a number, from its block's start and what it is beyond it."""
        raise NotImplementedError

    def _compute_chance(self, block: int, place: int) -> Decimal:
        """The same in decimals."""
        raise NotImplementedError


class DiscreteGaussian(DiscreteSampler):
    """P(k) proportional to exp(-k^2 / 2 scale^2); `make_sampler` keeps some."""

    def _compute_ratios(self, width: Decimal) -> tuple[Decimal, Decimal]:
        return (-(width**2) / 2).exp(), (-(width**2)).exp()

    def _estimate_chance(self, start: Floats, beyond: Floats) -> Floats:
        chance: Floats = np.exp(-beyond * (start + beyond / 2))
        return chance

    def _compute_chance(self, block: int, place: int) -> Decimal:
        with localcontext(Context(prec=_DIGITS)):
            beyond = Decimal(2 * (block << self.shift) * place + place * place)
            return (-beyond / (2 * Decimal(self.scale) ** 2)).exp()


class DiscreteLaplace(DiscreteSampler):
    """P(k) proportional to exp(-|k| / scale)."""

    def _compute_ratios(self, width: Decimal) -> tuple[Decimal, Decimal]:
        return (-width).exp(), Decimal(1)

    def _estimate_chance(self, start: Floats, beyond: Floats) -> Floats:
        del start
        chance: Floats = np.exp(-beyond)
        return chance

    def _compute_chance(self, block: int, place: int) -> Decimal:
        del block
        with localcontext(Context(prec=_DIGITS)):
            return (-Decimal(place) / Decimal(self.scale)).exp()


@lru_cache(maxsize=64)
def make_sampler(scale: float) -> DiscreteGaussian:
    """The sampler of a scale; its table takes some milliseconds to make."""
    return DiscreteGaussian(scale)
