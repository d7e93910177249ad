"""Random draws keyed by (root, round, site, purpose), so that every draw can be repeated alone.

There are two kinds of roots. The server draws from `run.seed`. A site draws from its own
secret, because whoever knows the seed could subtract the noise; in simulation that secret is
derived from the seed, so that runs repeat to the bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


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

    def torch(self, device: torch.device | str = "cpu") -> torch.Generator:
        """A fresh torch generator for this purpose."""
        return torch.Generator(device=device).manual_seed(self.integer())

    def numpy(self) -> np.random.Generator:
        """A fresh numpy generator for this purpose."""
        return np.random.Generator(np.random.PCG64(self.integer()))


def server(seed: int) -> Key:
    """The server's root, from `run.seed`."""
    return Key(
        hashlib.blake2b(str(seed).encode(), digest_size=32, person=b"vitrail-server").digest()
    )


def simulated_site(seed: int, site: str) -> Key:
    """The secret a site has in simulation, derived from the seed and the site's name."""
    text = f"{seed}/{site}".encode()
    return Key(hashlib.blake2b(text, digest_size=32, person=b"vitrail-site").digest())


@contextmanager
def scope(key: Key) -> Iterator[None]:
    """Seed torch's global generator for code that uses it (dropout, captum); restore it after."""
    with torch.random.fork_rng(devices=list(range(torch.cuda.device_count()))):
        torch.random.manual_seed(key.integer())
        yield
