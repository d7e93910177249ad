"""Methods about features: MOON, FedProto, SphereFed, iFedAvg against their formulas."""

import pytest
import torch

import vitrail
from vitrail.aggregate.rule import RULES, Group
from vitrail.config.schema import Aggregate
from vitrail.methods.moon import Moon
from vitrail.models.heads.center_head import CenterHead
from vitrail.models.heads.sphere import SphereHead
from vitrail.release.message import Field
from vitrail.release.update import Update


def test_the_contrast_of_moon_is_its_formula():
    """Equation 3 of the paper, written out in float64."""
    generator = torch.Generator().manual_seed(1)
    z, near, far = torch.randn(3, 5, 4, dtype=torch.float64, generator=generator)

    class Fixed:
        def __init__(self, value):
            self.features = lambda x: value

    term = Moon({"mu": 2.0, "temperature": 0.3})._make_contrast(Fixed(near), Fixed(far))
    found = term({"features": z}, (torch.zeros(5), torch.zeros(5)))
    slow = 0.0
    for i in range(5):
        cosines = [
            float(z[i] @ other[i] / (z[i].norm() * other[i].norm())) / 0.3 for other in (near, far)
        ]
        top, bottom = (torch.exp(torch.tensor(c, dtype=torch.float64)) for c in cosines)
        slow += -2.0 * float(torch.log(top / (top + bottom))) / 5
    assert abs(float(found) - slow) < 1e-12


def test_moon_starts_as_fedavg_and_then_differs(tiny_config, tmp_path):
    """The first turn has no earlier model: refuted if one round differed from FedAvg."""
    made = {
        (name, rounds): vitrail.run(
            tiny_config(method={"name": name}, run={"rounds": rounds}),
            tmp_path / f"{name}{rounds}",
        )
        for name in ("moon", "fedavg")
        for rounds in (1, 2)
    }

    def weights(name, rounds):
        return made[name, rounds].model().network.state_dict()

    one = [weights(name, 1) for name in ("moon", "fedavg")]
    two = [weights(name, 2) for name in ("moon", "fedavg")]
    assert all(torch.equal(one[0][n], one[1][n]) for n in one[0])
    assert any(not torch.equal(two[0][n], two[1][n]) for n in two[0])


def test_a_center_is_the_mean_over_all_sites_images():
    """Pooled class means, whatever the split over sites; a class nobody has keeps what was sent."""
    fields = (
        Field("model/head.centers", (3, 2), "centers"),
        Field("model/head.seen", (3,), "centers"),
    )
    rule = RULES["centers"](Group(fields), Aggregate())
    images = {0: torch.randn(7, 2, dtype=torch.float64), 1: torch.randn(4, 2, dtype=torch.float64)}
    parts = [{0: images[0][:2], 1: images[1]}, {0: images[0][2:]}]
    sent = torch.tensor([0.0] * 4 + [9.0, 9.0] + [0.0] * 3, dtype=torch.float64)
    total, weights = torch.zeros(9, dtype=torch.float64), 0.0
    for held in parts:
        count = torch.tensor([len(held.get(c, ())) for c in range(3)], dtype=torch.float64)
        centers = torch.zeros(3, 2, dtype=torch.float64)
        for c, x in held.items():
            centers[c] = x.mean(0)
        tensors = {"model/head.centers": centers, "model/head.seen": count / count.sum()}
        weight = float(count.sum())
        total += rule.lift(Update("s", 1, "train", tensors), weight, sent)
        weights += weight
    found, figures = rule.finish(total, weights, sent)
    for c in (0, 1):
        assert torch.allclose(found["model/head.centers"][c].double(), images[c].mean(0), atol=1e-6)
    assert found["model/head.centers"][2].tolist() == [9.0, 9.0]
    assert figures["classes_seen"] == 2.0


def test_features_are_drawn_to_known_centers_only():
    head = CenterHead(2, 2)
    z = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
    outputs, labels = head(z), torch.tensor([0, 0, 1])
    assert float(head.loss(outputs, labels)["centers"]) == 0.0
    head.seen[0] = 0.5
    gap = float(head.loss(outputs, labels)["centers"])
    assert gap == 2.0  # the mean (2, 0) is 2 away in one of two channels


def test_the_sphere_is_orthonormal_equal_everywhere_and_never_sent(tiny_config, tmp_path):
    run = vitrail.run(tiny_config(method={"name": "spherefed"}), tmp_path / "run")
    weight = run.model().network.head.weight
    assert torch.allclose(weight @ weight.T, torch.eye(len(weight)), atol=1e-6)
    assert "head" not in run.card["shared"]["stages"][0]["parts"]
    head = SphereHead(4, 2)
    logits = head(torch.tensor([[0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]))["logits"]
    assert torch.isfinite(logits).all()  # a feature of zeros has no direction
    loss = head.loss({"logits": torch.tensor([[1.0, 0.0]])}, torch.tensor([1]))
    assert float(loss["squared_error"]) == 2.0


def test_a_site_tells_how_far_its_own_layer_is_from_the_identity(tiny_config, tmp_path):
    run = vitrail.run(tiny_config(method={"name": "ifedavg"}), tmp_path / "run")
    last = {row["site"]: row["affine_shift"] for row in run.rows() if row.get("affine_shift")}
    assert set(last) == set(run.sites)
    for site, told in last.items():
        neck = run.model(site).network.neck.requires_grad_(False)
        gap = sum(float(v - 1) ** 2 for v in neck.scale) + sum(float(v) ** 2 for v in neck.shift)
        assert told == pytest.approx(gap**0.5, rel=1e-5) and told > 0
    assert "neck" not in run.card["shared"]["stages"][0]["parts"]


def test_fedproto_shares_centers_alone(tiny_config, tmp_path):
    run = vitrail.run(tiny_config(method={"name": "fedproto"}), tmp_path / "run")
    assert set(run.card["shared"]["stages"][0]["parts"]) == {"prototypes"}
    assert run.curve()[-1][1] > 0
