"""Models: backbones, heads, and the parts they are made of."""

from vitrail.models import affine as _affine  # noqa: F401  (registers it)
from vitrail.models import backbones as _backbones  # noqa: F401  (registers them)
from vitrail.models import centers as _centers  # noqa: F401  (registers it)
from vitrail.models import sphere as _sphere  # noqa: F401  (registers it)
from vitrail.models.backbone import BACKBONES, Backbone
from vitrail.models.build import build
from vitrail.models.fedgrasp import SubspaceHead
from vitrail.models.flat import FlatModel, Layout, Region
from vitrail.models.head import HEADS, Head
from vitrail.models.network import Network, make_network
from vitrail.models.parts import KINDS, PARTS, TensorSpec, inventory
from vitrail.models.pieces import PartHead, Piece
from vitrail.models.protopnet import ProtoHead
from vitrail.models.tesnet import TesHead

__all__ = [
    "BACKBONES",
    "HEADS",
    "KINDS",
    "PARTS",
    "Backbone",
    "FlatModel",
    "Head",
    "Layout",
    "Network",
    "PartHead",
    "Piece",
    "ProtoHead",
    "Region",
    "SubspaceHead",
    "TensorSpec",
    "TesHead",
    "build",
    "inventory",
    "make_network",
]
