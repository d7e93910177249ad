"""Random draws keyed by (root, round, site, purpose), so that every draw can be repeated alone.

There are two kinds of roots. The server draws from `run.seed`. A site draws from its own
secret, because whoever knows the seed could subtract the noise; in simulation that secret is
derived from the seed, so that runs repeat to the bit.

Torch's generators use 32 bits of their seed, and a few thousand of their outputs give their state
away. So they serve for what may be known, and whatever hides something comes from a `Stream`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_PIECE = 2**20  # words of a stream that are made at once


@dataclass(frozen=True)
class Key:
    """A root of randomness and the path to one purpose under it."""

    root: bytes
    path: tuple[str, ...] = ()

    def at(self, *steps: object) -> Key:
        """The key one or more steps further: `key.at("round", 3, "batches")`."""
        return Key(self.root, self.path + tuple(str(s) for s in steps))

    def integer(self) -> int:
        """A 63-bit integer that depends on the root and the whole path."""
        return int.from_bytes(self._digest(8), "little") >> 1

    def secret(self) -> bytes:
        """32 bytes for a cipher or a private key."""
        return self._digest(32)

    def _digest(self, size: int) -> bytes:
        digest = hashlib.blake2b(key=self.root, digest_size=size)
        for step in self.path:
            raw = step.encode()
            digest.update(len(raw).to_bytes(4, "little") + raw)
        return digest.digest()

    def stream(self) -> Stream:
        """Draws that hide something: noise and coins of what leaves a site."""
        return Stream(self.secret())

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh torch generator for this purpose; it hides nothing."""
        return torch.Generator(device=device).manual_seed(self.integer())

    def numpy(self) -> np.random.Generator:
        """A fresh numpy generator for this purpose; it hides nothing."""
        return np.random.Generator(np.random.PCG64(self.integer()))


class Stream:
    """Numbers that nobody can foresee without the secret, however many of them are seen.

    SHAKE-128 of the secret and the number of the draw; the same draws in the same order give the
    same numbers again.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._drawn = 0

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Whole numbers of 64 bits."""
        made = []
        for start in range(0, count, _PIECE):
            name = self._secret + self._drawn.to_bytes(8, "little")
            self._drawn += 1
            raw = hashlib.shake_128(name).digest(8 * min(_PIECE, count - start))
            made.append(np.frombuffer(raw, "<u8"))
        return np.concatenate(made) if made else np.empty(0, np.uint64)

    def uniform(self, shape: Sequence[int]) -> Tensor:
        """Float64 numbers strictly between 0 and 1, in steps of 2^-53."""
        found = (self.words(math.prod(shape)) >> np.uint64(11)).view(np.int64)
        return torch.from_numpy(found).double().add_(0.5).mul_(2.0**-53).reshape(tuple(shape))

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard Gaussian numbers, two at once as a length and an angle (Box and Muller 1958)."""
        count = math.prod(shape)
        length, angle = self.uniform([2, (count + 1) // 2])
        length, angle = length.log_().mul_(-2).sqrt_(), angle.mul_(2 * math.pi)
        found = torch.cat([length * angle.cos(), length * angle.sin()])[:count]
        return found.to(dtype).reshape(tuple(shape))

    def below(self, limit: int, count: int) -> Tensor:
        """Whole numbers from 0 to `limit` - 1, as likely as another up to 2^-53."""
        return (self.uniform([count]) * limit).long().clamp_(max=limit - 1)

    def permutation(self, count: int) -> Tensor:
        """The numbers from 0 to `count` - 1 in some order."""
        return torch.from_numpy(self.words(count).argsort(kind="stable"))


def derive_server_key(seed: int) -> Key:
    """The server's root, from `run.seed`."""
    return Key(
        hashlib.blake2b(str(seed).encode(), digest_size=32, person=b"vitrail-server").digest()
    )


def derive_site_key(seed: int, site: str) -> Key:
    """The secret a site has in simulation, derived from the seed and the site's name."""
    text = f"{seed}/{site}".encode()
    return Key(hashlib.blake2b(text, digest_size=32, person=b"vitrail-site").digest())


@contextmanager
def seed_torch(key: Key) -> Iterator[None]:
    """Seed torch's global generator for code that uses it (dropout, captum); restore it after."""
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        if torch.accelerator.is_available():
            torch.random.manual_seed(key.integer())
        else:  # where it would note a stack trace for each kind of device that is not there
            torch.default_generator.manual_seed(key.integer())
        yield
