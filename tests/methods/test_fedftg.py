"""FedFTG's game, against its formulas."""

import copy
from types import SimpleNamespace

import torch

from vitrail.methods.fedftg import FedFTG, compute_trust, disagreement, fidelity
from vitrail.models.generator import ImageGenerator
from vitrail.rng import Key, seed_torch

KEY = Key(b"a key of tests")


def test_disagreement_and_fidelity_are_their_formulas():
    draw = KEY.torch()
    logits = torch.randn(4, 3, dtype=torch.float64, generator=draw)
    said = [torch.randn(4, 3, dtype=torch.float64, generator=draw) for _ in range(2)]
    counts = torch.tensor([[3.0, 0.0, 1.0], [1.0, 2.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 0])
    share = [[0.75, 0.0, 1.0], [0.25, 1.0, 0.0]]
    assert torch.allclose(compute_trust(counts), torch.tensor(share, dtype=torch.float64))
    gap, fit = 0.0, 0.0
    for i, y in enumerate(labels.tolist()):
        p = torch.softmax(logits[i], 0)
        mixed = torch.zeros(3, dtype=torch.float64)
        for k in range(2):
            q = torch.softmax(said[k][i], 0)
            gap += share[k][y] * float(sum(p[c] * torch.log(p[c] / q[c]) for c in range(3))) / 4
            mixed += share[k][y] * said[k][i]
        fit -= float(torch.log(torch.softmax(mixed, 0)[y])) / 4
    trust = compute_trust(counts)[:, labels]
    assert abs(float(disagreement(logits, said, trust)) - gap) < 1e-12
    assert abs(float(fidelity(said, trust, labels)) - fit) < 1e-12


def test_a_class_that_nobody_has_is_everybodys():
    assert compute_trust(torch.zeros(4, 2, dtype=torch.float64)).tolist() == [[0.25, 0.25]] * 4


def played(server, steps, model_steps, flats, lr=0.01, generator_lr=0.01, holders=None, **options):
    method = FedFTG(
        {
            "steps": steps,
            "model_steps": model_steps,
            "server_batch": 8,
            "server_lr": lr,
            "generator_lr": generator_lr,
            "width": 4,
            **options,
        }
    )
    views = {site: server.layout.views(flat) for site, flat in flats.items()}
    mean = torch.stack(list(flats.values())).mean(0)
    sums = SimpleNamespace(models=views, model=server.layout.views(mean))
    has = {site: float(holders is None or site in holders) for site in flats}
    server.roster = {s: {f"label-{c}": has[s] for c in range(3)} for s in flats}
    return method.close(server, sums, SimpleNamespace(key=KEY, classes=3)), mean


def test_a_turn_of_the_model_is_its_formula_in_float64(server, moved, network_at):
    """One generator step with a rate of nearly nothing, then two of the model, by torch's Adam."""
    flats = moved(server, 3)
    figures, mean = played(server, 1, 2, flats, generator_lr=1e-12)
    with seed_torch(KEY.at("generator")):
        made = ImageGenerator(3, server.trainer.image, 32, 4)
    teachers = [network_at(server, flat) for flat in flats.values()]
    student = network_at(server, mean)
    adam, draws = torch.optim.Adam(student.parameters(), lr=0.01), KEY.at("images").torch()
    shares = torch.ones(3, dtype=torch.float64) / 3
    made.draw(8, shares, draws)  # the generator's own
    for _ in range(2):
        labels, noise = made.draw(8, shares, draws)
        with torch.no_grad():
            x = (made(labels, noise).double() * 255 - 127.5) / 127.5
            x = x.permute(0, 3, 1, 2)
            said = [teacher(x) for teacher in teachers]
        own = torch.log_softmax(student(x), 1)
        loss = sum(
            (own.exp() * (own - torch.log_softmax(other, 1))).sum(1).mean() / 3 for other in said
        )
        adam.zero_grad()
        loss.backward()
        adam.step()
    assert abs(figures["disagreement"] - float(loss.detach())) < 1e-5
    assert figures["image_steps"] == 24
    for name, tensor in server.layout.views(server.values).items():
        assert torch.allclose(tensor.double(), student.state_dict()[name], atol=1e-4), name


def gaps(server, flats, turns, **options):
    """How far the model was from the sites' models in the last turn, for these numbers of turns."""
    found, start = [], server.values.clone()
    for count in turns:
        server.values.copy_(start)
        server.state.clear()
        found.append(played(server, count, 1, flats, **options)[0]["disagreement"])
    return found


def test_the_model_comes_closer_on_images_that_stay(server, moved):
    """A generator of nearly no rate, and one site that alone has images, so that there is a model
    without any gap: refuted if forty turns did not halve it."""
    own = {"generator_lr": 1e-12, "holders": ("site-0",)}
    first, last = gaps(server, moved(server, 2), (1, 40), **own)
    assert last < first / 2


def test_the_generator_finds_where_models_differ(server, moved):
    """A model of nearly no rate: refuted if forty turns found nothing worse than one."""
    first, last = gaps(server, moved(server, 2), (1, 40), lr=1e-12, fidelity=0.0, diversity=0.0)
    assert last > 1.2 * first


def test_the_generator_goes_on_from_round_to_round(server, moved):
    flats = moved(server, 2)
    played(server, 1, 1, flats)
    first = copy.deepcopy(server.state)
    played(server, 1, 1, flats)
    assert server.state.keys() == first.keys()
    assert any(not torch.equal(server.state[n], first[n]) for n in first)
