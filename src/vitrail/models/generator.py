"""Small generators: a class and noise to the features that a head sees, or to an image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Generator(nn.Module):
    """What makes something of a class from noise. No layer mixes a batch or keeps statistics."""

    def __init__(self, classes: int, noise: int) -> None:
        super().__init__()
        self.classes, self.noise = classes, noise

    def start(self, labels: Tensor, noise: Tensor) -> Tensor:
        """One-hot labels beside the noise, [N, classes + noise]."""
        return torch.cat([F.one_hot(labels, self.classes).to(noise.dtype), noise], dim=1)

    def draw(self, count: int, shares: Tensor, key: torch.Generator) -> tuple[Tensor, Tensor]:
        """Labels [count] in these shares, and noise [count, noise]."""
        labels = torch.multinomial(shares, count, replacement=True, generator=key)
        return labels, torch.randn(count, self.noise, generator=key)


class FeatureGenerator(Generator):
    """One hidden layer from (class, noise) to pooled features [N, features]."""

    def __init__(self, classes: int, features: int, noise: int = 32, hidden: int = 128) -> None:
        super().__init__(classes, noise)
        self.hidden = nn.Linear(classes + noise, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, features)

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        """Features of these classes."""
        features: Tensor = self.out(F.relu(self.norm(self.hidden(self.start(labels, noise)))))
        return features


class ImageGenerator(Generator):
    """From (class, noise) to images [N, H, W, C] in [0, 1], by two upsamplings."""

    def __init__(
        self, classes: int, image: tuple[int, int, int], noise: int = 32, width: int = 16
    ) -> None:
        super().__init__(classes, noise)
        self.image, self.width = image, width
        self.side = tuple(-(-side // 4) for side in image[:2])
        self.root = nn.Linear(classes + noise, 2 * width * self.side[0] * self.side[1])
        self.first = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.second = nn.Conv2d(2 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, image[2], 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, n) for n in (2 * width, 2 * width, width))

    def forward(self, labels: Tensor, noise: Tensor) -> Tensor:
        """Images of these classes."""
        x = self.root(self.start(labels, noise)).view(-1, 2 * self.width, *self.side)
        x = F.relu(self.norms[0](x))
        for conv, norm in ((self.first, self.norms[1]), (self.second, self.norms[2])):
            x = F.relu(norm(conv(F.interpolate(x, scale_factor=2.0))))
        height, width, _ = self.image
        return torch.sigmoid(self.out(x)[:, :, :height, :width]).permute(0, 2, 3, 1)


def diversity_loss(images: Tensor, noise: Tensor) -> Tensor:
    """exp(-mean over pairs of |image_i - image_j| |noise_i - noise_j|): large if noise is ignored.

    Distances are mean absolute differences (after Mao et al. 2019, arXiv:1903.05628).
    """
    flat = images.flatten(1)
    distance = torch.cdist(flat, flat, p=1) / flat.shape[1]
    drawn = torch.cdist(noise, noise, p=1) / noise.shape[1]
    return torch.exp(-(distance * drawn).mean())
