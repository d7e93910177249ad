"""What is said about each prototype."""

import torch

from vitrail.explain.unit_list import list_units
from vitrail.models.heads.protopnet import compute_duplicate_share

CLASSES = ("plain", "crested", "barred")


def test_units_twins_masks_and_weights(network):
    head = network().head
    head.vectors.data[5] = head.vectors.data[4]
    head.vectors.data[8] = head.vectors.data[4]  # of another class: no twin
    head.vectors.data[2] = head.vectors.data[1]
    head.mask[2] = 0  # out of use: no twin either
    head.weight.data[2, 7] = 0.4
    found = list_units(head, CLASSES)
    assert [unit.number for unit in found] == list(range(12))
    assert {unit.number: unit.twins for unit in found if unit.twins} == {4: (5,), 5: (4,)}
    assert [unit.number for unit in found if not unit.alive] == [2]
    assert found[4].class_name == "crested" and found[4].weight == 1.0 and found[4].also is None
    assert found[7].also[0] == "barred" and abs(found[7].also[1] - 0.4) < 1e-6


def test_twins_are_those_that_the_metrics_count(network):
    head = network(per_class=6).head
    head.vectors.data[:3] = head.vectors.data[0]
    alive = [unit for unit in list_units(head, CLASSES) if unit.alive]
    share = sum(bool(unit.twins) for unit in alive) / len(alive)
    assert (
        share == compute_duplicate_share(head.vectors.detach(), head.owner, head.alive()) == 3 / 18
    )


def test_all_masked_and_a_head_without_vectors_or_weights(network):
    head = network().head
    head.mask.zero_()
    assert not any(unit.alive or unit.twins for unit in list_units(head, CLASSES))
    head.vectors = torch.nn.Parameter(torch.zeros(12, 6, 2))
    head.weight = torch.nn.Parameter(torch.zeros(3))
    assert all(unit.weight is None and not unit.twins for unit in list_units(head, CLASSES))
