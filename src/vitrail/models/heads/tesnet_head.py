"""TesNet: ProtoPNet whose prototypes are basis vectors of one subspace a class.

Wang et al. 2021, "Interpretable Image Recognition by Constructing Transparent Embedding Space"
(ICCV).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitrail.config.schema import Model
from vitrail.models.heads.addon import make_addon
from vitrail.models.heads.head import HEADS, Head, Outputs
from vitrail.models.heads.part_head import (
    PartHead,
    Piece,
    make_owners,
    make_pieces,
    make_starting_weight,
)
from vitrail.models.heads.subspace_layers import compute_coordinates, draw_starting_frames

_DEPTH = 64


class TesHead(PartHead):
    """Unit basis vectors, the largest <z, b> over positions, and a linear layer without bias.

    `frames` [classes, n, p] hold the basis vectors as columns. Free columns are brought to
    length 1 where they are used; with `curved` they are frames of the Stiefel manifold.
    """

    prototypes = ("frames",)
    penalties = ("l1", "orthogonality", "apart")
    frames: Tensor
    weight: Tensor
    owner: Tensor

    def __init__(self, depth: int, classes: int, model: Model, curved: bool = False) -> None:
        super().__init__()
        self.options, self.more = model.prototypes, model.subspaces
        self.geometries = {"frames": "stiefel"} if curved else {}
        per_class = self.options.per_class
        where = "model.prototypes.per_class"
        self.frames = nn.Parameter(draw_starting_frames(classes, depth, per_class, where))
        self.register_buffer("owner", make_owners(classes, per_class))
        self.weight = nn.Parameter(make_starting_weight(self.owner, classes))

    def alive(self) -> Tensor:
        """Every vector is in use."""
        return torch.ones_like(self.owner, dtype=torch.bool)

    def basis(self) -> Tensor:
        """The basis vectors at length 1, [classes, n, p]."""
        return F.normalize(self.frames, dim=1)

    def maps(self, z: Tensor) -> Tensor:
        """<z, b> of every vector at every position, [N, classes x p, H, W]."""
        return compute_coordinates(z, self.basis()).flatten(1, 2)

    def measure(self, z: Tensor) -> Outputs:
        """The largest activation and cosine of each vector over positions, [N, classes x p]."""
        activations = self.maps(z).flatten(2)
        lengths = torch.linalg.vector_norm(z, dim=1).clamp_min(1e-12).flatten(1)
        with torch.no_grad():  # only the places that win are differentiated
            places = (activations / lengths[:, None]).argmax(2)
        cosines = activations.gather(2, places[..., None])[..., 0] / lengths.gather(1, places)
        return {"scores": activations.max(2).values, "cosines": cosines}

    def compute_logits(self, measured: Outputs) -> Outputs:
        """Activations times the last layer."""
        return {**measured, "logits": F.linear(measured["scores"], self.weight)}

    def loss(self, outputs: Outputs, labels: Tensor) -> dict[str, Tensor]:
        """The six terms: CE + clst - sep + L1 + orth - subsep, each with its weight."""
        cosines, options = outputs["cosines"], self.options
        classes = len(self.weight)
        by_class = cosines.view(len(labels), classes, -1).amax(2)
        names = torch.arange(classes, device=labels.device)
        own_class = labels[:, None] == names
        foreign = self.owner != names[:, None]
        basis = self.basis()
        terms = {
            "cross_entropy": F.cross_entropy(outputs["logits"], labels),
            "cluster": -options.cluster * by_class.gather(1, labels[:, None]).mean(),
            "l1": options.l1 * self.weight[foreign].abs().sum(),
            "orthogonality": self.more.orthogonality * orthogonality(basis),
            "apart": -self.more.apart * subspace_separation(basis),
        }
        if classes > 1:
            other = by_class.masked_fill(own_class, -torch.inf).amax(1)
            terms["separation"] = options.separation * other.mean()
        return terms

    @torch.no_grad()
    def pieces(self, z: Tensor, label: int) -> list[Piece]:
        """One piece a basis vector: its largest activation times its weight."""
        maps = self.maps(z)[0]
        return make_pieces(maps, self.weight[label], self.owner, self.alive(), "basis vector")


def orthogonality(basis: Tensor) -> Tensor:
    """sum over classes of |B_c B_c^T - I|_1, the vectors being the rows of B_c."""
    eye = torch.eye(basis.shape[2], dtype=basis.dtype, device=basis.device)
    return (basis.mT @ basis - eye).abs().sum()


def subspace_separation(basis: Tensor) -> Tensor:
    """sum over i < j of |P_i - P_j|_F / sqrt(2) with P = B^T B, without an n x n matrix.

    |P_i - P_j|^2 = |B_i B_i^T|^2 + |B_j B_j^T|^2 - 2 |B_i B_j^T|^2: the bases are not quite
    orthonormal, so nothing shorter is right.
    """
    classes, n, p = basis.shape
    rows = basis.mT.reshape(classes * p, n)
    products = (rows @ rows.T).square().view(classes, p, classes, p).sum((1, 3))
    lengths = products.diagonal()
    squares = lengths[:, None] + lengths - 2 * products
    i, j = torch.triu_indices(classes, classes, 1, device=basis.device)
    return (squares[i, j].clamp_min(1e-12) / 2).sqrt().sum()


@HEADS.register("tesnet")
def tesnet(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """The add-on layers, by default with a sigmoid, and free basis vectors on top."""
    return _tesnet(channels, classes, model, curved=False)


@HEADS.register("tesnet-stiefel")
def tesnet_stiefel(channels: int, classes: int, model: Model) -> tuple[nn.Module, Head]:
    """The same with basis vectors that stay orthonormal."""
    return _tesnet(channels, classes, model, curved=True)


def _tesnet(channels: int, classes: int, model: Model, curved: bool) -> tuple[nn.Module, Head]:
    depth = model.prototypes.depth or _DEPTH
    neck = make_addon(
        channels, depth, model.subspaces.activation or "sigmoid", model.prototypes.gain
    )
    return neck, TesHead(depth, classes, model, curved)
