"""A model that needs the red square is seen to need it, and one that does not is seen not to."""

import numpy as np
import pytest
import torch
from experiments.tables.needed import measure_faithfulness
from experiments.tables.truth_grid import FAITHFULNESS_COLUMNS, measure_run
from torch import nn

from vitrail.config import parse
from vitrail.config.schema import Prototypes
from vitrail.data.image_set import ImageSet
from vitrail.data.normalize import Normalize
from vitrail.models.backbone import Backbone
from vitrail.models.heads.protopnet import ProtoHead
from vitrail.models.network import Network
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel
from vitrail.sweep.cells import make_cells
from vitrail.sweep.tables import TABLES

SIDE = 32


class Means(Backbone):
    """Colors of squares of 4 x 4 pixels."""

    def __init__(self):
        super().__init__(3)
        self.pool = nn.AvgPool2d(4)

    def stages(self):
        return (("pool", self.pool),)


@pytest.fixture
def squares():
    """Twelve gray images with one red square each, somewhere; class 1 is that with the square."""
    images = np.full((12, SIDE, SIDE, 3), 60, np.uint8)
    spread = derive_server_key(2).numpy()
    for image in images:
        x, y = spread.integers(0, 7, 2) * 4
        image[y : y + 4, x : x + 4] = (255, 0, 0)
    names = np.array([f"{i}" for i in range(12)])
    return ImageSet(images, np.ones(12, np.int64), ("none", "square"), names)


def looking(weight):
    head = ProtoHead(3, 2, Prototypes(per_class=1))
    with torch.no_grad():
        head.vectors.copy_(torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
        head.weight.copy_(torch.tensor([[5.0 * bool(weight > 1), 0.0], [0.0, weight]]))
    card = {"classes": ["none", "square"], "image_size": SIDE, "channels": 3}
    network = Network(Means(), nn.Identity(), head)
    return DeployedModel(network, Normalize("unit", (0.0,) * 3, (255.0,) * 3), card)


def test_what_is_needed_hurts_when_deleted_and_helps_when_inserted(squares):
    found = measure_faithfulness(looking(2.0), squares, np.arange(12), derive_server_key(1), most=8)
    assert len(found) == 8 and len({one.row for one in found}) == 8
    assert all(one.deletion < -0.1 and one.insertion > 0.1 for one in found)
    assert found == measure_faithfulness(
        looking(2.0), squares, np.arange(12), derive_server_key(1), most=8
    )


def test_what_does_not_matter_neither_hurts_nor_helps(squares):
    """All that speaks for the class is said by whatever image there is."""
    found = measure_faithfulness(
        looking(1e-9), squares, np.arange(12), derive_server_key(1), most=4
    )
    assert found and all(abs(one.deletion) < 1e-6 and abs(one.insertion) < 1e-6 for one in found)


def test_nothing_is_asked_where_nothing_is_right(squares):
    assert (
        measure_faithfulness(looking(2.0), squares, np.empty(0, np.int64), derive_server_key(1))
        == []
    )


def test_a_grid_ends_in_one_table_a_question(tiny_config, tmp_path):
    tree = tiny_config(
        method={"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "local_epochs": 1, "local_reference": False},
    )
    grid = parse({**tree, "sweep": {"table": "truth", "seeds": [1, 2]}})
    told = TABLES["truth"](grid, tmp_path, lambda *_: None)
    assert told.count("| myth-gm, embedded |") == 4 and FAITHFULNESS_COLUMNS["deletion"] in told
    import vitrail

    runs = [measure_run(vitrail.load(tmp_path / cell.name)) for cell in make_cells(grid)]
    rows = sum(len(run["targets"]["on any part"][0]) for run in runs)
    assert f"| on any part | {rows} |" in told  # both seeds, pooled
    assert TABLES["truth"](grid, tmp_path, lambda *_: None) == told
