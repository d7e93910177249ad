"""PM with `align`: prototypes travel in the public space, necks and rotations stay home."""

import math
from types import SimpleNamespace

import pytest
import torch
from tests.methods.test_myth import EPOCHS, HEAD, SMALL, models, sent, state, update

import vitrail
from vitrail.errors import ConfigError
from vitrail.geometry.slots import match_slots
from vitrail.local.phases.turn_prototypes import (
    ANCHORS,
    INPUTS,
    START,
    VECTORS,
    AnchorPull,
    TurnHome,
    TurnToPublic,
    keep_anchors,
    list_patches,
)
from vitrail.models.flat import FlatModel
from vitrail.rng import derive_server_key, derive_site_key

KEY = derive_server_key(41)
ALIGN = {"align": True, "anchors": 12}
PUBLIC = {"public": {"aviary": {"images": 20, "classes": 3, "seed": 11}}}


@pytest.fixture
def aligned(tiny):
    """A function: run PM with anchors on a federation of three small sites."""

    def run(out="run", on_round=None, options=None, **changes):
        sections = {**SMALL, **{k: {**SMALL.get(k, {}), **v} for k, v in changes.items()}}
        sections["data"] = {**PUBLIC, **sections["data"]}
        method = {"name": "myth-pm", **EPOCHS, **ALIGN, **(options or {})}
        return tiny(out, on_round, method=method, **sections)

    return run


def test_anchors_go_down_once_and_nothing_but_prototypes_goes_up(aligned, releases):
    run = aligned(run={"record_updates": True})
    assert set(sent(run, 1)) == {*HEAD, ANCHORS} and sent(run, 1)[ANCHORS].dtype == torch.uint8
    assert sent(run, 1)[ANCHORS].shape == (12, 16, 16, 3)
    for round_ in (1, 2, 3):
        assert set(update(run, round_)) == set(HEAD)
        assert round_ == 1 or set(sent(run, round_)) == set(HEAD)
    for lines in releases(run.path).values():
        assert [line["bytes"] for line in lines] == [288, 288, 288, 0]
    first, second = (state(run, site) for site in run.sites[:2])
    assert not torch.equal(first["neck.conv2.weight"], second["neck.conv2.weight"])
    residuals = [row["alignment_residual"] for row in run.rows() if row["site"] != "*"]
    assert all(0 <= r <= 2 for r in residuals if r is not None) and residuals[-1] is not None
    assert not {INPUTS, START} & set(run.own(run.sites[0], "personal"))


def test_anchors_are_public_images_and_never_a_sites(aligned):
    """Other images at the sites, the same anchors."""
    one = aligned("one", run={"record_updates": True, "rounds": 1})
    other = aligned(
        "other",
        data={"aviary": {"images": 45, "classes": 3, "seed": 9}},
        run={"record_updates": True, "rounds": 1},
    )
    assert torch.equal(sent(one, 1)[ANCHORS], sent(other, 1)[ANCHORS])


def test_the_local_reference_is_that_of_plain_pm(aligned):
    """Alone there is nobody to mean the same as: the same bits as without anchors."""
    plain = aligned("plain", options={"align": False}, run={"local_reference": True})
    turned = aligned("turned", options={"hold": 1.0}, run={"local_reference": True})
    assert models(plain, "local") == models(turned, "local")
    assert models(plain, "personal") != models(turned, "personal")


def test_a_stopped_run_goes_on_to_the_same_models(aligned, tmp_path):
    class StopError(Exception):
        pass

    def stop(*_):
        raise StopError

    options = {"hold": 1.0}
    whole = aligned("whole", options=options)
    with pytest.raises(StopError):
        aligned("stopped", stop, options=options)
    assert models(whole, "personal") == models(vitrail.resume(tmp_path / "stopped"), "personal")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"match": True}, "align turns prototypes of necks that stay home"),
        ({"share": ["neck", "prototypes", "head"]}, "align turns"),
        ({"share": ["head"]}, "align turns"),
        ({"first_share": []}, "align turns"),
        ({"same_start": False}, "align turns"),
        ({"space": "public"}, "align turns"),
        ({"hold": -1.0}, r"method\.hold"),
        ({"align": False, "hold": 1.0}, "hold keeps anchors where they are, which needs align"),
        ({"anchors": 21}, "21 anchors are asked for, and there are 20 public images"),
        ({"anchors": 2}, r"2 anchors have 8 patches, too few to turn 8 channels by.*at least 10"),
    ],
)
def test_what_cannot_be_aligned_is_one_clear_sentence(aligned, tmp_path, options, words):
    with pytest.raises(ConfigError, match=words) as err:
        aligned(options=options)
    assert "\n" not in str(err.value) and not (tmp_path / "run").exists()


