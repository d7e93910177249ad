"""Per-example clipping against a loop over examples, and what must never be clipped or leaked."""

import pytest
import torch

from vitrail.config.schema import Model, Prototypes, Subspaces
from vitrail.errors import ConfigError
from vitrail.local.loop import train
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.per_example import PerExampleGradient
from vitrail.local.poisson import PoissonSampler, compute_sampling_rate, count_steps
from vitrail.local.terms import Objective, Terms, compute_plain_gradient
from vitrail.models.flat import FlatModel
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key

HEADS = ("linear", "protopnet", "tesnet", "tesnet-stiefel", "fedgrasp")
CLASSES = 3


def model_of(head, backbone="lenet", **more):
    options = Model(
        backbone=backbone,
        norm="group",
        prototypes=Prototypes(per_class=2, depth=6, l1=0.3),
        subspaces=Subspaces(depth=6, hidden=8, dimension=2, l1=0.3, orthogonality=0.2),
        **more,
    )
    network, _ = make_network(options, head, 3, CLASSES, derive_server_key(3).at("init"))
    return FlatModel(network)


def batch_of(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 3, 16, 16, generator=generator)
    return x, torch.randint(CLASSES, (count,), generator=generator)


def source():
    return derive_server_key(9).stream()


def gradient(model, rule, batch, terms=(), parts=None):
    with model.training(parts):
        model.grads.zero_()
        rule(model, batch, Objective(model.network, model.network.rest, terms))
    return model.grads.clone()


def slow(model, batch, clip):
    """One backward pass an example, clipped by hand in float64; the penalties after it."""
    x, y = batch
    total = torch.zeros(model.layout.trainable, dtype=torch.float64)
    with model.training(None):
        objective = Objective(model.network, model.network.rest)
        for at in range(len(y)):
            model.grads.zero_()
            objective.data_loss((x[at : at + 1], y[at : at + 1])).backward()
            own = model.grads.double()
            total += own * min(1.0, clip / float(own.norm()))
        model.grads.zero_()
        rest = objective.penalty_loss(batch)
        if rest is not None and rest.requires_grad:
            rest.backward()
    return total, model.grads.double().clone()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("backbone", ["lenet", "resnet8"])
def test_it_equals_a_loop_over_examples(head, backbone):
    model, batch = model_of(head, backbone, width=8), batch_of(5)
    clip = 0.5
    total, rest = slow(model, batch, clip)
    found = gradient(model, PerExampleGradient(clip, 0.0, 4.0, source()), batch).double()
    assert torch.allclose(found, total / 4.0 + rest, rtol=1e-4, atol=1e-6)
    assert float(total.norm()) <= clip * 5 * (1 + 1e-6)
    assert (
        float((total - 5 * gradient(model, compute_plain_gradient, batch).double()).norm()) > 0.1
    )  # it clipped


