"""FedGraSP's model: a class is a subspace, and its score the energy of an image's best patches.

"Interpretable and Privacy-Preserving Federated Learning via Subspace Representations" (ICML
workshop AI4NextG, 2026). The readings taken here are listed in docs/explanation/subspaces.md.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config.schema import Model, Subspaces
from vitrail.errors import ConfigError
from vitrail.models.heads.head import HEADS, Head, Outputs
from vitrail.models.heads.part_head import PartHead, Piece
from vitrail.models.heads.subspace_layers import (
    compute_coordinates,
    draw_starting_frames,
    make_neck,
)

_TOP = 20


class SubspaceHead(PartHead):
    """Scores s_c = mean over the top patches of |U_c^T z|^2, and logits G s.

    `frames` [classes, n, p] hold a basis of each class's subspace, `weight` [classes, classes]
    is G, which starts at the identity. Of lifted patches the energy of the constant channel alone
    is taken off every score: it is the same for all classes and says nothing.
    """

    prototypes = ("frames",)
    geometries = {"frames": "grassmann"}
    penalties = ("l1",)
    frames: Tensor
    weight: Tensor
    owner: Tensor

    def __init__(self, classes: int, options: Subspaces, depth: int | None = None) -> None:
        super().__init__()
        self.options = options
        where = "model.subspaces.dimension"
        depth = options.depth if depth is None else depth
        lifted = options.lift > 0
        self.frames = nn.Parameter(
            draw_starting_frames(classes, depth, options.dimension, where, lifted)
        )
        self.weight = nn.Parameter(torch.eye(classes))
        self.register_buffer("owner", torch.arange(classes))

    def alive(self) -> Tensor:
        """Every subspace is in use."""
        return torch.ones_like(self.owner, dtype=torch.bool)

    def maps(self, z: Tensor) -> Tensor:
        """The energy of every patch in every subspace, [N, classes, H, W]; of lifted patches how
        much more it is than that of the constant alone."""
        if self.options.normalize == "l2":
            z = self.options.scale * F.normalize(z, dim=1)
        energies = compute_coordinates(z, self.frames).square().sum(2)
        return energies - self.options.lift**2 if self.options.lift else energies

    def measure(self, z: Tensor) -> Outputs:
        """The classes' scores, [N, classes], and as `shares` what of their patches' energy lies in
        the subspace, from 0 to 1: the mean over the same patches of |U_c^T z|^2 / |z|^2."""
        best = self._best(self.maps(z).flatten(2), ranked=False)
        scores = best.values.mean(2)
        if self.options.normalize == "l2":
            return {"scores": scores, "shares": scores / self.options.scale**2}
        lengths = z.square().sum(1).flatten(1).clamp_min(1e-24)  # [N, positions]
        lengths = lengths[:, None].expand(-1, len(self.owner), -1).gather(2, best.indices)
        energies = best.values + self.options.lift**2 if self.options.lift else best.values
        return {"scores": scores, "shares": (energies / lengths).mean(2)}

    def compute_logits(self, measured: Outputs) -> Outputs:
        """G s."""
        return {**measured, "logits": F.linear(measured["scores"], self.weight)}

    def loss(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """Cross-entropy, minus the own share, the highest other one, L1 of G off the diagonal.

        Compactness and separation always see shares, whatever makes the logits: raw energies have
        no bound, and the neck would only have to grow.
        """
        shares, options = outputs["shares"], self.options
        own_class = labels[:, None] == torch.arange(shares.shape[1], device=labels.device)
        terms = {
            "cross_entropy": F.cross_entropy(outputs["logits"], labels),
            "compactness": -options.compactness * shares.gather(1, labels[:, None]).mean(),
            "l1": options.l1 * (self.weight - self.weight.diag().diag()).abs().sum(),
        }
        if shares.shape[1] > 1:
            other = shares.masked_fill(own_class, -torch.inf).amax(1)
            terms["separation"] = options.separation * other.mean()
        return terms

    @torch.no_grad()
    def pieces(self, z: Tensor, label: int) -> list[Piece]:
        """One piece for each top patch of the class, then the pull of every other class."""
        maps = self.maps(z)[0]
        best = self._best(maps.flatten(1))
        count, width = best.values.shape[1], maps.shape[2]
        scores, weight = best.values.mean(1), self.weight[label]
        pieces = []
        for rank in range(count):
            score = float(best.values[label, rank]) / count
            pieces.append(
                Piece(
                    name=f"patch {rank + 1}",
                    score=score,
                    weight=float(weight[label]),
                    contribution=score * float(weight[label]),
                    unit=label,
                    owner=label,
                    map=maps[label],
                    at=divmod(int(best.indices[label, rank]), width),
                )
            )
        for other in torch.nonzero(weight)[:, 0].tolist():
            if other != label:
                score, pull = float(scores[other]), float(weight[other])
                pieces.append(
                    Piece(f"pull of class {other}", score, pull, score * pull, other, other)
                )
        return pieces

    def _best(self, energies: Tensor, ranked: bool = True) -> torch.return_types.topk:
        """The top patches by each class's own energy; a mean does not need them in order."""
        positions = energies.shape[-1]
        count = min(_TOP, positions) if self.options.top is None else self.options.top
        if count > positions:
            raise ConfigError(
                f"{count} patches are to make a score, and the map has {positions} positions",
                where="model.subspaces.top",
                hint="Ask for fewer, or use larger images.",
            )
        return energies.topk(count, dim=-1, sorted=ranked)


@HEADS.register("fedgrasp")
def fedgrasp(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """Two 1x1 convolutions, by default without an activation, and subspaces on top."""
    options = model.subspaces
    if options.lift and options.normalize == "l2":
        raise ConfigError(
            "patches of one length have no place for a constant channel",
            where="model.subspaces.lift",
            hint='Set model.subspaces.normalize = "none".',
        )
    neck, depth = make_neck(channels, options)
    return neck, SubspaceHead(classes, options, depth)
