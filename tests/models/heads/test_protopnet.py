"""ProtoPNet against its formulas, written out element by element in Python's own floats."""

import math

import pytest
import torch

from vitrail import rng
from vitrail.config.schema import Model, Prototypes
from vitrail.models import HEADS
from vitrail.models.heads.protopnet import (
    ProtoHead,
    compute_duplicate_share,
    masked_minimum,
    similarity,
    squared_distances,
)
from vitrail.models.network import make_network
from vitrail.models.parts import list_tensors

KEY = rng.derive_server_key(11)
OPTIONS = Prototypes(per_class=2, depth=5, cluster=0.7, separation=0.3, l1=0.01)
CLASSES, DEPTH = 3, 5


def a_head(options=OPTIONS, classes=CLASSES, depth=DEPTH, dead=()):
    with rng.seed_torch(KEY.at("head")):
        head = ProtoHead(depth, classes, options)
        torch.nn.init.normal_(head.weight)
    head.mask[list(dead)] = 0
    return head


def a_map(count=4, depth=DEPTH, height=2, width=3):
    return torch.rand(count, depth, height, width, generator=KEY.at("map").torch())


LABELS = torch.tensor([0, 2, 1, 2])


def network(**changes):
    model = Model(backbone="small-cnn", width=8, prototypes=OPTIONS, **changes)
    return make_network(model, "protopnet", 3, CLASSES, KEY.at("network"))[0]


def literal_distances(z, vectors):
    """[image][prototype][row][column] of |z - p|^2, by differences."""
    count, depth, height, width = z.shape
    return [
        [
            [
                [
                    sum((float(z[n, d, i, j]) - float(p[d])) ** 2 for d in range(depth))
                    for j in range(width)
                ]
                for i in range(height)
            ]
            for p in vectors
        ]
        for n in range(count)
    ]


def literal_loss(head, z, labels):
    """Logits and weighted terms, from the definition; masked prototypes are left out."""
    alive = [j for j in range(len(head.owner)) if float(head.mask[j]) >= 0.5]
    options, owner = head.options, head.owner.tolist()
    vectors, weight = head.vectors.detach(), head.weight.detach()
    logits, entropy, cluster, separation = [], [], [], []
    for n, maps in enumerate(literal_distances(z, vectors)):
        nearest = {j: min(min(row) for row in maps[j]) for j in alive}
        score = {j: math.log((d + 1) / (d + 1e-4)) for j, d in nearest.items()}
        line = [sum(float(w[j]) * score[j] for j in alive) for w in weight]
        label = int(labels[n])
        logits.append(line)
        entropy.append(math.log(sum(math.exp(v) for v in line)) - line[label])
        cluster.append(min([d for j, d in nearest.items() if owner[j] == label], default=0.0))
        separation.append(min([d for j, d in nearest.items() if owner[j] != label], default=0.0))
    wrong = [abs(float(row[j])) for c, row in enumerate(weight) for j in alive if owner[j] != c]
    return torch.tensor(logits, dtype=torch.float32), {
        "cross_entropy": sum(entropy) / len(entropy),
        "cluster": options.cluster * sum(cluster) / len(cluster),
        "separation": -options.separation * sum(separation) / len(separation),
        "l1": options.l1 * sum(wrong),
    }


def test_distances_are_those_of_every_patch_to_every_prototype():
    z, head = a_map(), a_head()
    found = squared_distances(z, head.vectors.detach())
    expected = torch.tensor(literal_distances(z, head.vectors.detach()))
    assert found.shape == (4, 6, 2, 3)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_distance_is_never_below_zero_where_rounding_would_put_it():
    z = a_map(64, 128, 7, 7)
    vectors = z.flatten(2)[:, :, 11].contiguous()
    found = squared_distances(z, vectors)
    assert float(found.min()) == 0.0  # some of them are negative before they are cut
    own = found.flatten(2)[torch.arange(64), torch.arange(64), 11]
    assert float(own.max()) < 1e-4


