"""Arithmetic, generators, GIFD and prototypes: formulas first, then small effects."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call

from vitrail import rng
from vitrail.attack import ATTACKS, Budget, Job, one_step
from vitrail.attack.choice import Choice
from vitrail.attack.ground_truth import RunTruth
from vitrail.attack.image_scores import score_images
from vitrail.attack.inversion.adaptive import draw_smooth_images
from vitrail.attack.inversion.gifd import GENERATORS, project_onto_l1_ball
from vitrail.attack.inversion.image_prior import (
    LATENT,
    Generator,
    check_fits,
    load_generator,
    load_or_train_generator,
    save_generator,
    train_generator,
)
from vitrail.attack.inversion.prototype_patches import crop, score_parts_membership
from vitrail.attack.inversion.victim import compute_patches
from vitrail.attack.run_attacks import run_attacks
from vitrail.attack.run_view import RunView
from vitrail.data.normalize import Normalize
from vitrail.errors import ConfigError, DataError, RunError

HALF = Normalize.from_name("half", 3)


def test_a_first_linear_layer_gives_the_image_away_to_the_pixel():
    with rng.seed_torch(rng.derive_server_key(1)):
        network = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 4))
    pixels = draw_smooth_images((3, 1, 3, 8, 8), rng.derive_server_key(2).torch())
    scene = one_step(network, 2 * pixels - 1, torch.tensor([[0], [1], [3]]), HALF, 4)
    found = ATTACKS["analytic"]("analytic").recover(scene, Job())
    torch.testing.assert_close(found.images, pixels, rtol=0, atol=1e-4)
    assert found.iterations == 1  # a division, no search


def test_a_last_linear_layer_gives_features_away(scene):
    made, _, _ = scene(width=8)
    found = ATTACKS["analytic"]("analytic").recover(made, Job(Budget(iterations=60)))
    gray = ATTACKS["analytic"]("analytic").recover(made, Job(Budget(iterations=1)))
    assert (found.loss < 0.5 * gray.loss).all()  # the search goes to the recovered features


def test_the_l1_ball_against_a_slow_projection():
    draw = torch.Generator().manual_seed(0)
    x, center = torch.randn(4, 6, generator=draw), torch.zeros(4, 6)
    x[0] *= 0.01
    found = project_onto_l1_ball(x, center, 1.0)
    assert torch.equal(found[0], x[0])  # inside already
    assert (found.abs().sum(1) <= 1 + 1e-5).all()
    for row in range(1, 4):
        low, high = 0.0, float(x[row].abs().max())
        for _ in range(80):  # the threshold by bisection
            level = (low + high) / 2
            inside = float((x[row].abs() - level).clamp_min(0).sum()) <= 1.0
            low, high = (low, level) if inside else (level, high)
        slow = x[row].sign() * (x[row].abs() - high).clamp_min(0)
        torch.testing.assert_close(found[row], slow, rtol=0, atol=1e-5)


def squares(count, seed=1):
    """Public images of one kind: a bright square somewhere on dark ground."""
    draw = rng.derive_server_key(seed).numpy()
    images = torch.full((count, 16, 16, 3), 30, dtype=torch.uint8)
    for image in images:
        y, x = draw.integers(0, 9, 2)
        image[y : y + 7, x : x + 7] = torch.tensor(draw.integers(100, 255, 3), dtype=torch.uint8)
    return images.numpy()


@pytest.fixture(scope="module")
def learned():
    return train_generator(squares(200), rng.derive_server_key(1), steps=150, batch=16)


def test_a_generator_learns_its_images_and_can_be_entered_at_any_stage(learned):
    z = torch.randn(2, LATENT, generator=rng.derive_server_key(3).torch())
    whole = learned(z)
    assert whole.shape == (2, 3, 16, 16) and 0 <= float(whole.min()) <= float(whole.max()) <= 1
    before = z
    for number, stage in enumerate(learned.stages):
        torch.testing.assert_close(learned(before, number), whole)
        before = stage(before)
    fresh = Generator(3, 16).requires_grad_(False)
    target = torch.from_numpy(squares(4, 9)).permute(0, 3, 1, 2) / 255
    dark = float((learned(torch.zeros(1, LATENT)) - target).square().mean())
    assert dark < float((fresh(torch.zeros(1, LATENT)) - target).square().mean())


def test_a_generator_is_trained_once_and_kept(own_cache, tmp_path):
    images = squares(20)
    one = load_or_train_generator(images, 3)
    (file,) = own_cache.glob("generators/*.safetensors")
    stamp = file.stat().st_mtime_ns
    two = load_or_train_generator(images, 3)
    assert file.stat().st_mtime_ns == stamp
    z = torch.zeros(1, LATENT)
    assert torch.equal(one(z), two(z))
    save_generator(one, tmp_path / "g.safetensors")
    assert torch.equal(load_generator(tmp_path / "g.safetensors")(z), one(z))
    with pytest.raises(DataError):
        train_generator(images[:0], rng.derive_server_key(1))


def test_generators_of_the_wrong_size_are_refused(learned, scene, tmp_path):
    with pytest.raises(ConfigError, match="3 x 16 x 16, and the run has 3 x 32 x 32"):
        check_fits(learned, (3, 32, 32), "generator")
    save_generator(learned, tmp_path / "g.safetensors")
    made, _, _ = scene(size=8, width=4)
    gifd = ATTACKS["gifd"]("gifd", {"generator": str(tmp_path / "g.safetensors")})
    with pytest.raises(ConfigError, match="16 x 16"):
        gifd.recover(made, Job(Budget(iterations=2)))
    with pytest.raises(ConfigError, match="--public"):
        ATTACKS["gifd"]("gifd").recover(made, Job())
    with pytest.raises(ConfigError, match="no generator called"):
        ATTACKS["gifd"]("gifd", {"generator": "mine"}).recover(made, Job())


def test_gifd_keeps_to_what_its_generator_knows(learned, scene):
    """Refuted if, with few steps, the prior does not beat a free search on its own images."""
    pixels = torch.from_numpy(squares(2, 5)).permute(0, 3, 1, 2)[:, None] / 255
    base, _, _ = scene(width=12)
    made = one_step(base.network, 2 * pixels - 1, torch.tensor([[0], [2]]), HALF, 4)
    GENERATORS.register("squares")(lambda shape: learned)
    gifd = ATTACKS["gifd"]("gifd", {"generator": "squares", "restarts": 2})
    with_prior = gifd.recover(made, Job(Budget(iterations=80)))
    free = ATTACKS["ig"]("ig").recover(made, Job(Budget(iterations=80)))

    def mean(found):
        return sum(score_images(a, b)[0].psnr for a, b in zip(found.images, pixels)) / 2

    assert mean(with_prior) > mean(free)
    assert with_prior.threat.public_data == "squares"


def test_crops_stay_inside_the_image():
    image = torch.arange(3 * 16 * 16).view(3, 16, 16).float()
    for at in range(16):
        assert crop(image, at, (4, 4)).shape == (3, 12, 12)
    assert torch.equal(crop(image, 0, (4, 4)), image[:, :12, :12])
    assert torch.equal(crop(image, 15, (4, 4)), image[:, 4:, 4:])


@pytest.mark.parametrize("method", ["myth-gm", "tesnet", "fedgrasp"])
def test_prototypes_and_subspaces_are_searched_for(method, recorded_method):
    run = recorded_method(method)
    options = {"prototypes": {"units": 3, "iterations": 30}}
    found = run_attacks(run, ["prototypes"], Choice(images=4), options=options)
    (rows,) = found.patches.values()
    assert [row.name for row in rows] == ["random patch", "mean patch", "patch search"]
    assert rows[2].units == 3 and rows[2].reached > 0.8  # nearly as exciting as the true patch
    (told,) = found.members
    assert told.members == told.others <= 4 and 0 <= told.auc <= 1
    json.dumps(found.to_json(), allow_nan=False)


def test_a_prototype_that_is_a_patch_of_an_image_tells_whose_it_is(recorded_method):
    run = recorded_method("myth-gm")
    (scene,) = RunView(run, Choice(images=4)).scenes()
    truth = RunTruth(run, rng.derive_server_key(1)).of_site(scene.sites[0])
    turn = scene.turns[-1]
    weights = {f"network.{n}": turn.released[n][0] if n in turn.released else t
               for n, t in turn.sent.items()}  # fmt: skip
    latent = functional_call(_Latents(scene.network), weights, (scene.seen(truth.images),))
    ends = latent.flatten(2).permute(0, 2, 1)[:, 0]  # a corner of each of the site's four images
    count = len(turn.released["head.vectors"][0])
    turn.released["head.vectors"][0] = ends[torch.arange(count) % 4].view(count, -1)
    assert score_parts_membership(scene, 0, truth).auc == 1.0
    turn.released["head.vectors"][0] = 10.0  # near nobody's patch
    assert score_parts_membership(scene, 0, truth).auc < 0.9
    alone = replace(truth, other_labels=truth.other_labels + 100)
    assert (
        score_parts_membership(scene, 0, alone) is None
    )  # nobody else has an image of its classes


class _Latents(nn.Module):
    """What the prototypes of a network see."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network.head.reduce(compute_patches(self.network, x))


def test_a_model_without_prototypes(recorded):
    with pytest.raises(RunError, match="no prototypes"):
        run_attacks(recorded(), ["prototypes"], Choice(images=1))