@pytest.mark.parametrize("head", HEADS)
def test_without_clipping_or_noise_it_is_the_plain_gradient(head):
    model, batch = model_of(head), batch_of(6)
    found = gradient(model, PerExampleGradient(1e9, 0.0, 6.0, source()), batch)
    assert torch.allclose(
        found, gradient(model, compute_plain_gradient, batch), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("head", HEADS)
def test_one_example_moves_the_sum_by_no_more_than_the_clip(head):
    """Neighbors: one image more or less, and that image as extreme as can be."""
    model, (x, y) = model_of(head), batch_of(6)
    x[5] *= 1e4
    clip = 0.3
    rule = PerExampleGradient(clip, 0.0, 1.0, source())
    whole = gradient(model, rule, (x, y)).double()
    less = gradient(model, rule, (x[:5], y[:5])).double()
    assert float((whole - less).norm()) <= clip * (1 + 1e-4)


def test_a_picture_that_breaks_the_arithmetic_counts_nothing():
    """A NaN that passed would undo the clipping of everybody."""
    model, (x, y) = model_of("linear"), batch_of(4)
    rule = PerExampleGradient(0.3, 0.0, 1.0, source())
    without = gradient(model, rule, (x[:3], y[:3]))
    x[3] = float("nan")
    found = gradient(model, rule, (x, y))
    assert torch.isfinite(found).all() and torch.allclose(found, without)


@pytest.mark.parametrize("head", HEADS)
def test_penalties_are_the_same_whatever_the_images(head):
    model = model_of(head)
    with torch.no_grad():
        head_ = model.network.head
        seen = []
        for seed, count in ((0, 2), (1, 5)):
            x, y = batch_of(count, seed)
            losses = head_.loss(model.network.rest(x), y)
            assert set(head_.penalties) <= set(losses)
            seen.append([float(losses[name]) for name in head_.penalties])
            others = [n for n in losses if n not in head_.penalties]
            assert "cross_entropy" in others
    assert seen[0] == seen[1]


def test_the_noise_has_the_deviation_it_was_given_and_touches_only_what_trains():
    model, batch = model_of("protopnet"), batch_of(0)
    rule = PerExampleGradient(0.7, 3.0, 5.0, source())
    draws = torch.stack([gradient(model, rule, batch, parts=("neck",)) for _ in range(60)])
    place = model.layout.part("neck")
    inside = draws[:, place].clone()
    assert float(inside.std()) == pytest.approx(0.7 * 3.0 / 5.0, rel=0.02)
    assert abs(float(inside.mean())) < 0.02
    draws[:, place] = 0
    assert not draws.any()
    assert rule.steps == 60
    energy = float(inside.double().square().sum())
    assert rule.energy == pytest.approx(energy, rel=1e-5)


def test_an_empty_batch_still_makes_a_step_of_noise():
    model = model_of("fedgrasp")
    rule = PerExampleGradient(1.0, 1.0, 8.0, source())
    before = model.values.clone()
    result = train(
        model, [batch_of(0), batch_of(3)], Terms(gradient=rule), OptimizerSettings(lr=0.1)
    )
    assert result.steps == rule.steps == 2 and result.images == 3
    assert torch.isfinite(model.values).all() and not torch.equal(before, model.values)


def test_a_loss_over_the_batch_as_a_whole_is_refused_and_nothing_is_learned_from_it():
    def whole(outputs, batch):
        return outputs["logits"].std(0, unbiased=False).sum()

    model = model_of("linear")
    rule = PerExampleGradient(1.0, 1.0, 8.0, source())
    with pytest.raises(ConfigError, match="batch as a whole"):
        gradient(model, rule, batch_of(4), (whole,))
    assert rule.steps == 0


def test_a_loss_that_picks_by_value_is_refused_in_a_sentence():
    def picks(outputs, batch):
        logits = outputs["logits"]
        return logits[logits > -1e9].sum() / len(logits)

    with pytest.raises(ConfigError, match="picks elements by value"):
        gradient(
            model_of("linear"), PerExampleGradient(1.0, 1.0, 8.0, source()), batch_of(4), (picks,)
        )


def test_poisson_batches_have_the_rate_the_accountant_reckons_with():
    drawn = [PoissonSampler(derive_server_key(s).stream())(50, 8) for s in range(300)]
    assert {len(batches) for batches in drawn} == {count_steps(50, 8)} == {7}
    sizes = torch.tensor([len(b) for batches in drawn for b in batches], dtype=torch.float64)
    q = compute_sampling_rate(50, 8)
    assert float(sizes.mean()) / 50 == pytest.approx(q, rel=0.02)
    assert float(sizes.var()) == pytest.approx(50 * q * (1 - q), rel=0.1)  # binomial, not fixed
    assert all(len(b.unique()) == len(b) for batches in drawn for b in batches)
    assert PoissonSampler(source())(0, 8) == [] and compute_sampling_rate(0, 8) == 0.0
    assert [b.tolist() for b in PoissonSampler(source())(3, 8)] == [[0, 1, 2]]
