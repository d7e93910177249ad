"""A small generator of images, trained on public ones: the prior of attacks with a generator.

It is the decoder half of an autoencoder, a chain of stages from a latent vector to pixels, so
that an attack can go in at any stage. Nothing adversarial is needed at this size.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from vitrail.attack.budget import Tell
from vitrail.attack.descent import descend
from vitrail.data.shared_memory import ensure_cache_folder
from vitrail.errors import ConfigError, DataError
from vitrail.files import read_tensors, write_tensors
from vitrail.rng import Key, derive_server_key, seed_torch

LATENT = 128
_WIDTHS = (64, 64, 32, 16)  # of the maps from small to large; larger ones have the last
_BATCH = 64


class Generator(nn.Module):
    """A latent [N, 128] through stages to pixels [N, C, S, S] from 0 to 1; S is 8 times a power."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        side, width = _first_side(size), _WIDTHS[0]
        self.channels, self.size = channels, size
        stages: list[nn.Module] = [
            nn.Sequential(
                nn.Linear(LATENT, width * side * side), nn.Unflatten(1, (width, side, side))
            )
        ]
        while side < size:
            before, width = width, _width(len(stages))
            stages.append(_up(before, width))
            side *= 2
        stages.append(nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(width, channels, 3, padding=1)))
        self.stages = nn.ModuleList(stages)

    def forward(self, z: Tensor, after: int = 0) -> Tensor:
        """From the input of stage `after` to pixels."""
        for stage in list(self.stages)[after:]:
            z = stage(z)
        return z.sigmoid()


def _width(stage: int) -> int:
    """Channels of a map that was doubled `stage` times: fewer where there are more places."""
    return _WIDTHS[min(stage, len(_WIDTHS) - 1)]


def _first_side(size: int) -> int:
    """The side of the first map: halved from the image's while that is whole and above 4."""
    side = size
    while side % 2 == 0 and side > 4:
        side //= 2
    if side > 16:
        raise ConfigError(
            f"the small generator makes no images of {size} pixels",
            where="--public",
            hint="Use an image_size that is a power of two times 4 to 16, or your own generator.",
        )
    return side


def _up(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(before, after, 3, padding=1),
        nn.GroupNorm(8, after),
    )


class _Encoder(nn.Sequential):
    """Pixels to the latent; thrown away once the generator is trained."""

    def __init__(self, channels: int, size: int) -> None:
        side, before, layers = size, channels, []
        for stage in reversed(range((size // _first_side(size)).bit_length() - 1)):
            after = _width(stage)
            layers += [nn.Conv2d(before, after, 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
            side, before = side // 2, after
        super().__init__(*layers, nn.Flatten(), nn.Linear(before * side * side, LATENT))


def train_generator(
    images: npt.NDArray[np.uint8],
    key: Key,
    steps: int = 2000,
    tell: Tell | None = None,
    batch: int = _BATCH,
) -> Generator:
    """An autoencoder on uint8 images [N, S, S, C]; its decoder. Latents are kept near N(0, 1)."""
    if len(images) < 2:
        raise DataError("a generator needs public images to learn from", where="--public")
    size, channels = int(images.shape[1]), int(images.shape[3])
    with seed_torch(key.at("weights")):
        generator, encoder = Generator(channels, size), _Encoder(channels, size)
    draw = key.at("batches").torch()

    def loss() -> Tensor:
        at = torch.randint(len(images), (batch,), generator=draw).numpy()
        x = torch.from_numpy(images[at]).permute(0, 3, 1, 2).float() / 255
        z = encoder(x)
        noise = torch.randn(z.shape, generator=draw)
        # A little noise and a pull to zero keep the latents where the attack draws its starts.
        error: Tensor = (generator(z + 0.1 * noise) - x).square().mean() + 1e-4 * z.square().mean()
        return error

    descend([*generator.parameters(), *encoder.parameters()], loss, steps, tell)
    return generator.eval().requires_grad_(False)


def load_or_train_generator(
    images: npt.NDArray[np.uint8], steps: int, tell: Tell | None = None
) -> Generator:
    """The generator of these very images, trained once and kept in the cache."""
    digest = hashlib.blake2b(np.ascontiguousarray(images).data, digest_size=12)
    digest.update(f"{images.shape} {steps} {LATENT} {_WIDTHS}".encode())
    path = ensure_cache_folder() / "generators" / f"{digest.hexdigest()}.safetensors"
    if not path.is_file():
        generator = train_generator(images, derive_server_key(0).at("generator"), steps, tell)
        save_generator(generator, path)
    return load_generator(path)


def save_generator(generator: Generator, path: Path) -> None:
    """Write a generator as tensors and its shape."""
    meta = {"channels": generator.channels, "size": generator.size}
    write_tensors(path, generator.state_dict(), meta)


def load_generator(path: Path) -> Generator:
    """Read a generator back."""
    tensors, meta = read_tensors(path)
    try:
        generator = Generator(int(meta["channels"]), int(meta["size"]))
        generator.load_state_dict(tensors)
    except (KeyError, RuntimeError) as err:
        raise DataError(
            "this file holds no generator",
            where=str(path),
            hint="Delete it; with public images it is trained again.",
        ) from err
    return generator.eval().requires_grad_(False)


def check_fits(generator: nn.Module, shape: tuple[int, int, int], where: str) -> None:
    """Refuse a generator whose images are not of the run's size."""
    with torch.no_grad():
        size = tuple(generator(torch.zeros(1, LATENT)).shape[1:])
    if size != shape:
        wanted, got = (" x ".join(map(str, s)) for s in (shape, size))
        raise ConfigError(
            f"the generator makes images of {got}, and the run has {wanted}",
            where=where,
            hint="Train one on public images of that size: `--public PATH`.",
        )