def test_without_public_images_there_is_nothing_to_align_by(tiny):
    with pytest.raises(ConfigError, match=r"data\.public"):
        tiny(method={"name": "myth-pm", **EPOCHS, **ALIGN}, **SMALL)


# The phases, on a site whose neck is turned by a rotation that nobody knows


@pytest.fixture
def site(aligned):
    """A function: a site without a sigmoid, its neck and prototypes turned by some rotation."""
    run = aligned("trained", run={"rounds": 1})
    images = torch.randint(
        0, 256, (12, 16, 16, 3), generator=KEY.at("anchors").torch(), dtype=torch.uint8
    )

    def make(rotation=None):
        network = run.model(run.sites[0]).network
        network.neck = torch.nn.Sequential(network.neck.conv1, network.neck.conv2)  # no sigmoid
        made = SimpleNamespace(
            model=FlatModel(network, torch.device("cpu")),
            inputs=SimpleNamespace(
                normalize=lambda x: x.float().permute(0, 3, 1, 2) / 255, device=torch.device("cpu")
            ),
            state={},
            down={ANCHORS: images},
            key=derive_site_key(1, "site-00"),
        )
        with torch.no_grad():
            network.head.vectors.copy_(torch.randn(6, 8, generator=KEY.at("vectors").torch()))
            made.down[VECTORS] = network.head.vectors.clone()
            keep_anchors(made)
            if rotation is not None:
                last = network.neck[1]
                last.weight.copy_(torch.einsum("oihw,od->dihw", last.weight, rotation))
                last.bias.copy_(last.bias @ rotation)
                network.head.vectors.copy_(network.head.vectors @ rotation)
        return made

    return make


def draw_rotation(size, at):
    q, _ = torch.linalg.qr(torch.randn(size, size, generator=KEY.at(at).torch()))
    q[:, 0] *= torch.linalg.det(q).sign()
    return q


CTX = SimpleNamespace(classes=3)


@pytest.mark.parametrize("at", ["a", "b", "c"])
def test_what_a_site_sends_does_not_tell_how_its_neck_was_turned(site, at):
    plain, turned = site(), site(draw_rotation(8, at))
    apart = (turned.model.network.head.vectors - plain.model.network.head.vectors).abs().max()
    assert apart > 0.1  # what plain PM would average
    for made in (plain, turned):
        assert TurnToPublic()(made, CTX)["alignment_residual"] < 1e-6
    first, second = (m.model.network.head.vectors for m in (plain, turned))
    assert torch.allclose(first, second, atol=1e-4)


def test_what_arrives_is_turned_back_to_where_it_was(site):
    rotation = draw_rotation(8, "back")
    made = site(rotation)
    head = made.model.network.head
    with torch.no_grad():
        head.vectors.copy_(made.down[VECTORS])  # what arrived, in the public space
    TurnHome()(made, CTX)
    assert torch.allclose(head.vectors, made.down[VECTORS] @ rotation, atol=1e-4)
    assert START in made.state
    TurnHome(last=True)(made, CTX)
    assert not made.state


def test_slots_are_paired_with_those_that_arrived_and_the_last_layer_moves_along(site):
    made = site(draw_rotation(8, "pair"))
    head, order = made.model.network.head, [1, 0, 3, 2, 5, 4]
    weight = head.weight.detach().clone()
    with torch.no_grad():
        head.vectors.copy_(head.vectors[order].clone())
        head.weight.copy_(head.weight[:, order].clone())
    TurnToPublic()(made, CTX)
    assert torch.allclose(head.vectors, made.down[VECTORS], atol=1e-4)
    assert torch.equal(head.weight, weight)
    assert torch.equal(match_slots(head.vectors.detach(), made.down[VECTORS], 3), torch.arange(6))


def test_a_site_that_trains_alone_turns_nothing(site):
    made = site()
    made.state.clear()
    before = made.model.network.head.vectors.detach().clone()
    assert TurnHome()(made, CTX) == {} == TurnToPublic()(made, CTX)
    assert torch.equal(made.model.network.head.vectors, before)


def test_the_pull_is_the_literal_distance_of_anchors_from_where_they_started(site):
    made = site(draw_rotation(8, "pull"))
    network = made.model.network
    pull = AnchorPull(made, 3.0)
    pull.x, pull.start = pull.x[:8], pull.start[:8]  # all in one step
    here = list_patches(network, pull.x).double()
    there = pull.start.flatten(0, 1).double()
    literal = 3.0 * sum(
        sum((a - b) ** 2 for a, b in zip(one.tolist(), other.tolist(), strict=True))
        for one, other in zip(here, there, strict=True)
    )
    assert math.isclose(
        float(pull.compute_loss(network).detach()), literal / len(here), rel_tol=1e-5
    )
    made.model.grads.zero_()
    pull(made.model)
    assert made.model.grads.abs().sum() > 0
    assert float(AnchorPull(site(), 3.0).compute_loss(site().model.network).detach()) < 1e-9
