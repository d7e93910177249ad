"""Prototype by prototype: which of the shared model's look at the suspected place, and how far
each is from what the site's own model has.

Slots of two models need not mean the same, so a prototype is compared with the nearest one of its
class: by their vectors where both models see patches alike, else by their activation maps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from vitrail.audit.desk import Desk, maps, parts
from vitrail.audit.effects import Probe
from vitrail.audit.overlap import inside, mean_iou
from vitrail.engine.deployed import Deployed
from vitrail.explain.boxes import boxes
from vitrail.models.protopnet import ProtoHead

_TIMES = 3.0  # beyond what the place does to prototypes of other classes


@dataclass(frozen=True)
class UnitEvidence:
    """One prototype of a class in the shared model, seen from one site.

    `rise` is the mean gain of its activation when the place is put into images of other
    classes, `drop` the mean loss when it is covered in own ones; `own_rise` is the gain of the
    prototype of that number in the site's own model, which is what the site brings into the
    mean. `named` says that either is far beyond what the place does to other prototypes: a mean
    of sites dilutes what one of them learned. `inside` is the share of its
    activation in the place; `distance` and `overlap` (of the boxes) compare it with the nearest
    prototype of the site's own model, by `vectors` or by `maps` (1 minus their correlation).
    """

    unit: int
    named: bool
    rise: float
    own_rise: float
    drop: float
    inside: float | None
    distance: float | None
    by: Literal["vectors", "maps"]
    overlap: float | None

    def to_json(self) -> dict[str, Any]:
        """For the audit's JSON."""
        return asdict(self)


@torch.inference_mode()
def units_of(desk: Desk, found: Probe) -> tuple[UnitEvidence, ...]:
    """Every prototype in use of the probed class."""
    head = parts(desk.shared)
    own = (head.owner == found.label) & head.alive()
    others = (head.owner != found.label) & head.alive()
    excited = [stirred(rises, own, others) for rises in found.rises.values()]
    named = torch.stack(excited).any(0)
    z = desk.begin(desk.pixels[found.donors])
    seen = maps(desk.shared, z)
    near = _nearest(desk, z, found.label)
    size = (desk.pixels.shape[2], desk.pixels.shape[3])
    listed = []
    for unit in torch.nonzero(own)[:, 0].tolist():
        distance, overlap = None, None
        if unit in near.at:
            distance, other = near.at[unit]
            overlap = mean_iou(boxes(seen[:, unit], *size), boxes(other, *size))
        listed.append(
            UnitEvidence(
                unit,
                bool(named[unit]),
                float(found.rises["shared"][unit]),
                float(found.rises["local"][unit]),
                float(found.drops["shared"][unit]),
                inside(seen[:, unit], found.effect.region.boxes, size),
                distance,
                near.by,
                overlap,
            )
        )
    return tuple(listed)


def stirred(rises: Tensor, own: Tensor, others: Tensor) -> Tensor:
    """Which units of a class a place excites: three times as much as any unit of another class,
    and at least a third as much as the most excited one of the class; [units] of bool."""
    most = rises[own].max() if bool(own.any()) else rises.new_zeros(())
    usual = rises[others].max().clamp_min(0) if bool(others.any()) else rises.new_zeros(())
    return own & (rises > _TIMES * usual) & (rises > 0) & (rises >= most / _TIMES)


@dataclass(frozen=True)
class _Near:
    """For each shared unit how far the nearest local one is, and that one's maps [N, h, w]."""

    by: Literal["vectors", "maps"]
    at: dict[int, tuple[float, Tensor]]


def _nearest(desk: Desk, z: Tensor, label: int) -> _Near:
    one, two = parts(desk.shared), parts(desk.local)
    mine = torch.nonzero((one.owner == label) & one.alive())[:, 0]
    theirs = torch.nonzero((two.owner == label) & two.alive())[:, 0]
    if not len(mine) or not len(theirs):
        return _Near("maps", {})
    other = maps(desk.local, z)[:, theirs]
    by: Literal["vectors", "maps"] = "maps"
    if isinstance(one, ProtoHead) and isinstance(two, ProtoHead) and alike(desk.shared, desk.local):
        by = "vectors"
        far = torch.cdist(one.vectors[mine].double(), two.vectors[theirs].double()).square()
    else:
        far = 1 - correlation(maps(desk.shared, z)[:, mine], other)
    least, at = far.min(1)
    return _Near(
        by,
        {
            unit: (float(d), other[:, int(a)])
            for unit, d, a in zip(mine.tolist(), least, at, strict=True)
        },
    )


def alike(one: Deployed, two: Deployed) -> bool:
    """Whether two models see patches in one latent space: equal up to their heads."""
    first, second = (_body(model) for model in (one, two))
    same = (torch.equal(tensor, second[name]) for name, tensor in first.items())
    return first.keys() == second.keys() and all(same)


def _body(model: Deployed) -> dict[str, Tensor]:
    found = model.network.state_dict()
    return {name: tensor for name, tensor in found.items() if not name.startswith("head.")}


def correlation(one: Tensor, two: Tensor) -> Tensor:
    """Of each map in [N, a, h, w] with each in [N, b, h, w], over images and positions, [a, b].

    A map that is the same everywhere is correlated with nothing.
    """

    def standard(maps: Tensor) -> Tensor:
        flat = maps.transpose(0, 1).flatten(1).double()
        flat = flat - flat.mean(1, keepdim=True)
        length: Tensor = torch.linalg.vector_norm(flat, dim=1, keepdim=True)
        return flat / length.clamp_min(1e-12)

    found: Tensor = standard(one) @ standard(two).T
    return found
