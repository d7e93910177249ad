"""Affine subspaces against the formula, patch by patch, and what only they can tell apart."""

import pytest
import torch

from vitrail.config.schema import Model, Subspaces
from vitrail.errors import ConfigError
from vitrail.geometry import deviation
from vitrail.models import HEADS
from vitrail.rng import derive_server_key, seed_torch

KEY = derive_server_key(4)
CLASSES, CHANNELS, LIFT, GAIN = 3, 6, 5.0, 2.0


def make(classes=CLASSES, **options):
    options = {"neck": "none", "normalize": "none", "gain": GAIN, "lift": LIFT, **options}
    options = {"dimension": 2, "top": 4, **options}
    with seed_torch(KEY.at("head")):
        neck, head = HEADS["fedgrasp"](CHANNELS, classes, Model(subspaces=Subspaces(**options)))
    return neck.double(), head.double()


def draw_maps(count=5):
    shape = (count, CHANNELS, 2, 3)
    return torch.randn(shape, generator=KEY.at("z").torch(), dtype=torch.float64)


def turn(head):
    """Frames away from their common start."""
    noise = torch.randn(head.frames.shape, generator=KEY.at("turn").torch(), dtype=torch.float64)
    with torch.no_grad():
        head.frames.copy_(torch.linalg.qr(head.frames + 0.5 * noise)[0])


def test_scores_are_energies_of_patches_with_a_constant_less_that_of_the_constant():
    neck, head = make()
    turn(head)
    z = draw_maps()
    measured = head.measure(neck(z))
    for i in range(len(z)):
        for c in range(CLASSES):
            energies, shares = [], []
            for at in range(6):
                patch = torch.cat([GAIN * z[i].flatten(1)[:, at], torch.tensor([LIFT]).double()])
                energy = float(sum((u @ patch) ** 2 for u in head.frames[c].detach().T))
                energies.append(energy)
                shares.append((energy, energy / float(patch @ patch)))
            expected = sum(sorted(energies)[-4:]) / 4 - LIFT**2
            assert float(measured["scores"][i, c]) == pytest.approx(expected, rel=1e-12)
            share = sum(s for _, s in sorted(shares)[-4:]) / 4
            assert float(measured["shares"][i, c]) == pytest.approx(share, rel=1e-12)


def test_pieces_still_add_up_to_the_logit():
    neck, head = make()
    turn(head)
    z = neck(draw_maps(1))
    logits = head(z)["logits"][0]
    for label in range(CLASSES):
        total = sum(piece.contribution for piece in head.pieces(z, label))
        assert total == pytest.approx(float(logits[label]), rel=1e-9)


def test_all_classes_start_at_the_same_frame_which_holds_the_constant():
    _, head = make()
    assert deviation(head.frames).max() < 1e-6  # drawn in float32
    assert all(torch.equal(frame, head.frames[0]) for frame in head.frames)
    constant = torch.zeros(CHANNELS + 1, dtype=torch.float64)
    constant[-1] = 1
    assert float((head.frames[0].T @ constant).norm()) == pytest.approx(1, rel=1e-6)


def test_a_lift_tells_points_on_one_ray_apart_and_a_linear_subspace_does_not():
    """z and 3 z point the same way: which of two classes has the larger energy is the same for both
    in every pair of linear subspaces, and not in affine ones."""
    z = torch.zeros(2, CHANNELS, 1, 1, dtype=torch.float64)
    z[0, 0], z[1, 0] = 1.0, 3.0

    def answers(lift, frames):
        neck, head = make(classes=2, lift=lift, dimension=1, top=1, gain=1.0)
        with torch.no_grad():
            head.frames.copy_(frames)
        return head(neck(z))["logits"].argmax(1).tolist()

    affine = torch.zeros(2, CHANNELS + 1, 1, dtype=torch.float64)
    affine[0, -1] = 1.0  # near the origin
    affine[1, 0], affine[1, -1] = 0.8, 0.6  # (0.8 z + 3)^2 against 5^2
    assert answers(5.0, affine) == [0, 1]
    draws = torch.randn(50, 2, CHANNELS, 1, generator=KEY.torch(), dtype=torch.float64)
    for frames in torch.nn.functional.normalize(draws, dim=2):
        first, second = answers(0.0, frames)
        assert first == second


def test_without_a_neck_only_frames_are_trained():
    neck, head = make()
    assert not list(neck.parameters())
    assert head.frames.shape == (CLASSES, CHANNELS + 1, 2)
    assert make(lift=0.0)[1].frames.shape == (CLASSES, CHANNELS, 2)
    wide, lifted = make(neck="convolutions", depth=4)
    assert wide(draw_maps()).shape[1] == 5 and lifted.frames.shape[1] == 5


def test_a_lift_of_patches_of_one_length_is_refused():
    with pytest.raises(ConfigError, match="normalize"):
        make(normalize="l2")
