"""Rules for frames: against slow formulas, and what the guard refuses on arrival."""

import pytest
import torch

from vitrail.aggregate import RULES, Aggregator
from vitrail.aggregate.subspace_rules import CLASS_COUNTS
from vitrail.config.schema import Aggregate
from vitrail.errors import ConfigError
from vitrail.geometry import GRASSMANN, canonicalize, deviation, grassmann, polar_factor, stiefel
from vitrail.geometry.frames import draw_frames
from vitrail.release.message import Field, Schema
from vitrail.release.update import Update
from vitrail.rng import derive_server_key

NAME, C, N, P = "model/head.frames", 4, 10, 3
KEY = derive_server_key(7)
SENT = draw_frames((C, N, P), KEY.at("sent"))
WEIGHTS = [3.0, 1.0, 0.5, 2.0]
SUBSPACES = [
    "grassmann",
    "grassmann-classes",
    "grassmann-iterative",
    "karcher",
    "grassmann-tangent",
]
FRAMES = [*SUBSPACES, "stiefel", "stiefel-plain"]


def near(at, spread=0.2):
    noise = torch.randn(SENT.shape, generator=KEY.at("near", at).torch())
    return GRASSMANN.retraction("qr")(SENT, grassmann.project(SENT, spread * noise))


def update(at, frames=None, counts=None):
    tensors = {NAME: near(at) if frames is None else frames}
    tensors[CLASS_COUNTS] = torch.full((C,), 5.0) if counts is None else counts
    return Update(f"s{at}", 1, "train", tensors, {"examples": 40})


def aggregate(rule, updates, weights=WEIGHTS):
    geometry = "stiefel" if rule.startswith("stiefel") else "grassmann"
    fields = [Field(NAME, (C, N, P), rule, geometry=geometry)]
    if rule == "grassmann-classes":
        fields.append(Field(CLASS_COUNTS, (C,), rule))
    names = {f.name for f in fields}
    fields = tuple(fields)
    total = Aggregator(Schema(fields, fields, ("examples",)), {NAME: SENT}, Aggregate())
    reasons = []
    for one, weight in zip(updates, weights):
        kept = {n: t for n, t in one.tensors.items() if n in names}
        one = Update(one.site, 1, "train", kept, one.counts)
        reasons.append(total.offer(one, weight, (one.site, 1, "train")))
    return reasons, total.finish()


def test_the_sum_of_projectors_gives_the_exact_mean():
    updates = [update(i) for i in range(4)]
    reasons, sums = aggregate("grassmann", updates)
    assert reasons == [None] * 4
    found = sums.model["head.frames"]
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)
    stack = torch.stack([u.tensors[NAME].double() for u in updates])
    xi = (weights[:, None, None, None] * stack @ stack.mT).sum(0) / weights.sum()
    values, vectors = torch.linalg.eigh(xi)
    assert grassmann.projection_distance(found.double(), vectors[..., -P:]).max() < 1e-6
    assert deviation(found).max() < 1e-6 and found.dtype == torch.float32
    torch.testing.assert_close(found, canonicalize(found, SENT), rtol=0, atol=1e-6)
    gap, consensus = values[:, -P] - values[:, -P - 1], values[:, -P:].mean(1)
    close = {"rtol": 1e-6, "atol": 1e-6}
    torch.testing.assert_close(sums.tensors["agreement/head.frames/eigengap"], gap.float(), **close)
    torch.testing.assert_close(
        sums.tensors["agreement/head.frames/consensus"], consensus.float(), **close
    )
    assert sums.metrics == pytest.approx(
        {
            "eigengap_mean": float(gap.mean()),
            "eigengap_min": float(gap.min()),
            "consensus_mean": float(consensus.mean()),
            "consensus_min": float(consensus.min()),
        },
        rel=1e-5,
    )


@pytest.mark.parametrize("how", ["iterative", "karcher"])
def test_means_that_see_everybody_are_those_of_the_geometry(how):
    updates = [update(i) for i in range(4)]
    rule = "grassmann-iterative" if how == "iterative" else "karcher"
    _, sums = aggregate(rule, updates)
    stack = torch.stack([polar_factor(u.tensors[NAME].double()) for u in updates])
    expected = grassmann.mean(stack, torch.tensor(WEIGHTS), how, tolerance=1e-6)
    assert (
        grassmann.projection_distance(sums.model["head.frames"].double(), expected.frame).max()
        < 1e-6
    )
    assert sums.metrics["converged"] == 1 and sums.metrics["iterations_max"] > 1
    assert RULES[rule].needs == "all" and RULES["grassmann"].needs == "sum"


def test_the_mean_of_steps_is_that_of_the_formula():
    """One step from what was sent along the mean of (I - P) Y (U^T Y)^-1."""
    updates = [update(i) for i in range(4)]
    _, sums = aggregate("grassmann-tangent", updates)
    u = polar_factor(SENT.double())
    eye, total = torch.eye(N, dtype=torch.float64), torch.zeros(C, N, P, dtype=torch.float64)
    for weight, one in zip(WEIGHTS, updates):
        y = one.tensors[NAME].double()
        total += weight * (eye - u @ u.mT) @ y @ torch.linalg.inv(u.mT @ y)
    wanted = polar_factor(u + total / sum(WEIGHTS))
    assert grassmann.projection_distance(sums.model["head.frames"].double(), wanted).max() < 1e-6
    assert RULES["grassmann-tangent"].needs == "sum"


