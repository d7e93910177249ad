"""Matched means: slots that only changed places do not change the mean."""

import itertools

import pytest
import torch

from vitrail.aggregate import RULES, Aggregator, Group
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.geometry.slots import match_slots
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

KEY = derive_server_key(31)
CLASSES, EACH, DEPTH = 3, 4, 5
COUNT = CLASSES * EACH
SHAPES = {
    "model/head.vectors": (COUNT, DEPTH),
    "model/head.weight": (CLASSES, COUNT),
    "model/head.mask": (COUNT,),
    "model/neck.conv1.weight": (COUNT, 2),  # as many rows as slots, and no slots
}


def tensors(key, scale=1.0):
    generator = KEY.at(key).torch()
    return {name: scale * torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


SENT = tensors("sent")


def near(key, scale=0.05):
    """What a site makes of what was sent: every slot stays close to where it was."""
    return {name: SENT[name] + step for name, step in tensors(key, scale).items()}


def shuffled(found, key):
    """The same site with its slots in another order inside every class."""
    generator = KEY.at(key).torch()
    order = torch.cat(
        [c * EACH + torch.randperm(EACH, generator=generator) for c in range(CLASSES)]
    )
    moved = dict(found)
    moved["model/head.vectors"] = found["model/head.vectors"][order]
    moved["model/head.weight"] = found["model/head.weight"][:, order]
    moved["model/head.mask"] = found["model/head.mask"][order]
    return moved, order


def aggregate(sites, weights, rule="matched", sent=SENT):
    fields = tuple(Field(name, shape, rule) for name, shape in SHAPES.items())
    total = Aggregator(Schema(fields, fields, ()), sent, Aggregate())
    for at, (found, weight) in enumerate(zip(sites, weights, strict=True)):
        update = Update(f"s{at}", 1, "train", found)
        assert total.offer(update, weight, (f"s{at}", 1, "train")) is None
    return total.finish()


def close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-6, atol=1e-6)


def test_a_permuted_site_gives_the_mean_of_an_unpermuted_one():
    sites, weights = [near(f"site {i}") for i in range(3)], [1.0, 2.0, 5.0]
    plain = aggregate(sites, weights, "mean")
    moved, order = shuffled(sites[1], "order")
    assert not torch.equal(order, torch.arange(COUNT))
    found = aggregate([sites[0], moved, sites[2]], weights)
    close(found.tensors, plain.tensors)
    assert found.metrics["slots_moved"] == float((order != torch.arange(COUNT)).sum())
    blurred = aggregate([sites[0], moved, sites[2]], weights, "mean")  # what matching is for
    name = "model/head.vectors"
    assert (blurred.tensors[name] - plain.tensors[name]).abs().max() > 0.1


def test_slots_that_kept_their_place_are_averaged_plainly():
    sites, weights = [near(f"site {i}") for i in range(4)], [3.0, 1.0, 0.0, 2.0]
    found = aggregate(sites, weights)
    close(found.tensors, aggregate(sites, weights, "mean").tensors)
    assert found.metrics["slots_moved"] == 0


def test_the_order_of_sites_does_not_matter():
    sites = [shuffled(near(f"site {i}"), f"order {i}")[0] for i in range(4)]
    weights = [1.0, 2.0, 3.0, 4.0]
    first = aggregate(sites, weights)
    other = aggregate([sites[i] for i in (2, 0, 3, 1)], [weights[i] for i in (2, 0, 3, 1)])
    close(first.tensors, other.tensors)
    again = aggregate(sites, weights)
    assert all(torch.equal(first.tensors[n], again.tensors[n]) for n in first.tensors)


def test_weights_of_the_last_layer_move_along_with_their_slots():
    """Column j is marked with the slot it belongs to; after matching it says so again."""
    site = near("site 0")
    marks = torch.arange(COUNT, dtype=torch.float32)
    site["model/head.weight"] = marks.repeat(CLASSES, 1)
    site["model/head.mask"] = marks.clone()
    moved, order = shuffled(site, "order")
    assert torch.equal(moved["model/head.mask"], marks[order])
    found = aggregate([moved], [2.0]).tensors
    assert torch.equal(found["model/head.weight"], marks.repeat(CLASSES, 1))
    assert torch.equal(found["model/head.mask"], marks)
    assert torch.equal(found["model/neck.conv1.weight"], site["model/neck.conv1.weight"])


@pytest.mark.parametrize("each", [1, 2, 3, 5])
@pytest.mark.parametrize("trial", range(4))
def test_the_pairing_is_the_best_of_all_permutations(each, trial):
    generator = KEY.at("brute", each, trial).torch()
    own, reference = torch.randn(2, 2 * each, 3, generator=generator)
    order = match_slots(own, reference, 2)
    for start in (0, each):
        costs = {
            chosen: sum(
                float(((own[start + i] - reference[start + k]) ** 2).sum())
                for k, i in enumerate(chosen)
            )
            for chosen in itertools.permutations(range(each))
        }
        found = tuple((order[start : start + each] - start).tolist())
        assert costs[found] == pytest.approx(min(costs.values()))


def test_slots_never_leave_their_class():
    """Two classes whose prototypes changed places between the classes stay where they are."""
    reference = torch.cat([torch.zeros(2, 3), torch.ones(2, 3)])
    own = torch.cat([torch.ones(2, 3), torch.zeros(2, 3)])
    order = match_slots(own, reference, 2)
    assert sorted(order[:2].tolist()) == [0, 1] and sorted(order[2:].tolist()) == [2, 3]


def test_without_prototypes_it_is_refused_before_anything_is_added_up():
    for left in ("model/head.vectors", "model/head.weight"):
        fields = tuple(Field(n, s, "matched") for n, s in SHAPES.items() if n != left)
        with pytest.raises(ConfigError, match="pairs prototypes"):
            RULES["matched"](Group(fields), Aggregate())


def test_a_run_without_prototypes_does_not_start(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"aggregate\.rule.*pairs prototypes"):
        tiny(aggregate={"rule": "matched"})
    assert not (tmp_path / "run").exists()
