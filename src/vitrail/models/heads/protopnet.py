"""ProtoPNet: an image is classified by its patches' distances to learned prototypes.

Chen et al. 2019, arXiv:1806.10574.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config.schema import Model, Prototypes
from vitrail.models.heads.addon import Activation, make_addon
from vitrail.models.heads.head import HEADS, Head, Outputs
from vitrail.models.heads.part_head import (
    PartHead,
    Piece,
    make_owners,
    make_pieces,
    make_starting_weight,
)

_EPSILON = 1e-4
_DEPTH = 128


def squared_distances(z: Tensor, vectors: Tensor) -> Tensor:
    """|z - p|^2 of every patch of [N, D, H, W] to every vector of [m, D], as [N, m, H, W]."""
    cross = F.conv2d(z, vectors[:, :, None, None])
    patches = z.square().sum(1, keepdim=True)
    lengths = vectors.square().sum(1)[None, :, None, None]
    return (patches - 2 * cross + lengths).clamp_min(0)


def similarity(distances: Tensor) -> Tensor:
    """log((d + 1) / (d + 1e-4)): 0 far away, 9.2 for a perfect match."""
    return torch.log((distances + 1) / (distances + _EPSILON))


class ProtoHead(PartHead):
    """Prototypes, similarities, and a linear layer without bias that weighs them.

    `vectors` [m, D] are the prototypes, `owner` [m] their classes, `mask` [m] says which are in
    use (at least 0.5: a mean of masks is a vote).
    """

    prototypes = ("vectors",)
    statistics = ("mask",)
    penalties = ("l1",)
    vectors: Tensor
    weight: Tensor
    owner: Tensor
    mask: Tensor

    def __init__(self, depth: int, classes: int, options: Prototypes) -> None:
        super().__init__()
        self.options = options
        count = options.per_class * classes
        draw = torch.randn if options.similarity == "cosine" else torch.rand
        self.vectors = nn.Parameter(draw(count, depth))
        self.register_buffer("owner", make_owners(classes, options.per_class))
        self.register_buffer("mask", torch.ones(count))
        self.weight = nn.Parameter(make_starting_weight(self.owner, classes))

    def alive(self) -> Tensor:
        """Which prototypes are in use."""
        return self.mask >= 0.5

    def embed(self, z: Tensor) -> Tensor:
        """Patches [N, D, ...] as they are compared: for cosines at length 1."""
        return F.normalize(z, dim=1) if self.options.similarity == "cosine" else z

    def compute_similarity(self, distances: Tensor) -> Tensor:
        """What a squared distance is worth: log((d + 1) / (d + 1e-4)), or of vectors of length 1
        their cosine 1 - d / 2, times the scale."""
        if self.options.similarity == "cosine":
            return self.options.scale * (1 - distances / 2)
        return similarity(distances)

    def compute_distances(self, z: Tensor) -> Tensor:
        """|z - p|^2 of every patch and prototype, [N, m, H, W], as they are compared."""
        return squared_distances(self.embed(z), self.embed(self.vectors))

    def measure(self, z: Tensor) -> Outputs:
        """The smallest distance of each prototype to a patch, and its similarity, [N, m]."""
        nearest = self.compute_distances(z).amin((2, 3))
        return {"distances": nearest, "scores": self.compute_similarity(nearest) * self.alive()}

    def compute_logits(self, measured: Outputs) -> Outputs:
        """Similarities times the last layer."""
        return {**measured, "logits": F.linear(measured["scores"], self.weight)}

    def loss(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """Cross-entropy, cluster cost, minus separation cost, L1 on other classes' weights."""
        nearest, alive = outputs["distances"], self.alive()
        own_class = (self.owner == labels[:, None]) & alive
        other = (self.owner != labels[:, None]) & alive
        classes = torch.arange(len(self.weight), device=labels.device)
        foreign = (self.owner != classes[:, None]) & alive
        return {
            "cross_entropy": F.cross_entropy(outputs["logits"], labels),
            "cluster": self.options.cluster * masked_minimum(nearest, own_class).mean(),
            "separation": -self.options.separation * masked_minimum(nearest, other).mean(),
            "l1": self.options.l1 * self.weight[foreign].abs().sum(),
        }

    def maps(self, z: Tensor) -> Tensor:
        """The similarity at every position."""
        return self.compute_similarity(self.compute_distances(z))

    def compute_metrics(self) -> dict[str, float]:
        """The share of prototypes in use that another one of their class nearly equals."""
        return {
            "duplicates": compute_duplicate_share(self.vectors.detach(), self.owner, self.alive())
        }

    @torch.no_grad()
    def pieces(self, z: Tensor, label: int) -> list[Piece]:
        """One piece a prototype in use: similarity times weight, at its best position."""
        maps = self.maps(z)[0]
        return make_pieces(maps, self.weight[label], self.owner, self.alive(), "prototype")


def compute_duplicate_share(
    vectors: Tensor, owner: Tensor, alive: Tensor, tolerance: float = 1e-3
) -> float:
    """How many of the vectors in use have another of their class within a squared distance of
    `tolerance` times their mean squared norm, as a share."""
    if not bool(alive.any()):
        return 0.0
    vectors, owner = vectors[alive], owner[alive]
    distances = torch.cdist(vectors, vectors).square()
    other = (owner[:, None] == owner) & ~torch.eye(
        len(owner), dtype=torch.bool, device=owner.device
    )
    nearest = distances.masked_fill(~other, torch.inf).amin(1)
    return float((nearest <= tolerance * vectors.square().sum(1).mean()).double().mean())


def masked_minimum(values: Tensor, mask: Tensor) -> Tensor:
    """The row-wise minimum of [N, m] where `mask` is true, 0 for rows in which it never is."""
    smallest = values.masked_fill(~mask, torch.inf).amin(1)
    return torch.where(mask.any(1), smallest, torch.zeros_like(smallest))


@HEADS.register("protopnet")
def protopnet(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """The add-on layers as the neck, and `[model.prototypes]` on top."""
    options = model.prototypes
    depth = options.depth or _DEPTH
    activation: Activation = "none" if options.similarity == "cosine" else "sigmoid"
    neck = make_addon(channels, depth, activation, options.gain)
    return neck, ProtoHead(depth, classes, options)
