"""The price of sharing: rows of a small grid, public images that nobody holds, norms."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from experiments.tables import price
from experiments.tables.price import (
    NOISED,
    RAW,
    SharingLeakage,
    WholeImages,
    load_public_images,
    make_price_table,
    make_rows,
)

import vitrail
from vitrail.attack.shared_images.shared_table import SharedTable
from vitrail.config import parse
from vitrail.rng import derive_server_key
from vitrail.runs.reopen import load_run_federation
from vitrail.sweep.tables import TABLES

SIDE = 16
CONFIG = {
    "data": {"source": "embedded", "image_size": SIDE, "aviary": {"images": 60, "classes": 3}},
    "partition": {"kind": "iid", "sites": 2, "test_fraction": 0.3},
    "model": {"backbone": "small-cnn", "width": 8},
    "method": {"name": "fedxds", "warmup": 1, "sigma": 0.2},
    "run": {"rounds": 3, "batch_size": 16, "record_updates": True, "device": "cpu"},
}


@pytest.fixture(scope="module")
def small():
    """Fewer images and steps than the table has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(price, "_LOOKED", 25)
        patch.setattr(price, "_PUBLIC", 30)
        patch.setattr(price, "_STEPS", 4)
        yield patch


@pytest.fixture(scope="module")
def played(small, tmp_path_factory):
    """The table of a grid of one run, and its folder."""
    folder = tmp_path_factory.mktemp("price")
    grid = parse({**CONFIG, "sweep": {"table": "price", "seeds": [1]}}, folder, "grid")
    return make_price_table(grid, folder, lambda *_: None), folder, grid


def test_raw_and_noised_images_stand_beside_what_is_shared(played):
    text, folder, _ = played
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    assert [row[1] for row in rows] == [RAW, NOISED, "fedxds paper"]
    raw, noised, shared = rows
    assert raw[2] == "none" and noised[2] == shared[2] == "0.2"
    assert raw[5] == "100.0" and raw[9].startswith("100 %") and raw[10] == "1.00"
    assert float(raw[3]) == float(raw[4]) > float(shared[4]) > 0  # masks take norm away
    assert float(noised[5]) == pytest.approx(10 * np.log10(1 / 0.2**2), abs=1.5)
    page = (folder / "figures" / "price.html").read_text(encoding="utf-8")
    assert page.count("<img") == 7 * price._SHOWN and "may see them" in page
    assert page.count('<th scope="row">') == 7 + len(rows) and "<pre>" not in page
    assert (folder / "figures" / "price-birds.png").stat().st_size < 400_000
    assert "price" in TABLES


def test_what_was_measured_is_not_measured_again(played, monkeypatch):
    text, folder, grid = played
    monkeypatch.setattr(price, "attack_shared_images", None)
    assert make_price_table(grid, folder, lambda *_: None) == text


def test_public_images_are_held_by_nobody(played, small, tmp_path):
    _, folder, _ = played
    run = vitrail.load(next(path for path in folder.iterdir() if (path / "server").is_dir()))
    held = {image.tobytes() for image in load_run_federation(run).images.images}
    birds = load_public_images(run)
    assert birds.shape == (30, SIDE, SIDE, 3) and not any(x.tobytes() in held for x in birds)
    draw = np.random.default_rng(0)
    x = draw.integers(0, 256, (70, SIDE, SIDE, 3), np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(70) % 2)
    data = {"source": "npz", "path": str(tmp_path / "mine.npz"), "limit": 45}
    config = {**CONFIG, "data": data, "method": {"name": "fedavg"}, "run": {"rounds": 0}}
    other = vitrail.run(config, tmp_path / "run")
    mine = {image.tobytes() for image in load_run_federation(other).images.images}
    rest = load_public_images(other)
    assert len(mine) == 45 and {i.tobytes() for i in rest} == {i.tobytes() for i in x} - mine


def test_whole_images_get_noise_of_the_wanted_deviation():
    table = WholeImages(*[None] * 5, sigma=0.3)
    assert isinstance(table, SharedTable)
    pixels = np.full((40, 8, 8, 3), 51, np.uint8)
    found = table.imitate(pixels, derive_server_key(1))
    assert found.shape == (1, 40, 3, 8, 8)
    assert float(found.mean()) == pytest.approx(0.2, abs=0.02)
    assert float(found.std()) == pytest.approx(0.3, rel=0.05)
    assert torch.equal(
        replace(table, sigma=0.0).imitate(pixels, derive_server_key(2))[0, 0], found[0, 0] * 0 + 0.2
    )


def test_seeds_of_one_kind_are_one_row():
    one = SharingLeakage(
        "birds", "fedxds", 1, 0.2, 9.0, 5.0, 8.0, 16.0, 12.0, 0.5, 0.9, "angle", 0.8, 0.3
    )
    two = replace(one, seed=2, denoised=18.0, distance="masked")
    other = replace(one, data="faces", kind=RAW, sigma=0.0)
    rows = make_rows([one, other, two])
    assert len(rows) == 2 and rows[0][:3] == ["birds", "fedxds", "0.2 ± 0"]
    assert rows[0][6] == "17.0 ± 1.4" and rows[0][9] == "90 ± 0 % (angle, masked)"
    assert rows[1][:3] == ["faces", RAW, "none"]
