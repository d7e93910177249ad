"""Images that a grid keeps: the same as read anew, read once, and safe from whoever uses them."""

from __future__ import annotations

import os

import numpy as np
import pytest

import vitrail.engine.federation as federation
from vitrail.config.load import parse
from vitrail.data.kept_images import keep_images

TREE = {
    "data": {"source": "npz", "path": "set.npz", "limit": 40},
    "partition": {"sites": 3},
    "run": {"seed": 2},
}
TRIGGER = [{"attack": "backdoor", "sites": [0], "share": 1.0}]


@pytest.fixture
def reads(tmp_path, monkeypatch):
    """How often images were read from the file."""
    draws = np.random.default_rng(1)
    images = draws.integers(0, 255, (60, 16, 16, 3), dtype=np.uint8)
    np.savez(tmp_path / "set.npz", x=images, y=np.arange(60) % 3)
    count = []
    load = federation.load_with_problems
    monkeypatch.setattr(
        federation, "load_with_problems", lambda *given: (count.append(1), load(*given))[1]
    )
    return count


def load(folder, **sections):
    return federation.load_federation(parse({**TREE, **sections}, folder))


def test_a_grid_reads_once_and_sees_what_a_run_sees(reads, tmp_path):
    alone = load(tmp_path).digest()
    with keep_images():
        assert load(tmp_path).digest() == alone
        assert load(tmp_path, partition={"sites": 5}).digest() != alone
        assert load(tmp_path).digest() == alone
    assert len(reads) == 2
    load(tmp_path)
    assert len(reads) == 3  # nothing is kept outside of a grid


def test_another_seed_another_section_or_a_changed_file_is_read_anew(reads, tmp_path):
    with keep_images():
        load(tmp_path)
        load(tmp_path, run={"seed": 3})
        load(tmp_path, run={"seed": 3}, data={**TREE["data"], "limit": 30})
        facts = (tmp_path / "set.npz").stat()
        os.utime(tmp_path / "set.npz", ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
        load(tmp_path, run={"seed": 3}, data={**TREE["data"], "limit": 30})
    assert len(reads) == 4


@pytest.mark.parametrize(
    "spoil",
    [
        {"hostile": TRIGGER},
        {"bias": [{"sites": [0], "classes": ["0"], "kind": "patch"}]},
    ],
)
def test_what_a_cell_does_to_its_images_stays_in_it(spoil, reads, tmp_path):
    with keep_images():
        before = load(tmp_path).digest()
        assert load(tmp_path, **spoil).digest() != before
        again = load(tmp_path)
        assert again.digest() == before
        with pytest.raises(ValueError, match="read-only"):
            again.images.images[0] = 0
    assert len(reads) == 1


def test_workers_take_kept_images_without_a_word(reads, tmp_path, recwarn):
    from vitrail.sweep.cells import load_grid, run_sweep

    text = """
    [data]
    source = "npz"
    path = "set.npz"
    [partition]
    sites = 3
    [model]
    backbone = "small-cnn"
    width = 4
    [run]
    rounds = 1
    workers = 2
    [sweep]
    seeds = [1]
    """
    (tmp_path / "grid.toml").write_text(text)
    run_sweep(load_grid(tmp_path / "grid.toml"), tmp_path / "out", lambda *_: None)
    assert not [str(w.message) for w in recwarn if "writable" in str(w.message)]
