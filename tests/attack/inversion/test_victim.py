"""The imagined site is the real one: its updates are those of the local training loop."""

import pytest
import torch
import torch.nn.functional as F

from vitrail.attack.choice import Choice
from vitrail.attack.ground_truth import RunTruth
from vitrail.attack.inversion.training_recipe import Recipe
from vitrail.attack.inversion.victim import Victim
from vitrail.attack.run_view import RunView
from vitrail.attack.server_view import ServerView
from vitrail.errors import RunError
from vitrail.models import build
from vitrail.rng import derive_server_key


def by_hand(network, recipe, x, y):
    """Plain SGD with momentum and decay in float64, one step after the other."""
    network = network.double()
    start = {n: p.detach().clone() for n, p in network.named_parameters()}
    speed = {}
    for at in recipe.batches(len(x)):
        network.zero_grad()
        F.cross_entropy(network(x[at].double()), y[at]).backward()
        with torch.no_grad():
            for name, p in network.named_parameters():
                g = p.grad + recipe.decays[name] * p
                speed[name] = recipe.momentum * speed[name] + g if name in speed else g
                p -= recipe.rates[name] * speed[name]
    return {n: (start[n] - p.detach()) / recipe.rates[n] for n, p in network.named_parameters()}


@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.01)])
def test_unrolled_steps_are_those_of_sgd(steps, momentum, decay):
    network = build("small-cnn", 3, width=4, key=derive_server_key(2)).eval()
    names = [n for n, _ in network.named_parameters()]
    recipe = Recipe(
        dict.fromkeys(names, 0.05), dict.fromkeys(names, 0.0 if steps == 1 else decay),
        momentum=momentum, steps=steps, batch_size=2, images=4,
    )  # fmt: skip
    x = torch.rand(3, 4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1], [2, 0, 1, 2]])
    sent = {n: t.clone() for n, t in network.state_dict().items()}
    found = Victim(network).changes(sent, recipe, x, y)
    for row in range(3):
        fresh = build("small-cnn", 3, width=4, key=derive_server_key(2)).eval()
        wanted = by_hand(fresh, recipe, x[row], y[row])
        for name in names:
            torch.testing.assert_close(
                found[name][row].double(), wanted[name], rtol=2e-3, atol=2e-4
            )


def test_rows_at_once_are_rows_one_by_one():
    network = build("resnet8", 3, width=4, key=derive_server_key(2)).eval()
    recipe = Recipe.plain([n for n, _ in network.named_parameters()], 0.1, 2, "batch")
    x = torch.rand(3, 2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([[0, 1], [1, 1], [2, 0]])
    sent = {n: t.clone() for n, t in network.state_dict().items()}
    victim = Victim(network)
    together = victim.changes(sent, recipe, x, y)
    assert victim._batched
    for row in range(3):
        alone = victim.changes(sent, recipe, x[row : row + 1], y[row : row + 1])
        for name, tensor in alone.items():
            torch.testing.assert_close(together[name][row], tensor[0], rtol=1e-3, atol=1e-5)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, sent[name]), "the imagined training changed the network"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("one", {}),
        ("norms", {"model": {"backbone": "resnet8", "width": 4}}),
        (
            "steps",
            {
                "partition": {"kind": "iid", "sites": 3, "minimum": 1, "test_fraction": 0.0},
                "run": {"rounds": 1, "batch_size": 4, "record_updates": True, "local_epochs": 2},
                "optimizer": {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01},
            },
        ),
        (
            "frozen",
            {"model": {"backbone": "small-cnn", "width": 8, "frozen": "stage2"}},
        ),
    ],
)
def test_true_images_explain_the_update_of_a_real_run(recorded, name, changes):
    """With the true images the imagined update equals the released one; with others it does not.

    With four images a batch a site's epochs are one batch each, so that the order is no matter.
    """
    run = recorded(name, **changes)
    (scene, *_) = RunView(run, Choice(images=12)).scenes()
    truth = RunTruth(run, derive_server_key(1))
    turn, labels = scene.turns[0], truth.labels(scene)
    images = torch.stack([truth.of_site(site).images[: scene.count] for site in scene.sites])
    victim = Victim(scene.network)
    made = victim.changes(turn.sent, turn.recipe, scene.seen(images), labels)
    other = victim.changes(turn.sent, turn.recipe, scene.seen(images.flip(-1)), labels)
    for tensor, wanted in turn.directions.items():
        scale = float(wanted.abs().max())
        torch.testing.assert_close(made[tensor], wanted, rtol=1e-2, atol=2e-3 * scale)
    worst = max(float((other[n] - w).norm() / w.norm()) for n, w in turn.directions.items())
    assert worst > 0.1


def test_a_gradient_attack_refuses_several_steps_and_adam(recorded):
    recipe = Recipe({}, {}, steps=7)
    with pytest.raises(RunError, match="7 steps"):
        recipe.need_gradient("dlg", "site-01")
    with pytest.raises(RunError, match="adam"):
        Recipe({}, {}, optimizer="adam").need_gradient("dlg", "site-01")
    Recipe({}, {}).need_gradient("dlg", "site-01")


@pytest.mark.parametrize(
    ("count", "images", "size", "steps", "sizes"),
    [
        (4, 4, 2, 2, [2, 2]),
        (5, 5, 4, 1, [5]),  # a last batch of one joins the one before it
        (1, 1, 1, 3, [1, 1, 1]),
        (1, 10, 4, 3, [1, 1, 1]),
        (5, 10, 4, 3, [2, 3, 2]),
    ],
)
def test_the_attackers_batches(count, images, size, steps, sizes):
    recipe = Recipe({}, {}, steps=steps, batch_size=size, images=images)
    assert [len(b) for b in recipe.batches(count)] == sizes


def test_a_server_knows_nothing_but_its_own_side(recorded):
    assert ServerView(recorded()).shape == (3, 16, 16)
