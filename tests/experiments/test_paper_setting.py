"""FedGraSP's own setting: what the grid says, and that it runs, on made copies of the data."""

import numpy as np
import pytest
from PIL import Image

from vitrail.engine.run import start
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.sweep.cells import load_grid, make_cells
from vitrail.sweep.checkout import require_experiments
from vitrail.sweep.tune import make_row_config

GRID = "fedgrasp-paper.toml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both data sets with two classes of ten made images."""
    place = tmp_path_factory.mktemp("paper")
    draw = derive_server_key(5).numpy()
    for data in ("cars196", "dogs120"):
        for name in ("first", "second"):
            (place / data / name).mkdir(parents=True)
            for number in range(10):
                pixels = draw.integers(0, 256, (64, 64, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / data / name / f"{number}.png")
    return place


def load(folder, scale=None):
    return make_cells(load_grid(require_experiments() / "grids" / GRID, base=folder, scale=scale))


def test_the_grid_is_the_papers_setting(folder):
    configs = [cell.loaded.config for cell in load(folder, "paper")]
    assert {c.model.backbone for c in configs} == {"resnet50"}
    assert not any(c.model.frozen for c in configs)
    assert {c.data.path for c in configs} == {"cars196", "dogs120"}
    assert {c.partition.sites for c in configs} == {8} and {c.run.rounds for c in configs} == {80}
    alphas = {c.partition.alpha for c in configs if c.partition.kind == "dirichlet"}
    assert alphas == {0.1, 0.5, 1.0, 2.0}
    assert "iid" in {c.partition.kind for c in configs}
    assert {c.run.participation for c in configs} == {1.0}
    assert {c.partition.test_fraction for c in configs} == {0.2}


@pytest.mark.slow
def test_every_method_of_it_takes_steps_on_made_copies(folder, tmp_path):
    """A narrow ResNet50 from nothing at two sites, one round: all else as it stands."""
    small = {
        "partition.sites": 2,
        "partition.kind": "iid",
        "model.width": 8,
        "data.image_size": 64,
        "run.rounds": 1,
        "run.local_epochs": 1,
        "run.batch_size": 4,
    }
    played = set()
    for cell in load(folder):
        config = cell.loaded.config
        if config.method.name in played or config.data.path == "dogs120":
            continue
        loaded = make_row_config(cell.loaded, small)
        start(loaded, tmp_path / config.method.name)
        assert Run(tmp_path / config.method.name).round >= 1
        played.add(config.method.name)
    assert played >= {"fedgrasp", "tesnet-stiefel", "tesnet-personalized", "myth-gm", "fedavg"}
