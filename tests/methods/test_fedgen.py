"""FedGen's generator and what sites do with it, against the paper's equations."""

import numpy as np
import torch
import torch.nn.functional as F

from vitrail.methods.base.label_counts import (
    compute_label_shares,
    make_label_facts,
    read_label_counts,
)
from vitrail.methods.fedgen import FedGen, GeneratedFeatures
from vitrail.models.generator import FeatureGenerator, ImageGenerator, diversity_loss
from vitrail.rng import Key, seed_torch

KEY = Key(b"a key of tests")


def generator(classes=3, features=5):
    with seed_torch(KEY):
        return FeatureGenerator(classes, features, noise=4, hidden=6)


def heads(count, classes=3, features=5):
    draw = KEY.at("heads").torch()
    return [
        (torch.randn(classes, features, generator=draw), torch.randn(classes, generator=draw))
        for _ in range(count)
    ]


def test_the_generator_learns_by_equation_4_in_float64():
    """CE of the mean of the heads' logits, and the diversity term, with torch's own Adam."""
    method = FedGen({"steps": 5, "server_batch": 7, "server_lr": 0.01, "diversity": 0.5})
    found, slow, given = generator(), generator().double(), heads(3)
    shares = torch.tensor([0.2, 0.3, 0.5])
    last = method.train_generator(found, given, shares, KEY.at("learn"))
    adam, draws = torch.optim.Adam(slow.parameters(), lr=0.01), KEY.at("learn").torch()
    for _ in range(5):
        labels, noise = slow.draw(7, shares, draws)
        noise = noise.double()
        z = slow(labels, noise)
        logits = sum(z @ w.double().T + b.double() for w, b in given) / 3
        fit = -sum(torch.log_softmax(logits, 1)[i, labels[i]] for i in range(7)) / 7
        pairs = sum(
            (z[i] - z[j]).abs().mean() * (noise[i] - noise[j]).abs().mean()
            for i in range(7)
            for j in range(7)
        )
        loss = fit + 0.5 * torch.exp(-pairs / 49)
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert abs(last - float(loss.detach())) < 1e-5
    for name, tensor in found.state_dict().items():
        assert torch.allclose(tensor.double(), slow.state_dict()[name], atol=1e-4), name


def test_a_generator_learns_to_make_what_heads_take_for_its_class():
    """Refuted if after training the heads did not tell generated classes apart."""
    method = FedGen({"steps": 300, "server_lr": 0.01, "diversity": 0.0})
    made, given, shares = generator(), heads(4), torch.ones(3) / 3
    method.train_generator(made, given, shares, KEY)
    labels, noise = made.draw(200, shares, KEY.at("test").torch())
    logits = torch.stack([F.linear(made(labels, noise), w, b) for w, b in given]).mean(0)
    assert float((logits.argmax(1) == labels).float().mean()) > 0.9


def test_generated_features_pull_by_equation_5():
    """weight * CE(head(G(y, noise)), y), and nothing but the head moves."""
    made = generator()
    shares = torch.tensor([0.0, 0.5, 0.5])

    class Model:
        values = torch.zeros(1)

        class network:
            pass

    weight = torch.randn(3, 5, generator=KEY.torch(), requires_grad=True)
    Model.network.head = staticmethod(lambda z: {"logits": z @ weight.T})
    GeneratedFeatures(made, shares, 6, 2.0, KEY.at("draws").torch())(Model)
    labels, noise = made.draw(6, shares, KEY.at("draws").torch())
    z = made(labels, noise).detach().double()
    p = torch.softmax(z @ weight.detach().double().T, 1)
    p[torch.arange(6), labels] -= 1
    assert torch.allclose(weight.grad.double(), 2 * p.T @ z / 6, atol=1e-6)
    assert 0 not in labels and all(t.grad is None for t in made.parameters())


def test_the_first_round_is_fedavg(tiny):
    """There is no generator yet: refuted if one round differed, or if two did not."""
    models = {}
    for name in ("fedavg", "fedgen"):
        for rounds in (1, 2):
            run = tiny(f"{name}-{rounds}", method={"name": name}, run={"rounds": rounds})
            models[name, rounds] = run.model().network.state_dict()
    pairs = {
        rounds: [
            torch.equal(models["fedavg", rounds][n], models["fedgen", rounds][n])
            for n in models["fedavg", rounds]
        ]
        for rounds in (1, 2)
    }
    assert all(pairs[1]) and not all(pairs[2])


def test_label_counts_come_back_as_they_were_told():
    roster = {
        "a": make_label_facts(np.array([0, 0, 2]), 3),
        "b": make_label_facts(np.array([2]), 3),
        "c": make_label_facts(np.zeros(0, np.int64), 3),
    }
    counts = read_label_counts(roster, ["b", "a"], 3)
    assert counts.tolist() == [[0, 0, 1], [2, 0, 1]]
    assert compute_label_shares(counts).tolist() == [0.5, 0.0, 0.5]
    assert compute_label_shares(read_label_counts(roster, ["c"], 3)).tolist() == [1 / 3] * 3
    assert read_label_counts(roster, [], 3).shape == (0, 3)


def test_images_have_the_shape_and_range_asked_for():
    for shape in ((8, 8, 3), (10, 13, 1), (28, 28, 1)):
        with seed_torch(KEY):
            made = ImageGenerator(4, shape, noise=5, width=4)
        x = made(*made.draw(3, torch.ones(4), KEY.torch())).detach()
        assert x.shape == (3, *shape) and 0 <= float(x.min()) <= float(x.max()) <= 1


def test_what_ignores_its_noise_is_not_apart():
    noise = torch.randn(6, 4, generator=KEY.torch())
    assert float(diversity_loss(torch.ones(6, 3), noise)) == 1.0
    assert float(diversity_loss(noise, noise)) < 1.0
    assert float(diversity_loss(noise[:1], noise[:1])) == 1.0  # one has nobody to be apart from
