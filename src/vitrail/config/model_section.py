"""`[model]`: the backbone, and what a head of prototypes or subspaces is like."""

from __future__ import annotations

from typing import Literal

from vitrail.config.added_keys import added
from vitrail.config.section import Count, NonNegative, Positive, Section


class Prototypes(Section):
    """`[model.prototypes]`: the parts that a prototype network looks for."""

    per_class: Count = 10
    """How many prototypes a class has."""
    depth: Count | None = None
    """Channels of a prototype; left out: 128 for protopnet, 64 for tesnet."""
    gain: Positive = 0.2
    """Factor on the add-on layers' first weights; 1, ProtoPNet's own, saturates the sigmoid."""
    cluster: NonNegative = 0.8
    """Weight of the distance to the nearest prototype of the own class."""
    separation: NonNegative = 0.08
    """Weight of the distance to the nearest prototype of another class."""
    l1: NonNegative = 1e-4
    """Weight of the last layer's entries for other classes."""
    similarity: Literal["log", "cosine"] = added("log")
    """Of a patch and a prototype, for protopnet: ProtoPNet's logarithm of a distance after a
    sigmoid, or `scale` times the cosine, without one."""
    scale: Positive = added(10.0)
    """The largest similarity, for cosine: a temperature of the logits."""


class Subspaces(Section):
    """`[model.subspaces]`: classes as subspaces (fedgrasp), and what tesnet adds to prototypes."""

    dimension: Count = 3
    """Dimensions of a class's subspace, for fedgrasp."""
    depth: Count = 64
    """Channels of a patch, for fedgrasp."""
    hidden: Count = 256
    """Channels between the two add-on layers, for fedgrasp."""
    between: Literal["none", "relu"] = "none"
    """What happens to them there, for fedgrasp."""
    top: Count | None = None
    """How many patches make a class's score; left out: 20, or all where a map has fewer."""
    normalize: Literal["l2", "none"] = "l2"
    """Bring every patch to one length before its energy is measured, for fedgrasp."""
    scale: Positive = 8.0
    """That length; its square is the largest score."""
    gain: Positive = added(1.0)
    """Factor on the add-on layers' first weights, for fedgrasp; with normalize = none, try 0.2.
    Without such layers: on the patches."""
    neck: Literal["convolutions", "none"] = added("convolutions")
    """The add-on layers, for fedgrasp; none: patches are the backbone's, with all its channels,
    and nothing but frames is trained on a frozen one. Set method.consensus = "thin" with it."""
    lift: NonNegative = added(0.0)
    """A constant channel beside those of a patch, for fedgrasp: subspaces are affine, of one
    dimension less. 0: none."""
    activation: Literal["none", "sigmoid"] | None = None
    """After the add-on layers; left out: none for fedgrasp, sigmoid for tesnet."""
    compactness: NonNegative = 0.8
    """Weight of the own class's score, for fedgrasp."""
    separation: NonNegative = 0.08
    """Weight of the highest score of another class, for fedgrasp."""
    l1: NonNegative = 1e-4
    """Weight of the entries off the diagonal of G, for fedgrasp."""
    orthogonality: NonNegative = 1e-4
    """Weight of what keeps a class's basis vectors orthogonal, for tesnet."""
    apart: NonNegative = 1e-7
    """Weight of the distances between the classes' subspaces, for tesnet."""


class Model(Section):
    """`[model]`: the backbone, its weights and what of it is trained."""

    backbone: str = "small-cnn"
    """small-cnn, lenet, resnet8, resnet18, resnet50, densenet121, vgg19, efficientnet-lite0."""
    width: Count | None = None
    """Channels of the first stage; the others scale with it."""
    weights: str | None = None
    """imagenet (efficientnet-lite0), or a .safetensors or .pth file; left out: random."""
    start: str | None = None
    """A run folder, or a file of its server/checkpoints/: its whole model is where this run
    starts."""
    frozen: bool | str = False
    """true: the whole backbone; a stage's name: up to and with that stage."""
    until: str | None = None
    """The last stage that is used; an earlier one has finer maps. Left out: all stages."""
    norm: Literal["average", "home", "group"] = "average"
    """Normalization layers are averaged, stay home, or are GroupNorm instead."""
    cache_features: bool = True
    """Compute a frozen backbone's features once and keep them on disk."""
    runtime: Literal["auto", "torch", "onnx"] = added("auto", before="torch")
    """What computes frozen stages: PyTorch, or onnxruntime on a CPU. auto: the latter where it is
    installed and the backbone is one of ours; a run decides once and writes down which."""
    prototypes: Prototypes = Prototypes()
    """See `[model.prototypes]`."""
    subspaces: Subspaces = Subspaces()
    """See `[model.subspaces]`."""
