"""TesNet's head and its six-term loss against the formulas with n x n projectors."""

import itertools

import pytest
import torch

from vitrail.config.schema import Model, Prototypes
from vitrail.errors import ConfigError
from vitrail.models import HEADS, Network, TesHead, list_tensors
from vitrail.models.build import build_backbone
from vitrail.models.heads.tesnet_head import orthogonality, subspace_separation
from vitrail.rng import derive_server_key, seed_torch

KEY = derive_server_key(3)
CLASSES, N, P = 4, 8, 3
OPTIONS = Model(prototypes=Prototypes(per_class=P, depth=N))


def head(options=OPTIONS, noise=0.3):
    with seed_torch(KEY.at("head")):
        found = TesHead(N, CLASSES, options).double()
        with torch.no_grad():  # after training they are neither orthogonal nor of length 1
            found.frames += noise * torch.randn(found.frames.shape, dtype=torch.float64)
    return found


def maps(count=5):
    return torch.rand(count, N, 2, 3, generator=KEY.at("z").torch(), dtype=torch.float64)


def vectors(top):
    found = top.frames.detach().transpose(1, 2).reshape(CLASSES * P, N)
    return found / found.norm(dim=1, keepdim=True)


def test_activations_are_the_largest_inner_products_with_unit_vectors():
    top, z = head(), maps()
    b = vectors(top)
    expected = torch.stack(
        [torch.stack([max(v @ z[i, :, r, c] for r in range(2) for c in range(3)) for v in b])
         for i in range(len(z))]
    )  # fmt: skip
    torch.testing.assert_close(top.maps(z).detach().amax((2, 3)), expected)
    logits = expected @ top.weight.detach().T
    torch.testing.assert_close(top(z)["logits"].detach(), logits)


def test_the_six_terms_are_the_formula():
    top, z, labels = head(), maps(), [0, 3, 1, 1, 2]
    outputs = top(z)
    found = {k: float(v.detach()) for k, v in top.loss(outputs, torch.tensor(labels)).items()}
    b = vectors(top)
    best = torch.zeros(5, CLASSES, dtype=torch.float64)
    for i, c in itertools.product(range(5), range(CLASSES)):
        patches = z[i].flatten(1).T
        cosines = patches @ b[c * P : (c + 1) * P].T / patches.norm(dim=1, keepdim=True)
        best[i, c] = cosines.max()
    own = [float(best[i, y]) for i, y in enumerate(labels)]
    other = [max(float(best[i, c]) for c in range(CLASSES) if c != y) for i, y in enumerate(labels)]
    projectors = [b[c * P : (c + 1) * P].T @ b[c * P : (c + 1) * P] for c in range(CLASSES)]
    apart = sum(float((p - q).norm()) / 2**0.5 for p, q in itertools.combinations(projectors, 2))
    grams = [b[c * P : (c + 1) * P] @ b[c * P : (c + 1) * P].T for c in range(CLASSES)]
    orth = sum(float((g - torch.eye(P, dtype=torch.float64)).abs().sum()) for g in grams)
    assert found["cluster"] == pytest.approx(-0.8 * sum(own) / 5)
    assert found["separation"] == pytest.approx(0.08 * sum(other) / 5)
    assert found["apart"] == pytest.approx(-1e-7 * apart)
    assert found["orthogonality"] == pytest.approx(1e-4 * orth)
    assert found["l1"] == pytest.approx(1e-4 * 0.5 * CLASSES * P * (CLASSES - 1))
    expected = torch.nn.functional.cross_entropy(outputs["logits"], torch.tensor(labels))
    assert found["cross_entropy"] == pytest.approx(float(expected.detach())) and len(found) == 6


def test_the_short_form_of_the_distance_would_be_wrong():
    b = head().basis().detach()
    short = sum(
        float((2 * P - 2 * (b[i].T @ b[j]).square().sum()).clamp_min(0) / 2) ** 0.5
        for i, j in itertools.combinations(range(CLASSES), 2)
    )
    assert abs(float(subspace_separation(b)) - short) > 1e-3


def test_equal_subspaces_and_one_class_have_finite_gradients():
    with seed_torch(KEY):
        basis = torch.randn(1, N, P, dtype=torch.float64).expand(3, N, P).clone().requires_grad_()
    (subspace_separation(basis) + orthogonality(basis)).backward()
    assert torch.isfinite(basis.grad).all()
    assert float(subspace_separation(basis.detach()[:1])) == 0
    with seed_torch(KEY):
        top = TesHead(N, 1, OPTIONS)
    found = top.loss(top(maps().float()), torch.zeros(5, dtype=torch.int64))
    assert "separation" not in found and all(torch.isfinite(v) for v in found.values())


@pytest.mark.parametrize("label", [0, CLASSES - 1])
def test_pieces_add_up_to_the_logit(label):
    top, z = head(), maps(1)
    pieces = top.pieces(z, label)
    assert sum(p.contribution for p in pieces) == pytest.approx(
        float(top(z)["logits"][0, label].detach())
    )
    assert [p.owner for p in pieces] == [u // P for u in range(CLASSES * P)]
    for piece in pieces:
        assert float(piece.map[piece.at]) == piece.score == float(piece.map.max())


def test_a_dark_image_is_no_division_by_zero():
    top = head()
    outputs = top(torch.zeros(2, N, 2, 2, dtype=torch.float64))
    loss = sum(top.loss(outputs, torch.tensor([0, 1])).values())
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(top.frames.grad).all()


@pytest.mark.parametrize(
    ("name", "geometry"), [("tesnet", "euclidean"), ("tesnet-stiefel", "stiefel")]
)
def test_geometry_and_parts(name, geometry):
    with seed_torch(KEY):
        neck, top = HEADS[name](16, CLASSES, Model())
    network = Network(build_backbone("small-cnn"), neck, top)
    spec = next(s for s in list_tensors(network) if s.name == "head.frames")
    assert (spec.part, spec.geometry, spec.shape) == ("prototypes", geometry, (CLASSES, 64, 10))


def test_more_vectors_than_channels_are_refused():
    with pytest.raises(ConfigError, match=r"model\.prototypes\.per_class: .* 65 orthogonal"):
        HEADS["tesnet"](16, CLASSES, Model(prototypes=Prototypes(per_class=65)))
