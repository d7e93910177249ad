"""A small U-Net (Ronneberger et al. 2015, arXiv:1505.04597) that undoes what protects an image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.attack.budget import Tell
from vitrail.attack.descent import descend
from vitrail.data.shared_memory import ensure_cache_folder
from vitrail.errors import DataError
from vitrail.files import read_tensors, write_tensors
from vitrail.rng import Key, seed_torch

WIDTH = 16  # a multiple of 4
_BATCH = 16
_CHUNK = 256


class UNet(nn.Module):
    """Protected pixels [N, C, H, W] of any size to raw ones from 0 to 1; three resolutions."""

    def __init__(self, channels: int, width: int = WIDTH) -> None:
        super().__init__()
        self.channels, self.width, self.steps = channels, width, 0
        sides = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(
            _block(before, after) for before, after in zip((channels, *sides), sides)
        )
        self.up = nn.ModuleList(
            _block(low + high, high) for low, high in ((sides[2], sides[1]), (sides[1], sides[0]))
        )
        self.last = nn.Conv2d(width, channels, 1)
        self.register_buffer("scale", torch.ones(()))  # what is protected may be large

    def forward(self, x: Tensor) -> Tensor:
        """Down with averages, up with the maps of the way down beside."""
        x, kept = x / self.get_buffer("scale"), []
        for number, block in enumerate(self.down):
            x = block(F.avg_pool2d(x, 2, ceil_mode=True) if number else x)
            kept.append(x)
        for block, beside in zip(self.up, (kept[1], kept[0]), strict=True):
            x = F.interpolate(x, size=beside.shape[-2:], mode="nearest")
            x = block(torch.cat([x, beside], 1))
        logits: Tensor = self.last(x)
        return logits.sigmoid()

    @torch.no_grad()
    def restore(self, x: Tensor) -> Tensor:
        """Many images, some at a time."""
        parts = [self(x[at : at + _CHUNK]) for at in range(0, len(x), _CHUNK)]
        return torch.cat(parts) if parts else x


def _block(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1),
        nn.GroupNorm(4, after),
        nn.SiLU(),
        nn.Conv2d(after, after, 3, padding=1),
        nn.GroupNorm(4, after),
        nn.SiLU(),
    )


def train_unet(
    protected: Tensor,
    raw: Tensor,
    key: Key,
    steps: int,
    tell: Tell | None = None,
    width: int = WIDTH,
    late: Callable[[], bool] = lambda: False,
) -> UNet:
    """Learn from pairs: `protected` [views, N, C, H, W] of the images `raw` [N, C, H, W], until
    it is too `late`. The network's `steps` are those that were made."""
    if not len(raw):
        raise DataError("a denoiser needs public images to learn from", where="--public")
    with seed_torch(key.at("weights")):
        network = UNet(raw.shape[1], width)
    network.get_buffer("scale").copy_(protected.square().mean().sqrt().clamp_min(1e-6))
    draw = key.at("batches").torch()

    def loss() -> Tensor:
        at = torch.randint(len(raw), (_BATCH,), generator=draw)
        view = torch.randint(len(protected), (_BATCH,), generator=draw)
        error: Tensor = (network(protected[view, at]) - raw[at]).square().mean()
        return error

    network.steps = descend(list(network.parameters()), loss, steps, tell, late)
    return network.eval().requires_grad_(False)


def load_or_train_unet(
    protected: Tensor,
    raw: Tensor,
    key: Key,
    steps: int,
    tell: Tell | None = None,
    width: int = WIDTH,
    late: Callable[[], bool] = lambda: False,
) -> UNet:
    """The denoiser of these very pairs, trained once and kept in the cache, if there was time for
    all of its steps."""
    digest = hashlib.blake2b(f"{steps} {width} {_BATCH} {key.integer()}".encode(), digest_size=12)
    for tensor in (protected, raw):
        digest.update(str(tuple(tensor.shape)).encode() + tensor.contiguous().numpy().tobytes())
    path = ensure_cache_folder() / "denoisers" / f"{digest.hexdigest()}.safetensors"
    if not path.is_file():
        network = train_unet(protected, raw, key, steps, tell, width, late)
        if network.steps < steps:
            return network
        write_tensors(
            path, network.state_dict(), {"channels": network.channels, "width": network.width}
        )
    kept = _load(path)
    kept.steps = steps
    return kept


def _load(path: Path) -> UNet:
    tensors, meta = read_tensors(path)
    try:
        network = UNet(int(meta["channels"]), int(meta["width"]))
        network.load_state_dict(tensors)
    except (KeyError, RuntimeError) as err:
        raise DataError("this file holds no denoiser", where=str(path), hint="Delete it.") from err
    return network.eval().requires_grad_(False)