@pytest.mark.parametrize("align", [True, False])
def test_the_stiefel_mean(align):
    updates = [update(i) for i in range(4)]
    _, sums = aggregate("stiefel" if align else "stiefel-plain", updates)
    stack = torch.stack([u.tensors[NAME] for u in updates])
    expected = stiefel.mean(stack, torch.tensor(WEIGHTS), align=align, reference=SENT)
    torch.testing.assert_close(sums.model["head.frames"], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("rule", FRAMES)
def test_axioms(rule):
    one = [update(0)]
    alone = aggregate(rule, one)[1].model["head.frames"]
    assert grassmann.projection_distance(alone, one[0].tensors[NAME]).max() < 2e-6
    updates = [update(i) for i in range(4)]
    first = aggregate(rule, updates)[1].model["head.frames"]
    order = [2, 0, 3, 1]
    mixed = aggregate(rule, [updates[i] for i in order], [WEIGHTS[i] for i in order])[1]
    assert grassmann.projection_distance(mixed.model["head.frames"], first).max() < 2e-5
    scaled = aggregate(rule, updates, [w / 1024 for w in WEIGHTS])[1].model["head.frames"]
    assert grassmann.projection_distance(scaled, first).max() < 2e-6
    again = aggregate(rule, updates)[1].model["head.frames"]
    assert torch.equal(first, again) and deviation(first).max() < 2e-6
    silent = aggregate(rule, updates, [3.0, 0.0, 0.0, 0.0])[1].model["head.frames"]
    assert grassmann.projection_distance(silent, alone).max() < 2e-6
    assert aggregate(rule, [])[1].tensors == {}


@pytest.mark.parametrize("rule", SUBSPACES)
def test_a_basis_turned_inside_its_span_does_not_matter(rule):
    updates = [update(i) for i in range(4)]
    turned = [
        update(i, u.tensors[NAME] @ draw_frames((C, P, P), KEY.at("turn", i)))
        for i, u in enumerate(updates)
    ]
    one, two = (aggregate(rule, u)[1].model["head.frames"] for u in (updates, turned))
    torch.testing.assert_close(one, two, rtol=0, atol=2e-5)


def test_class_counts_weigh_class_by_class_and_nobody_means_no_change():
    counts = torch.tensor([[4.0, 0, 1, 90], [0.0, 0, 3, -7], [6.0, 0, 0, 40], [0.0, 0, 2, 0]])
    updates = [update(i, counts=counts[i]) for i in range(4)]
    _, sums = aggregate("grassmann-classes", updates)
    found = sums.model["head.frames"]
    stack = torch.stack([u.tensors[NAME].double() for u in updates])
    believed = counts.clamp(0, 40)  # a site cannot have more images of a class than images
    expected = grassmann.mean(polar_factor(stack), believed).frame
    for c in (0, 2, 3):
        assert grassmann.projection_distance(found[c].double(), expected[c]) < 1e-6
    torch.testing.assert_close(found[1], SENT[1], rtol=0, atol=1e-6)
    assert sums.metrics["eigengap_min"] == pytest.approx(0, abs=1e-9)


def broken(kind):
    frames = near(0).clone()
    if kind == "stretched":
        frames[1] *= 1.1
    elif kind == "rank":
        frames[2, :, 1] = frames[2, :, 0]
    elif kind == "zeros":
        frames[0] = 0
    elif kind == "nan":
        frames[0, 0, 0] = torch.nan
    return frames


@pytest.mark.parametrize("rule", FRAMES)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("stretched", "not orthonormal: U^T U deviates from the identity by 0.21"),
        ("rank", "rank-deficient: U^T U deviates from the identity by 1"),
        ("zeros", "rank-deficient"),
        ("nan", "not finite"),
    ],
)
def test_the_guard_refuses_what_is_no_frame_and_says_by_how_much(kind, words, rule):
    good = [update(i) for i in range(1, 4)]
    reasons, sums = aggregate(rule, [update(0, broken(kind)), *good], [1.0] * 4)
    assert reasons[1:] == [None] * 3 and words in reasons[0] and "\n" not in reasons[0]
    expected = aggregate(rule, good, [1.0] * 3)[1].model["head.frames"]
    assert torch.equal(sums.model["head.frames"], expected)


@pytest.mark.parametrize("rule", FRAMES)
@pytest.mark.parametrize("shape", [(3,), (8, 4, 3, 3), (5, 4)])
def test_a_rule_for_frames_on_other_tensors_is_refused_before_the_first_update(rule, shape):
    fields = (Field("model/x", shape, rule),)  # the kernels of a convolution look like frames
    with pytest.raises(ConfigError, match=r"averages frames, and 'model/x' holds none"):
        Aggregator(Schema(fields, fields, ()), {"model/x": torch.ones(shape)}, Aggregate())


def test_a_subspace_of_all_dimensions():
    fields = (Field("model/f", (2, 3, 3), "grassmann", geometry="grassmann"),)
    sent = {"model/f": draw_frames((2, 3, 3), KEY)}
    total = Aggregator(Schema(fields, fields, ()), sent, Aggregate())
    total.offer(
        Update("s", 1, "t", {"model/f": draw_frames((2, 3, 3), KEY.at(1))}), 1.0, ("s", 1, "t")
    )
    assert total.finish().metrics["eigengap_min"] == pytest.approx(1)
