"""FedGraSP's head against the formulas, written out patch by patch in float64."""

import pytest
import torch

from vitrail.config.schema import Model, Subspaces
from vitrail.errors import ConfigError
from vitrail.geometry import deviation
from vitrail.geometry.frames import draw_frames
from vitrail.models import HEADS, FlatModel, Network, SubspaceHead, list_tensors
from vitrail.models.build import build_backbone
from vitrail.models.heads.subspace_layers import make_bottleneck
from vitrail.rng import derive_server_key, seed_torch

KEY = derive_server_key(2)
CLASSES, N, P, SIDE = 4, 8, 2, 3


def head(**options):
    options = {"depth": N, "dimension": P, "top": 3, **options}
    with seed_torch(KEY.at("head")):
        found = SubspaceHead(CLASSES, Subspaces(**options)).double()
    with torch.no_grad():
        found.weight += 0.1 * torch.randn(
            CLASSES, CLASSES, generator=KEY.at("G").torch(), dtype=torch.float64
        )
    return found


def maps(count=5, side=SIDE):
    return torch.randn(count, N, side, side, generator=KEY.at("z").torch(), dtype=torch.float64)


def literal_scores(z, frames, k, normalize, scale):
    scores = torch.zeros(len(z), CLASSES, dtype=torch.float64)
    for i in range(len(z)):
        for c in range(CLASSES):
            energies = []
            for at in range(z[i, 0].numel()):
                patch = z[i].flatten(1)[:, at]
                if normalize:
                    patch = scale * patch / patch.norm()
                energies.append(float(sum((u @ patch) ** 2 for u in frames[c].T)))
            scores[i, c] = sum(sorted(energies)[-k:]) / k
    return scores


def literal_shares(z, frames, k, normalize):
    """(1/k) sum over a class's top k patches of |U_c^T z|^2 / |z|^2, whatever ranks the patches:
    their energy at one length, or as they are."""
    shares = torch.zeros(len(z), CLASSES, dtype=torch.float64)
    for i in range(len(z)):
        for c in range(CLASSES):
            ranked = []
            for at in range(z[i, 0].numel()):
                patch = z[i].flatten(1)[:, at]
                energy = float(sum((u @ patch) ** 2 for u in frames[c].T))
                share = energy / float(patch @ patch)
                ranked.append((share if normalize else energy, share))
            shares[i, c] = sum(share for _, share in sorted(ranked)[-k:]) / k
    return shares


@pytest.mark.parametrize("k", [1, 3, 9])
@pytest.mark.parametrize("normalize", ["l2", "none"])
def test_scores_and_logits_are_the_formula(normalize, k):
    top, z = head(top=k, normalize=normalize, scale=2.5), maps()
    found = top(z)
    expected = literal_scores(z, top.frames.detach(), k, normalize == "l2", 2.5)
    torch.testing.assert_close(found["scores"].detach(), expected)
    logits = torch.stack([top.weight.detach() @ s for s in expected])
    torch.testing.assert_close(found["logits"].detach(), logits)


