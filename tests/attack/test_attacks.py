"""Attacks work where they should, on small problems, and beat the references."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

import vitrail
from vitrail import rng
from vitrail.attack import ATTACKS, Budget, Job, one_step
from vitrail.attack.choice import Choice
from vitrail.attack.image_scores import score_images
from vitrail.attack.inversion.adaptive import compute_channel_weights
from vitrail.attack.inversion.gradient_matching import (
    concatenate_tensors,
    cosine,
    expand_channel_weights,
    squared_distance,
    total_variation,
)
from vitrail.attack.inversion.label_inference import compute_label_recovery, infer_labels
from vitrail.attack.run_attacks import run_attacks
from vitrail.errors import ConfigError, RunError
from vitrail.models.backbones.lenet import LeNet, uniform_


def mean_psnr(found, pixels):
    scores = [s.psnr for own, truth in zip(found, pixels) for s in score_images(own, truth)]
    return sum(scores) / len(scores)


def test_distances_are_the_formulas():
    draw = torch.Generator().manual_seed(0)
    a = {"w": torch.randn(2, 3, 4, generator=draw), "b": torch.randn(2, 3, generator=draw)}
    b = {"w": torch.randn(2, 3, 4, generator=draw), "b": torch.randn(2, 3, generator=draw)}
    left, right = (concatenate_tensors(t, ["w", "b"]) for t in (a, b))
    for row in range(2):
        x, y = (torch.cat([t["w"][row].flatten(), t["b"][row]]).double() for t in (a, b))
        gap = float((x - y).square().sum())
        assert float(squared_distance(left, right)[row]) == pytest.approx(gap, rel=1e-5)
        angle = float((x @ y) / (x.norm() * y.norm()))
        assert float(cosine(left, right)[row]) == pytest.approx(1 - angle, rel=1e-4)
    trust = expand_channel_weights({"w": torch.tensor([[1.0, 0, 1], [1, 1, 1]])}, a)
    kept = [concatenate_tensors({"w": t["w"][:, [0, 2]], "b": t["b"]}, ["w", "b"]) for t in (a, b)]
    for measure in (cosine, squared_distance):
        without = float(measure(*kept)[0])
        assert float(measure(left, right, trust)[0]) == pytest.approx(without, rel=1e-5)
    image = torch.zeros(1, 1, 1, 2, 2)
    image[..., 0, 0] = 1.0
    assert float(total_variation(image)) == pytest.approx(0.5 + 0.5)


def test_dlg_gets_images_and_labels_of_a_smooth_network(scene):
    key = rng.derive_server_key(4)
    network = LeNet(3, 6).with_classifier(4, 8)
    uniform_(network, 0.5, key.torch())
    made, pixels, labels = scene(size=8)
    made = one_step(network, 2 * pixels - 1, labels, made.normalize, 4)
    found = ATTACKS["dlg"]("dlg").recover(made, Job(Budget(iterations=150)))
    assert mean_psnr(found.images, pixels) > 30
    assert torch.equal(found.labels, labels)
    other = ATTACKS["idlg"]("idlg").recover(made, Job(Budget(iterations=150)))
    assert torch.equal(other.labels, labels)
    assert mean_psnr(other.images, pixels) > 30


def one_convolution(size):
    """A convolution with ReLU and a linear layer over its map: all of the image is in it."""
    with rng.seed_torch(rng.derive_server_key(5)):
        return nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(24 * (size // 2) ** 2, 4),
        )  # fmt: skip


def test_ig_beats_a_gray_image_by_far_where_the_network_keeps_the_image(scene):
    made, pixels, labels = scene(size=8)
    made = one_step(one_convolution(8), 2 * pixels - 1, labels, made.normalize, 4)
    found = ATTACKS["ig"]("ig", {"restarts": 2}).recover(made, Job(Budget(iterations=300)))
    gray = mean_psnr(torch.full_like(pixels, 0.5), pixels)
    assert mean_psnr(found.images, pixels) > gray + 10


def test_labels_are_read_off_the_gradient(scene):
    for images in (1, 5):
        made, _, labels = scene(sites=6, images=images, seed=8)
        found = infer_labels(made)
        assert compute_label_recovery(found, labels) >= (1.0 if images == 1 else 0.8)
    assert compute_label_recovery(
        torch.tensor([[0, 0, 1]]), torch.tensor([[0, 1, 1]])
    ) == pytest.approx(2 / 3)
    assert compute_label_recovery(None, labels) is None


def test_an_adaptive_attacker_drops_noised_channels_and_keeps_clean_ones(scene):
    made, _, _ = scene(width=12, sites=2)
    clean = compute_channel_weights(made, rng.derive_server_key(1))[0]
    kept = torch.cat([w.flatten() for w in clean.values()])
    assert kept.mean() > 0.9
    turn = made.turns[0]
    name = "stage2.conv.weight"
    noised = {n: t.clone() for n, t in turn.directions.items()}
    size = noised[name].flatten(2).norm(dim=2).max()
    draw = torch.Generator().manual_seed(1)
    noised[name][:, :4] += size * torch.randn(noised[name][:, :4].shape, generator=draw)
    seen = replace(made, turns=(replace(turn, directions=noised),))
    weights = compute_channel_weights(seen, rng.derive_server_key(1))[0][name]
    assert weights[:, :4].sum() == 0
    assert torch.equal(weights[:, 4:], clean[name][:, 4:])


def test_everything_noised_is_everything_kept(scene):
    made, _, _ = scene(width=8, sites=1)
    turn = made.turns[0]
    drowned = {n: 1e6 * torch.ones_like(t) for n, t in turn.directions.items()}
    seen = replace(made, turns=(replace(turn, directions=drowned),))
    for weights in compute_channel_weights(seen, rng.derive_server_key(1))[0].values():
        assert (weights == 1).all()


@pytest.mark.parametrize("name", ["ig", "ig-adaptive", "idlg", "dlg", "dlg-adaptive"])
def test_attacks_run_on_a_recorded_run_without_its_sites(name, recorded, tmp_path):
    run = recorded()
    shutil.copytree(run.path, tmp_path / "run", ignore=shutil.ignore_patterns("sites", "attacks"))
    found = run_attacks(
        vitrail.load(tmp_path / "run"), [name], Choice(images=3), Budget(iterations=4)
    )
    names = [row.name for row in found.rows]
    assert names[:2] == ["random image", "mean image"] and name in names[2:]
    row = found.rows[2]
    assert len(row.scores) == 3 and row.threat.images == 1 and row.threat.local_steps == 1
    assert row.threat.adaptive == name.endswith("adaptive")
    assert row.threat.rounds == ((1, 2) if row.threat.adaptive else (1,))
    assert row.to_json()["threat"]["sees"] == "update"
    assert found.label_recovery == 1.0


def test_the_same_question_again_costs_no_iteration(recorded, tmp_path):
    run = recorded()
    one = run_attacks(run, ["ig"], Choice(images=2), Budget(iterations=6), state=tmp_path)
    calls = []
    two = run_attacks(
        run, ["ig"], Choice(images=2), Budget(iterations=6), state=tmp_path,
        tell=lambda name: lambda *figures: calls.append(figures),
    )  # fmt: skip
    assert not calls
    assert torch.equal(one.rows[2].images, two.rows[2].images)


def test_with_sums_only_the_sum_is_seen(recorded):
    found = run_attacks(recorded(), ["ig"], Choice(images=12, sees="sum"), Budget(iterations=2))
    threat = found.rows[2].threat
    assert threat.sees == "sum" and threat.images == 12 and threat.batch_size == 12
    assert len(found.rows[2].scores) == 12


def test_bad_input(recorded, tiny):
    run = recorded()
    with pytest.raises(ConfigError, match="13 images are asked for"):
        run_attacks(run, ["ig"], Choice(images=13))
    with pytest.raises(ConfigError, match="site-03 trained on 1"):
        run_attacks(run, ["ig"], Choice(images=2, sites=("site-03",)))
    with pytest.raises(RunError, match="site-99"):
        run_attacks(run, ["ig"], Choice(sites=("site-99",)))
    with pytest.raises(RunError, match="round 9"):
        run_attacks(run, ["ig"], Choice(round=9))
    with pytest.raises(ConfigError, match="no attack called"):
        run_attacks(run, ["gi"])
    with pytest.raises(ConfigError, match=r"attack\.ig\.restart"):
        run_attacks(run, ["ig"], options={"ig": {"restart": 2}})
    with pytest.raises(ConfigError, match="dlg"):
        run_attacks(run, ["dlg"], options={"ig": {}})
    quiet = tiny(run={"rounds": 1})
    with pytest.raises(RunError, match="record_updates"):
        run_attacks(quiet, ["ig"])


def test_a_gradient_attack_on_several_steps_says_what_to_do(recorded):
    run = recorded(
        "steps",
        partition={"kind": "iid", "sites": 3, "minimum": 1, "test_fraction": 0.0},
        run={"rounds": 1, "batch_size": 4, "record_updates": True, "local_epochs": 2},
        optimizer={"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01},
    )
    with pytest.raises(RunError, match=r"2 steps.*ig"):
        run_attacks(run, ["dlg"], Choice(images=4))
    found = run_attacks(run, ["ig"], Choice(images=4), Budget(iterations=2))
    assert found.rows[2].threat.local_steps == 2


@pytest.mark.parametrize("method", ["fedgrasp", "myth-gm", "tesnet", "fedper", "scaffold"])
def test_attacks_run_on_what_any_method_released(method, recorded_method):
    run = recorded_method(method)
    found = run_attacks(run, ["ig"], Choice(images=2), Budget(iterations=2))
    assert len(found.rows[2].scores) == 2