@pytest.mark.parametrize("distance", [0.0, 1e-6, 1e-4, 0.3, 1.0, 50.0, 1e6])
def test_similarity(distance):
    value = float(similarity(torch.tensor(distance, dtype=torch.float64)))
    assert value == pytest.approx(math.log((distance + 1) / (distance + 1e-4)), abs=1e-9)
    assert value >= 0  # nothing is less alike than not alike


@pytest.mark.parametrize("dead", [(), (1,), (0, 5), (2, 3), (0, 1, 2, 3, 4, 5)])
def test_logits_and_loss(dead):
    head, z = a_head(dead=dead), a_map()
    outputs = head(z)
    logits, expected = literal_loss(head, z, LABELS)
    torch.testing.assert_close(outputs["logits"], logits, rtol=1e-4, atol=1e-4)
    found = head.loss(outputs, LABELS)
    assert set(found) == set(expected)
    for name, value in expected.items():
        assert float(found[name].detach()) == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_the_gradient_is_that_of_finite_differences():
    head, z = a_head().double(), a_map().double()

    def total(vectors, weight, patches):
        outputs = torch.func.functional_call(
            head, {"vectors": vectors, "weight": weight}, (patches,)
        )
        terms = head.loss(outputs, LABELS)
        return terms["cross_entropy"] + terms["cluster"] + terms["separation"]

    inputs = (head.vectors.detach(), head.weight.detach(), z)
    assert torch.autograd.gradcheck(total, [t.clone().requires_grad_() for t in inputs])


def test_masked_prototypes_contribute_nothing():
    z = a_map()
    one, other = a_head(dead=(1, 4)), a_head(dead=(1, 4))
    with torch.no_grad():
        other.vectors[[1, 4]] = z[0, :, 0, 0]  # perfect matches, if they were in use
        other.weight[:, [1, 4]] = 100.0
    first, second = one.loss(one(z), LABELS), other.loss(other(z), LABELS)
    assert torch.equal(one(z)["logits"], other(z)["logits"])
    assert all(torch.equal(first[name], second[name]) for name in first)
    sum(second.values()).backward()
    assert not other.vectors.grad[[1, 4]].any() and not other.weight.grad[:, [1, 4]].any()
    assert other.vectors.grad[[0, 2, 3, 5]].any(1).all()


def test_half_of_the_votes_keep_a_prototype():
    head = a_head()
    head.mask.copy_(torch.tensor([0.0, 0.25, 0.49, 0.5, 0.75, 1.0]))
    assert head.alive().tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("dead", [(2, 3), tuple(range(6))])
def test_a_class_without_prototypes_costs_nothing_and_breaks_nothing(dead):
    head, z = a_head(dead=dead), a_map()
    outputs = head(z)
    terms = head.loss(outputs, torch.full((4,), 1))
    assert float(terms["cluster"].detach()) == 0.0
    sum(terms.values()).backward()
    assert head.vectors.grad.isfinite().all() and head.weight.grad.isfinite().all()
    if len(dead) == 6:
        assert not outputs["logits"].any() and head.compute_metrics() == {"duplicates": 0.0}
        assert head.pieces(z[:1], 0) == []


def test_one_class_has_no_other_to_keep_away_from():
    head = a_head(Prototypes(per_class=1), classes=1)
    terms = head.loss(head(a_map()), torch.zeros(4, dtype=torch.int64))
    assert not terms["separation"].any() and not terms["l1"].any()
    assert all(term.isfinite() for term in terms.values())


def test_no_image_gives_no_logit():
    assert a_head()(a_map(0))["logits"].shape == (0, CLASSES)


def test_masked_minimum_of_a_row_without_any():
    values = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert masked_minimum(values, mask).tolist() == [2.0, 0.0]


