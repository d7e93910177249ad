"""A small variational autoencoder of images (Kingma and Welling 2014, arXiv:1312.6114)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Vae(nn.Module):
    """Images [N, C, H, W] in [0, 1] through a latent map of a quarter of their sides, and back."""

    def __init__(self, channels: int, width: int = 16, latent: int = 8) -> None:
        super().__init__()
        self.latent = latent
        self.down = nn.Sequential(*_block(channels, width, 2), *_block(width, 2 * width, 2))
        self.code = nn.Conv2d(2 * width, 2 * latent, 3, padding=1)
        self.up = nn.Sequential(
            *_block(latent, 2 * width, 1),
            nn.Upsample(scale_factor=2.0),
            *_block(2 * width, width, 1),
            nn.Upsample(scale_factor=2.0),
            nn.Conv2d(width, channels, 3, padding=1),
        )

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the latent map."""
        mean, spread = self.code(self.down(x)).chunk(2, dim=1)
        return mean, spread.clamp(-8, 8)

    def decode(self, code: Tensor, size: tuple[int, int]) -> Tensor:
        """An image of a size, in [0, 1]."""
        return torch.sigmoid(self.up(code)[:, :, : size[0], : size[1]])

    def forward(self, x: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The image again, and KL(latent || standard normal) a number; without noise the mean
        stands for the draw."""
        mean, spread = self.encode(x)
        code = mean if noise is None else mean + (spread / 2).exp() * noise
        divergence = 0.5 * (mean.square() + spread.exp() - 1 - spread).mean()
        return self.decode(code, (x.shape[2], x.shape[3])), divergence

    def shape(self, x: Tensor) -> tuple[int, int, int, int]:
        """That of the latent map of some images, for the noise."""
        height, width = (-(-side // 4) for side in x.shape[2:])
        return len(x), self.latent, height, width


def _block(inside: int, outside: int, stride: int) -> tuple[nn.Module, ...]:
    conv = nn.Conv2d(inside, outside, 3, stride=stride, padding=1)
    return conv, nn.GroupNorm(4 if outside % 4 == 0 else 1, outside), nn.ReLU()