@pytest.mark.parametrize("normalize", ["l2", "none"])
def test_the_loss_is_the_formula(normalize):
    top, labels = (
        head(normalize=normalize, scale=2.0, compactness=0.7, separation=0.3, l1=0.01),
        [0, 3, 1, 1, 2],
    )
    z = maps()
    outputs = top(z)
    found = top.loss(outputs, torch.tensor(labels))
    logits = outputs["logits"].detach()
    share = literal_shares(z, top.frames.detach(), 3, normalize == "l2")
    own = [float(share[i, y]) for i, y in enumerate(labels)]
    other = [max(float(v) for c, v in enumerate(share[i]) if c != y) for i, y in enumerate(labels)]
    g = top.weight.detach()
    off = sum(abs(float(g[i, j])) for i in range(CLASSES) for j in range(CLASSES) if i != j)
    entropy = [float(torch.logsumexp(logits[i], 0) - logits[i, y]) for i, y in enumerate(labels)]
    expected = {
        "cross_entropy": sum(entropy) / 5,
        "compactness": -0.7 * sum(own) / 5,
        "separation": 0.3 * sum(other) / 5,
        "l1": 0.01 * off,
    }
    assert {k: float(v.detach()) for k, v in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize("normalize", ["l2", "none"])
def test_longer_patches_are_no_way_to_a_lower_compactness(normalize):
    top, labels = head(normalize=normalize), torch.tensor([0, 3, 1, 1, 2])
    terms = [top.loss(top(factor * maps()), labels) for factor in (1, 100)]
    for name in ("compactness", "separation"):
        torch.testing.assert_close(terms[0][name], terms[1][name])
        assert abs(float(terms[0][name].detach())) <= 0.8
    empty = top.loss(top(torch.zeros(5, N, SIDE, SIDE).double()), labels)
    assert all(torch.isfinite(term) for term in empty.values())


def test_gain_is_a_factor_on_the_necks_first_weights():
    necks = []
    for gain in (1.0, 0.2):
        with seed_torch(KEY):
            necks.append(make_bottleneck(16, Subspaces(depth=N, hidden=5, gain=gain)))
    for plain, small in zip(necks[0].parameters(), necks[1].parameters(), strict=True):
        torch.testing.assert_close(small, 0.2 * plain)


@pytest.mark.parametrize("label", range(CLASSES))
def test_pieces_add_up_to_the_logit_and_stand_where_the_energy_is(label):
    top, z = head(), maps(1)
    pieces = top.pieces(z, label)
    logit = float(top(z)["logits"][0, label].detach())
    assert sum(p.contribution for p in pieces) == pytest.approx(logit, abs=1e-12)
    assert all(p.contribution == pytest.approx(p.score * p.weight) for p in pieces)
    placed = [p for p in pieces if p.at is not None]
    assert len(placed) == 3 and pieces[:3] == placed
    energy = top.maps(z)[0, label].detach()
    assert [float(energy[p.at]) / 3 for p in placed] == pytest.approx([p.score for p in placed])
    assert {p.unit for p in placed} == {label} and float(energy[placed[0].at]) == energy.max()
    pulls = pieces[3:]
    assert {p.owner for p in pulls} == set(range(CLASSES)) - {label}
    assert all(p.map is None and p.at is None for p in pulls)


def test_with_g_the_identity_only_patches_speak():
    top = head()
    with torch.no_grad():
        top.weight.copy_(torch.eye(CLASSES))
    pieces = top.pieces(maps(1), 2)
    assert len(pieces) == 3 and all(p.weight == 1 and p.owner == 2 for p in pieces)


def test_turning_a_basis_inside_its_span_changes_nothing():
    top, z = head(), maps()
    before = top(z)["logits"].detach()
    with torch.no_grad():
        top.frames.copy_(top.frames @ draw_frames((CLASSES, P, P), KEY.at("turn"), torch.float64))
    torch.testing.assert_close(top(z)["logits"].detach(), before)


def test_scores_lie_between_zero_and_the_square_of_the_scale():
    top = head(scale=3.0)
    scores = top(100 * maps(50))["scores"]
    assert scores.min() >= 0 and scores.max() <= 9 + 1e-9
    assert torch.isfinite(top(torch.zeros(1, N, 3, 3).double())["logits"]).all()


def test_too_many_patches_and_too_many_dimensions_are_refused():
    with pytest.raises(ConfigError, match=r"model\.subspaces\.top: 10 patches .* 9 positions"):
        head(top=10)(maps())
    with pytest.raises(ConfigError, match=r"model\.subspaces\.dimension: .* 9 orthogonal .* in 8"):
        head(dimension=9)
    assert head(top=None)(maps(side=1))["scores"].shape == (5, CLASSES)  # all there are
    assert head(top=None)(maps(side=2)[:0])["logits"].shape == (0, CLASSES)


@pytest.mark.parametrize("between", ["none", "relu"])
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_the_neck_is_what_was_asked_for(between, activation):
    options = Subspaces(depth=N, hidden=5, between=between, activation=activation)
    with seed_torch(KEY):
        neck, _ = HEADS["fedgrasp"](16, CLASSES, Model(subspaces=options))
    x = torch.randn(2, 16, 3, 3, generator=KEY.torch())
    first, second = (neck.state_dict()[f"conv{i}.weight"][:, :, 0, 0] for i in (1, 2))
    hidden = torch.einsum("oc,nchw->nohw", first, x)
    hidden = hidden.clamp_min(0) if between == "relu" else hidden
    expected = torch.einsum("oc,nchw->nohw", second, hidden)
    expected = expected.sigmoid() if activation else expected
    torch.testing.assert_close(neck(x).detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_the_folded_neck_and_its_gradients_are_those_of_two_convolutions(activation):
    options = Subspaces(depth=N, hidden=5, activation=activation)
    with seed_torch(KEY):
        neck = make_bottleneck(16, options).double()
    x = torch.randn(4, 16, 3, 3, generator=KEY.torch(), dtype=torch.float64)
    with torch.no_grad():  # biases start at 0, where a wrong fold would go unseen
        for at, bias in enumerate((neck.conv1.bias, neck.conv2.bias)):
            bias.copy_(torch.randn(bias.shape, generator=KEY.at("bias", at).torch()))
    literal = neck.conv2(neck.conv1(x))
    expected = literal.sigmoid() if activation else literal
    named = dict(neck.named_parameters())
    assert list(named) == ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"]
    wanted = torch.autograd.grad(expected.square().sum(), list(named.values()))
    found = neck(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    got = torch.autograd.grad(found.square().sum(), list(named.values()))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert neck(x[:0]).shape == (0, N, 3, 3)


def test_one_class_has_nobody_to_be_separated_from():
    with seed_torch(KEY):
        top = SubspaceHead(1, Subspaces(depth=N))
    found = top.loss(top(maps().float()), torch.zeros(5, dtype=torch.int64))
    assert "separation" not in found and all(torch.isfinite(v) for v in found.values())


def test_frames_are_a_grassmann_part_that_starts_equal_everywhere():
    made = []
    for _ in range(2):
        with seed_torch(KEY.at("start")):
            neck, top = HEADS["fedgrasp"](16, CLASSES, Model(subspaces=Subspaces(depth=N)))
        made.append(top)
        network = Network(build_backbone("small-cnn"), neck, top)
        specs = {spec.name: spec for spec in list_tensors(network)}
        assert specs["head.frames"].part == "prototypes"
        assert specs["head.frames"].geometry == "grassmann"
        assert specs["head.weight"].part == "head"
        assert specs["head.owner"].kind == "constant"
        FlatModel(network)
    assert torch.equal(made[0].frames, made[1].frames)
    assert deviation(made[0].frames.detach()).max() < 1e-6
    assert torch.equal(made[0].weight.detach(), torch.eye(CLASSES))