def test_the_start():
    made = network()
    head = made.head
    assert head.owner.tolist() == [0, 0, 1, 1, 2, 2]
    for c in range(CLASSES):
        for j in range(6):
            assert head.weight[c, j].item() == (1.0 if j // 2 == c else -0.5)
    assert head.vectors.min().item() >= 0 and head.vectors.max().item() < 1
    assert head.mask.tolist() == [1.0] * 6
    assert not made.neck.conv1.bias.any() and not made.neck.conv2.bias.any()


@pytest.mark.parametrize("gain", [1.0, 0.2])
def test_add_on_layers_are_drawn_by_their_fan_out(gain):
    options = Prototypes(depth=256, gain=gain)
    wide = Model(backbone="small-cnn", width=64, prototypes=options)
    neck = make_network(wide, "protopnet", 3, 2, KEY)[0].neck
    assert neck.conv1.weight.shape == (256, 128, 1, 1)  # fan-in 128, fan-out 256
    for layer in (neck.conv1, neck.conv2):
        spread = float(layer.weight.detach().std())
        assert spread == pytest.approx(gain * math.sqrt(2 / 256), rel=0.05)


def test_the_owner_is_saved_loaded_and_moved_with_the_model():
    made, other = network(), network()
    assert torch.equal(made.state_dict()["head.owner"], made.head.owner)
    other.head.owner.fill_(7)
    other.load_state_dict(made.state_dict())
    assert other.head.owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert other.double().head.owner.dtype == torch.int64  # a class stays a number to count with
    assert other.to("meta").head.owner.device.type == "meta"


@pytest.mark.parametrize("dead", [(), (0, 3)])
def test_pieces_add_up_to_the_logit(dead):
    head, z = a_head(dead=dead), a_map()
    logits = head(z)["logits"]
    for n in range(len(z)):
        for label in range(CLASSES):
            pieces = head.pieces(z[n : n + 1], label)
            assert sum(p.contribution for p in pieces) == pytest.approx(
                logits[n, label].item(), abs=1e-4
            )
            assert [p.unit for p in pieces] == [j for j in range(6) if j not in dead]
            for p in pieces:
                assert p.contribution == pytest.approx(p.score * p.weight)
                assert p.owner == p.unit // 2
                assert p.weight == pytest.approx(head.weight[label, p.unit].item())
                assert float(p.map[p.at]) == p.score == float(p.map.max())


def literal_duplicates(vectors, owner, alive, tolerance):
    chosen = [j for j in range(len(vectors)) if alive[j]]
    if not chosen:
        return 0.0
    rows = [[float(v) for v in vectors[j]] for j in range(len(vectors))]
    scale = sum(sum(v * v for v in rows[j]) for j in chosen) / len(chosen)
    count = 0
    for j in chosen:
        away = [
            sum((a - b) ** 2 for a, b in zip(rows[j], rows[k], strict=True))
            for k in chosen
            if k != j and owner[k] == owner[j]
        ]
        count += bool(away) and min(away) <= tolerance * scale
    return count / len(chosen)


def test_duplicates():
    vectors = torch.rand(12, 4, generator=KEY.at("twins").torch())
    owner = torch.arange(4).repeat_interleave(3)
    alive = torch.ones(12, dtype=torch.bool)
    assert compute_duplicate_share(vectors, owner, alive) == 0.0
    vectors[1] = vectors[0]  # of one class: both count
    vectors[3] = vectors[6]  # of two classes: neither does
    assert compute_duplicate_share(vectors, owner, alive) == pytest.approx(2 / 12)
    assert compute_duplicate_share(vectors, owner, alive, 0.5) == pytest.approx(
        literal_duplicates(vectors, owner, alive, 0.5)
    )
    alive[1] = False  # its twin is alone now
    assert compute_duplicate_share(vectors, owner, alive) == 0.0
    assert compute_duplicate_share(vectors[:1], owner[:1], alive[:1]) == 0.0
    assert compute_duplicate_share(vectors, owner, torch.zeros(12, dtype=torch.bool)) == 0.0


def test_many_near_twins_are_counted_as_the_definition_says():
    """Above 25 rows distances come from a product of matrices, which loses digits."""
    generator = KEY.at("near").torch()
    vectors = torch.rand(60, 128, generator=generator)
    owner, alive = torch.zeros(60, dtype=torch.int64), torch.ones(60, dtype=torch.bool)
    steps = torch.logspace(-4, -1, 20)[:, None]  # some within the tolerance, some not
    vectors[40:] = vectors[:20] + steps * torch.randn(20, 128, generator=generator)
    found = compute_duplicate_share(vectors, owner, alive)
    assert 0 < found < 2 / 3
    assert found == pytest.approx(literal_duplicates(vectors, owner, alive, 1e-3))


@pytest.mark.parametrize("frozen", [False, True, "stage2"])
def test_every_tensor_has_one_part_and_one_kind(frozen):
    made = network(frozen=frozen)
    specs = {spec.name: spec for spec in list_tensors(made)}
    assert set(specs) == set(made.state_dict()) and len(list_tensors(made)) == len(specs)
    head = {name: (s.part, s.kind) for name, s in specs.items() if name.startswith("head.")}
    assert head == {
        "head.vectors": ("prototypes", "weight"),
        "head.weight": ("head", "weight"),
        "head.mask": ("head", "statistic"),
        "head.owner": ("head", "constant"),
    }
    assert all(
        (s.part, s.kind) == (name.split(".")[0], "weight")
        for name, s in specs.items()
        if not name.startswith("head.")
    )
    assert [specs[f"head.{n}"].moves for n in ("vectors", "weight", "mask", "owner")] == [
        True,
        True,
        True,
        False,
    ]


def test_gradients_reach_every_weight():
    made = network().train()
    x = torch.randn(6, 3, 32, 32, generator=KEY.at("x").torch())
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    sum(made.head.loss(made.rest(x), labels).values()).backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("kind", ["protopnet", "tesnet"])
def test_the_gain_scales_the_first_weights_and_nothing_else(kind):
    made = []
    for gain in (1.0, 0.25):
        options = Prototypes(per_class=2, depth=8, gain=gain)
        with rng.seed_torch(KEY.at("gain")):
            neck, head = HEADS[kind](16, 3, Model(prototypes=options))
        made.append((neck.state_dict(), head.state_dict()))
    (neck, head), (small, same) = made
    for name, tensor in neck.items():
        expected = 0.25 * tensor if name.endswith("weight") else tensor
        assert torch.equal(small[name], expected), name
    assert all(torch.equal(same[name], tensor) for name, tensor in head.items())


def test_cosine_similarity_is_the_scaled_cosine_of_the_best_patch():
    options = OPTIONS.model_copy(update={"similarity": "cosine", "scale": 7.0})
    head, z = a_head(options), a_map() - 0.5
    scores = head(z)["scores"]
    for n in range(len(z)):
        for unit, vector in enumerate(head.vectors.detach().double()):
            patches = z[n].flatten(1).double().T
            cosines = [float(p @ vector / (p.norm() * vector.norm())) for p in patches]
            assert float(scores[n, unit].detach()) == pytest.approx(7 * max(cosines), abs=1e-4)
    longer = head(3 * z)["logits"]
    torch.testing.assert_close(longer, head(z)["logits"], rtol=1e-4, atol=1e-4)
    pieces = head.pieces(z[:1], 1)
    logit = float(head(z[:1])["logits"][0, 1].detach())
    assert sum(p.contribution for p in pieces) == pytest.approx(logit, abs=1e-4)


def test_a_cosine_network_has_no_sigmoid_and_takes_pushed_patches_as_they_are():
    options = OPTIONS.model_copy(update={"similarity": "cosine"})
    neck, head = HEADS["protopnet"](16, CLASSES, Model(prototypes=options))
    assert [name for name, _ in neck.named_children()] == ["conv1", "relu", "conv2"]
    z = a_map(1) - 0.5
    with torch.no_grad():
        head.vectors[0] = head.embed(z)[0, :, 1, 2]
    assert float(head.compute_distances(z)[0, 0, 1, 2].detach()) == pytest.approx(0, abs=1e-6)
    assert float(head(torch.zeros_like(z))["logits"].abs().max().detach()) < 1e3
