"""Distributed noise: every site adds its share inside the modular sum, so that nobody is trusted
with it. What the server unmasks is private; what it sees before is masked.

A site rounds what it adds to the grid of fixed point, 2^-32, and draws from the discrete Gaussian
on that grid (Kairouz, Liu and Steinke 2021, arXiv:2102.06387). A sum is unmasked only if t sites
are in it, of which some may tell the server their noise; so each adds a variance of sigma^2 / h
with h = t minus the colluders.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitrail.discrete_gaussian import LARGEST, make_sampler
from vitrail.release.accounting.discrete_sum import LEAST_SCALE
from vitrail.release.masker import WithheldError
from vitrail.rng import Key
from vitrail.secure_aggregation.fixed_point import BITS, Words

_MARGIN = 2.0**-24  # of a limit, for the norm of up to 2^26 numbers in float64


@dataclass(frozen=True)
class SharedNoise:
    """Noise of a `deviation` in the whole sum, on the numbers in some `spans` of it, whatever
    `colluding` sites know. Draws come from the site's `key`. A `limit` is the largest norm of what
    the site adds in all spans together; it holds for the words themselves, so that no rounding
    adds to the sensitivity."""

    deviation: float
    colluding: int
    spans: Sequence[tuple[int, int]]
    key: Key
    limit: float | None = None

    def count_noisy_sites(self, threshold: int) -> int:
        """h: how many sites' noise the server cannot know in a sum of at least so many."""
        return threshold - self.colluding

    def add(self, words: Words, threshold: int) -> Words:
        """A site's numbers with its share of the noise, modulo 2^64. Other numbers, or another
        threshold, have other noise; the same have the same."""
        honest = self.count_noisy_sites(threshold)
        if honest < 1:
            raise WithheldError(
                f"{self.colluding} sites may collude, and only {threshold} must stay in the sum"
            )
        scale = self.deviation / math.sqrt(honest) * 2.0**BITS
        if not LEAST_SCALE <= scale <= LARGEST:
            raise WithheldError("noise of this size does not fit the grid of a secure sum")
        words = self._clip(words)
        content = hashlib.blake2b(words.tobytes(), digest_size=32).hexdigest()
        stream = self.key.at(content, threshold, repr(scale)).stream()
        noisy, sampler = words.copy(), make_sampler(scale)
        for start, stop in self.spans:
            noisy[start:stop] += sampler.draw(stop - start, stream).view(np.uint64)
        return noisy

    def _clip(self, words: Words) -> Words:
        """The words, those in the spans no longer than the limit together.

        The norm of d whole numbers is off by less than d 2^-52 of itself in float64, which the
        margin covers; cutting numbers off towards 0 makes none larger.
        """
        if self.limit is None:
            return words
        numbers = [words[a:b].view(np.int64).astype(np.float64) for a, b in self.spans]
        norm = math.sqrt(sum(float(part @ part) for part in numbers))
        most = self.limit * 2.0**BITS * (1 - _MARGIN)
        if norm <= most:
            return words
        clipped = words.copy()
        for (start, stop), part in zip(self.spans, numbers, strict=True):
            clipped[start:stop] = np.trunc(part * (most / norm)).astype(np.int64).view(np.uint64)
        return clipped
