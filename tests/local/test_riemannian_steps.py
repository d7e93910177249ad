"""Steps of frames on the flat buffers, inside the one training loop."""

import pytest
import torch

from vitrail.config.schema import Model, Prototypes, Subspaces
from vitrail.geometry import GRASSMANN, STIEFEL, ParameterGroup, RiemannianSGD, deviation, grassmann
from vitrail.local.loop import train
from vitrail.local.optimizer import OptimizerSettings, make_steppers
from vitrail.local.riemannian_steps import RiemannianStepper
from vitrail.local.terms import Terms
from vitrail.models import FlatModel, make_network
from vitrail.rng import derive_server_key

KEY = derive_server_key(4)
MODEL = Model(
    backbone="small-cnn",
    width=4,
    prototypes=Prototypes(per_class=2, depth=8),
    subspaces=Subspaces(depth=8, dimension=2),
)


def made(head):
    return FlatModel(make_network(MODEL, head, 3, 3, KEY)[0])


def batches(count=6):
    generator = KEY.at("batches").torch()
    for _ in range(count):
        labels = torch.randint(3, (8,), generator=generator)
        yield torch.randn(8, 3, 16, 16, generator=generator) + labels[:, None, None, None], labels


@pytest.mark.parametrize(
    ("head", "manifold"), [("fedgrasp", GRASSMANN), ("tesnet-stiefel", STIEFEL)]
)
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_frames_train_and_stay_frames(head, manifold, name):
    model = made(head)
    before = model.named["head.frames"].clone()
    settings = OptimizerSettings(name, 0.01, 0.9, 0.1, {"prototypes": (0.3, 0.1)})
    train(model, batches(), Terms(), settings)
    after = model.named["head.frames"]
    assert deviation(after).max() < 1e-5 and manifold.distance(before, after).min() > 1e-4
    assert model.network.head.frames.data_ptr() == after.data_ptr()


def test_it_is_the_optimizer_of_the_geometry():
    model = made("fedgrasp")
    own = model.named["head.frames"].clone().requires_grad_()
    reference = RiemannianSGD([ParameterGroup((own,), GRASSMANN)], 0.2, 0.5)
    settings = OptimizerSettings("sgd", 0.01, 0.5, 0.0, {"prototypes": (0.2, 0.0)})
    stepper = RiemannianStepper(model, "prototypes", settings, GRASSMANN)
    generator = KEY.at("gradients").torch()
    for _ in range(4):
        gradient = torch.randn(own.shape, generator=generator)
        model.network.head.frames.grad.copy_(gradient)
        own.grad = gradient.clone()
        stepper.step()
        reference.step()
    assert torch.equal(own, model.named["head.frames"])


def test_a_part_at_rest_or_left_out_does_not_move():
    for still, parts in ((frozenset({"head.frames"}), None), (frozenset(), ("neck",))):
        model = made("fedgrasp")
        model.still = still
        before = model.named["head.frames"].clone()
        found = make_steppers(model, parts, OptimizerSettings())
        assert not any(isinstance(s, RiemannianStepper) for s in found)
        train(model, batches(2), Terms(), OptimizerSettings(lr=0.1), parts)
        assert torch.equal(model.named["head.frames"], before)


def test_training_lowers_the_loss_and_subspaces_find_their_class():
    model = made("fedgrasp")
    settings = OptimizerSettings("adam", 3e-3, parts={"prototypes": (0.5, 0.0)})
    first = train(model, batches(10), Terms(), settings).loss
    for _ in range(6):
        last = train(model, batches(10), Terms(), settings).loss
    assert last < first - 0.3


def test_a_gradient_that_is_not_finite_becomes_nan_and_not_an_error():
    model = made("fedgrasp")
    bad = (torch.full((4, 3, 16, 16), torch.inf), torch.tensor([0, 1, 2, 0]))
    train(model, [bad, bad], Terms(), OptimizerSettings(lr=0.1))
    assert model.named["head.frames"].isnan().any()


def test_momentum_lives_in_the_horizontal_space():
    model = made("fedgrasp")
    settings = OptimizerSettings("sgd", 0.1, 0.9)
    stepper = RiemannianStepper(model, "prototypes", settings, GRASSMANN)
    model.network.head.frames.grad.normal_(generator=KEY.at("g").torch())
    stepper.step()
    velocity, frames = stepper.velocities[0], model.named["head.frames"]
    assert velocity.norm() > 1 and (frames.mT @ velocity).abs().max() < 1e-5
    torch.testing.assert_close(grassmann.project(frames, velocity), velocity, atol=1e-5, rtol=0)
