"""Models: backbones, heads, and the parts they are made of."""

from vitrail.models import backbones, heads
from vitrail.models.backbone import BACKBONES, Backbone
from vitrail.models.build import build
from vitrail.models.flat import FlatModel, Layout, Region
from vitrail.models.heads.head import HEADS, Head
from vitrail.models.heads.part_head import PartHead, Piece
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.heads.subspace_head import SubspaceHead
from vitrail.models.heads.tesnet_head import TesHead
from vitrail.models.network import Network, make_network
from vitrail.models.parts import KINDS, PARTS, TensorSpec, list_tensors
from vitrail.registry import import_modules

for _room in (backbones, heads):
    import_modules(_room)

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
    "list_tensors",
    "make_network",
]
