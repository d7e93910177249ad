"""What sites train in the figure of where noise is added: one model for all, sums over sites.

A learner gives the sum of the sites' changes, each clipped; noise goes on that sum, wherever it
comes from, and the mean moves the model. That is what the package's rules do with the updates of a
round, without the messages: frames that carry a step give the same step back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from vitrail.geometry.frames import draw_frames
from vitrail.geometry.retraction import polar
from vitrail.geometry.subspace_mean import leading_eigenvectors
from vitrail.geometry.subspace_step import follow_step
from vitrail.release.defenses.clipped_steps import count_sites_for_a_step
from vitrail.release.defenses.scatter import count_surviving_sites
from vitrail.rng import Key, derive_server_key

Part = tuple[Tensor, Tensor]  # images [N, 64] and labels [N]
CLASSES, PIXELS = 10, 64
SCALE = 10.0  # of logits: times the share of an image's energy in a class's subspace


def load_digits(seed: int) -> tuple[Part, Part, Part]:
    """Training, validation and test images of scikit-learn's digits, with their labels."""
    from sklearn.datasets import load_digits as load  # type: ignore[import-untyped]

    data = load()
    order = derive_server_key(seed).at("split").numpy().permutation(len(data.target))
    x = torch.from_numpy(data.data[order] / 16.0)
    y = torch.from_numpy(data.target[order]).long()
    return (x[:1200], y[:1200]), (x[1200:1500], y[1200:1500]), (x[1500:], y[1500:])


def deal(part: Part, sites: int) -> tuple[Tensor, Tensor]:
    """Images [sites, images, 64] and one-hot labels, the same number at every site."""
    count = len(part[1]) // sites
    labels = torch.eye(CLASSES, dtype=torch.float64)[part[1][: sites * count]]
    return (
        part[0][: sites * count].view(sites, count, -1),
        labels.view(sites, count, CLASSES),
    )


def clip_rows(changes: Tensor, clip: float | None) -> Tensor:
    """Each site's change [sites, ...], no longer than the clip as one vector."""
    if clip is None:
        return changes
    norms = changes.flatten(1).norm(dim=1).clamp_min(1e-12)
    scale = (clip / norms).clamp_max(1.0)
    clipped: Tensor = changes * scale.view(-1, *[1] * (changes.dim() - 1))
    return clipped


class Learner(Protocol):
    """One kind of model; `clips` says whether what a site adds is clipped."""

    @property
    def clips(self) -> bool:
        """Whether a clip is chosen."""
        ...

    def start(self, key: Key) -> Tensor:
        """The model before the first round."""
        ...

    def add_up(
        self, model: Tensor, x: Tensor, y: Tensor, rate: float, clip: float | None
    ) -> Tensor:
        """The sum over sites of what each adds after its turn."""
        ...

    def move(self, model: Tensor, mean: Tensor) -> Tensor:
        """The next model."""
        ...

    def score(self, model: Tensor, part: Part) -> float:
        """Accuracy on some images."""
        ...

    def sensitivity(self, clip: float) -> float:
        """How far one site moves the sum."""
        ...

    def count_sites(self, noise: float) -> int | None:
        """From how many sites on the budget line of a ledger says that there is a chance."""
        ...


@dataclass(frozen=True)
class Linear:
    """A linear classifier, 650 numbers; five full-batch steps of softmax regression a turn."""

    clips: bool = True
    steps: int = 5

    def start(self, key: Key) -> Tensor:
        """Zeros."""
        del key
        return torch.zeros(PIXELS + 1, CLASSES, dtype=torch.float64)

    def add_up(
        self, model: Tensor, x: Tensor, y: Tensor, rate: float, clip: float | None
    ) -> Tensor:
        """The sum of clipped changes of the weights."""
        x = _add_bias(x)
        local = model.expand(len(x), *model.shape).clone()
        for _ in range(self.steps):
            local -= rate * x.mT @ ((x @ local).softmax(-1) - y) / x.shape[1]
        return clip_rows(local - model, clip).sum(0)

    def move(self, model: Tensor, mean: Tensor) -> Tensor:
        """The mean change on top."""
        return model + mean

    def score(self, model: Tensor, part: Part) -> float:
        """Accuracy."""
        right = (_add_bias(part[0]) @ model).argmax(-1) == part[1]
        return float(right.double().mean())

    def sensitivity(self, clip: float) -> float:
        """The clip."""
        return clip

    def count_sites(self, noise: float) -> int | None:
        """No figure of its own."""
        del noise
        return None


def _add_bias(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


@dataclass(frozen=True)
class Steps:
    """FedGraSP's subspaces on an image as one patch, `consensus = "tangent"`: one full-batch
    Riemannian step a turn, clipped over all classes together."""

    clips: bool = True
    p: int = 3

    def start(self, key: Key) -> Tensor:
        """Random subspaces."""
        return draw_frames((CLASSES, PIXELS, self.p), key, torch.float64)

    def add_up(
        self, model: Tensor, x: Tensor, y: Tensor, rate: float, clip: float | None
    ) -> Tensor:
        """The sum of clipped steps."""
        return clip_rows(self.compute_steps(model, x, y, rate), clip).sum(0)

    def compute_steps(self, model: Tensor, x: Tensor, y: Tensor, rate: float) -> Tensor:
        """Each site's step [sites, classes, n, p] against its gradient."""
        x = _normalize(x)
        inside = torch.einsum("smn,cnp->smcp", x, model)
        error = ((SCALE * inside.square().sum(-1)).softmax(-1) - y) / x.shape[1]
        slope = 2 * SCALE * torch.einsum("smn,smcp->scnp", x, error[..., None] * inside)
        return -rate * (slope - model @ (model.mT @ slope))

    def move(self, model: Tensor, mean: Tensor) -> Tensor:
        """Where the mean step leads."""
        return follow_step(model, mean)

    def score(self, model: Tensor, part: Part) -> float:
        """Accuracy: the class whose subspace holds most of the image."""
        energy = torch.einsum("mn,cnp->mcp", _normalize(part[0]), model).square().sum(-1)
        return float((energy.argmax(-1) == part[1]).double().mean())

    def sensitivity(self, clip: float) -> float:
        """The clip, whatever the number of classes."""
        return clip

    def count_sites(self, noise: float) -> int | None:
        """`sites_for_a_step`."""
        return count_sites_for_a_step(noise, CLASSES, PIXELS, self.p)


def _normalize(x: Tensor) -> Tensor:
    unit: Tensor = x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return unit


@dataclass(frozen=True)
class Projectors(Steps):
    """The same subspaces as whole projectors, `consensus = "exact"` without a clip."""

    clips: bool = False

    def add_up(
        self, model: Tensor, x: Tensor, y: Tensor, rate: float, clip: float | None
    ) -> Tensor:
        """The sum of projectors [classes, n, n]."""
        del clip
        frames = polar(model, self.compute_steps(model, x, y, rate))
        side = frames.movedim(0, -2).flatten(-2)  # [classes, n, sites p]
        return side @ side.mT

    def move(self, model: Tensor, mean: Tensor) -> Tensor:
        """The top eigenspace."""
        del model
        return leading_eigenvectors((mean + mean.mT) / 2, self.p)

    def sensitivity(self, clip: float) -> float:
        """sqrt(2 p classes)."""
        del clip
        return math.sqrt(2 * self.p * CLASSES)

    def count_sites(self, noise: float) -> int | None:
        """`sites_for_an_eigengap`."""
        return count_surviving_sites(self.sensitivity(1.0) * noise, PIXELS)
