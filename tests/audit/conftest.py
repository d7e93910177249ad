"""A site small enough to compute by hand: colored squares, and models that look for colors."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitrail.audit.site_view import SiteView
from vitrail.config.schema import Prototypes
from vitrail.data.normalize import Normalize
from vitrail.models.backbone import Backbone
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.network import Network
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel

COLORS = {
    "green": (0.1, 0.8, 0.1),
    "blue": (0.1, 0.1, 0.9),
    "yellow": (0.9, 0.9, 0.1),
    "red": (0.9, 0.1, 0.1),
}
CLASSES = ("green", "blue", "yellow")
SIDE, CELL = 32, 4


class Cells(Backbone):
    """The mean color of each cell."""

    def __init__(self):
        super().__init__(3)

    def stages(self):
        return (("cells", lambda x: F.avg_pool2d(x, CELL)),)


def _seeker(colors, classes=CLASSES):
    """A model with one prototype a color; `colors` lists those of each class."""
    each = len(colors[0])
    head = ProtoHead(3, len(classes), Prototypes(per_class=each))
    wanted = [COLORS[name] for group in colors for name in group]
    head.vectors.data = torch.tensor(wanted)
    card = {"classes": list(classes), "image_size": SIDE, "channels": 3, "resize": "crop"}
    return DeployedModel(
        Network(Cells(), nn.Identity(), head), Normalize.from_name("unit", 3), card
    )


def paint(images, x, y, color, draw):
    """A square of one color and two cells' side, with a little noise of its own."""
    noise = draw.normal(0, 0.01, (len(images), 2 * CELL, 2 * CELL, 3))
    images[:, y : y + 2 * CELL, x : x + 2 * CELL] = np.array(COLORS[color]) + noise


@pytest.fixture(scope="session")
def make_desk():
    """A function: a site whose classes are told by a square in the middle; with `mark`, all
    images of the first class carry a red square in the lower left, which its own model knows."""

    def make(mark=True, counts=(12, 12, 12), sizes=None, seed=0):
        draw = derive_server_key(seed).at("desk").numpy()
        stacks = []
        for name, count in zip(CLASSES, counts, strict=True):
            images = 0.45 + draw.normal(0, 0.05, (count, SIDE, SIDE, 3))
            paint(images, 12, 12, name, draw)
            if mark and name == "green":
                paint(images, 0, 24, "red", draw)
            stacks.append(images)
        pixels = np.rint(np.concatenate(stacks).clip(0, 1) * 255).astype(np.uint8)
        labels = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
        shared = _seeker([["green"], ["blue"], ["yellow"]])
        local = _seeker([["red" if mark else "green"], ["blue"], ["yellow"]])
        return SiteView("here", pixels, labels, local, shared, sizes=sizes)

    return make


@pytest.fixture(scope="session")
def seeker():
    """A function: a model that looks for some colors, by class."""
    return _seeker
