"""How much to share: what leaves a site grows with the list, and the table says so."""

import math

import pytest
from experiments.tables.share import Point, collect_points, draw_share

from vitrail.config import parse
from vitrail.sweep.cells import make_cells
from vitrail.sweep.tables import TABLES


@pytest.fixture(scope="module")
def grid(tiny_config):
    tree = tiny_config(
        method={"name": "myth-pm", "warm_epochs": 1, "last_epochs": 1},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "local_epochs": 1, "local_reference": False},
    )
    lists = [["head"], ["prototypes", "head"], ["backbone", "neck", "prototypes", "head"]]
    sweep = {"table": "share", "seeds": [1, 2], "method.share": lists, "partition.sites": [2, 4]}
    return parse({**tree, "sweep": sweep})


def test_more_parts_are_more_numbers_and_seeds_are_repeats(grid, tmp_path):
    told = TABLES["share"](grid, tmp_path, lambda *_: None)
    found = collect_points([tmp_path / cell.name for cell in make_cells(grid)])
    assert [point.sites for point in found] == [2, 2, 2, 4, 4, 4]
    assert all(len(point.accuracy) == 2 for point in found)
    head, both, everything = found[:3]
    # 3 classes x 6 weights and the 6 votes on which prototypes are in use; 6 prototypes of 8
    assert (head.numbers, both.numbers) == (18 + 6, 18 + 6 + 48)
    assert everything.numbers > both.numbers and head.bytes_up < both.bytes_up < everything.bytes_up
    for point in found:
        assert f"| {point.sites} | {point.label} | {point.numbers:,} |" in told
    assert (tmp_path / "figures" / "share.png").stat().st_size > 5000


def test_labels_name_parts_as_readers_know_them():
    point = Point(("backbone.stage5", "neck", "head"), 4, 1, 1, (0.5,))
    assert point.label == "stage5, add-on, head"
    assert Point((), 4, 0, 0, (0.5,)).label == "nothing"


def test_one_seed_draws_without_a_spread(tmp_path):
    draw_share([Point(("head",), 4, 10, 400, (0.5,))], tmp_path / "a.png")
    assert (tmp_path / "a.png").exists()


def test_the_audit_and_what_leaks_stand_beside_accuracy(tiny_config, tmp_path):
    tree = tiny_config(
        method={"name": "myth-pm", "warm_epochs": 1, "last_epochs": 1},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 1, "local_epochs": 1, "local_reference": False, "record_updates": True},
        data={"aviary": {"images": 240}},
        partition={"kind": "iid"},
        bias=[{"kind": "patch", "sites": [0], "classes": [0], "size": 0.4}],
    )
    lists = [["head"], ["backbone", "neck", "prototypes", "head"]]
    grid = parse({**tree, "sweep": {"table": "share", "seeds": [1], "method.share": lists}})
    told = TABLES["share"](grid, tmp_path, lambda *_: None)
    head, everything = collect_points([tmp_path / cell.name for cell in make_cells(grid)])
    # A patch over a sixth of the image: whoever misses it is not looking.
    assert head.audit[0] > 0.9 and everything.audit[0] > 0.9
    assert math.isnan(head.members[0]), "no prototype left a site, so none can tell members"
    # What a site sends was pulled towards patches of its own images, which excite it most.
    assert 0.5 < everything.members[0] <= 1
    assert told.count(" - |") == 1
