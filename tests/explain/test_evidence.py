"""Evidence adds up, boxes lie where they are said to, and nonsense is refused in a sentence."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from vitrail.config.schema import Model
from vitrail.data.decoding.resize import resize_image
from vitrail.errors import ConfigError, RunError
from vitrail.explain.evidence import compute_evidence, to_json, to_original
from vitrail.models.heads.head import HEADS
from vitrail.models.heads.part_head import PartHead, Piece
from vitrail.rng import derive_server_key

CLASSES = ("plain", "crested", "barred")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("frozen", [False, True])
def test_contributions_add_up_to_the_networks_own_logit(network, picture, seed, frozen):
    net = network(seed=seed, frozen=frozen)
    draw = derive_server_key(seed).at("weights").torch()
    net.head.weight.data.copy_(3 * torch.randn(net.head.weight.shape, generator=draw))
    net.head.mask.copy_((torch.rand(12, generator=draw) < 0.7).float())
    x = picture(seed=seed)
    for top in (1, 5, 100):
        found = to_json(compute_evidence(net, x, [2, 0], CLASSES, top=top))
        assert [one["class"] for one in found] == ["barred", "plain"]
        for one, logit in zip(found, net(x)[0, [2, 0]].tolist()):
            rows = one["contributions"]
            assert sum(row["contribution"] for row in rows) == pytest.approx(one["logit"], abs=1e-4)
            assert one["logit"] == pytest.approx(logit, abs=1e-4)
            assert rows[-1]["part"] == "other" and rows[-1]["box"] is None
            listed = rows[:-1]
            assert len(listed) == min(top, int(net.head.alive().sum()))
            sizes = [abs(row["contribution"]) for row in listed]
            assert sizes == sorted(sizes, reverse=True)
            for row in listed:
                assert row["score"] * row["weight"] == pytest.approx(row["contribution"])
                x0, y0, x1, y1 = row["box"]
                assert 0 <= x0 < x1 <= 32 and 0 <= y0 < y1 <= 32


PART_HEADS = [
    name for name, build in HEADS.items() if isinstance(build(4, 2, Model())[1], PartHead)
]


@pytest.mark.parametrize("head", PART_HEADS)
def test_every_head_with_parts_adds_up_and_has_places(network, picture, head):
    net, x = network(head), picture(seed=4)
    logits = net(x)[0].tolist()
    for one in compute_evidence(net, x, [0, 1, 2], CLASSES, top=3):
        total = sum(row.contribution for row in one.contributions)
        assert total == pytest.approx(one.logit, abs=1e-4)
        assert one.logit == pytest.approx(logits[one.label], abs=1e-4)
        assert any(row.box is not None and row.map is not None for row in one.contributions)


class Patchy(PartHead):
    """Two patches of one unit, on one map, and a pull."""

    def __init__(self):
        super().__init__()
        self.owner = torch.zeros(1, dtype=torch.int64)

    def forward(self, z):
        return {"logits": z.new_tensor([[4.0, 4.0, 4.0]])}

    def pieces(self, z, label):
        map_ = torch.arange(12.0).view(3, 4)
        return [
            Piece("patch 1", 3.0, 1.0, 3.0, 0, 0, map_, (2, 3)),
            Piece("patch 2", 2.0, 1.0, 2.0, 0, 0, map_, (0, 1)),
            Piece("pull of class 1", 1.0, -1.0, -1.0, 1, 1),
        ]


def test_patches_that_share_a_map_have_places_of_their_own(network, picture):
    net = network()
    net.head = Patchy()
    (one,) = compute_evidence(net, picture(), [0], CLASSES)
    parts = [row.part for row in one.contributions]
    assert parts == [
        "patch 1 of class plain",
        "patch 2 of class plain",
        "pull of class crested",
        "other",
    ]
    boxes = [row.box for row in one.contributions]
    assert boxes == [(24, 21, 32, 32), (8, 0, 16, 11), None, None]


def test_masked_prototypes_are_nowhere_and_none_left_is_a_logit_of_zero(network, picture):
    net = network()
    net.head.mask.zero_()
    (one,) = compute_evidence(net, picture()[0], [1], CLASSES)
    assert one.logit == 0 and [row.part for row in one.contributions] == ["other"]
    assert one.contributions[0].units == 0


def test_the_form_is_that_of_the_design_and_is_json(network, picture):
    found = json.loads(
        json.dumps(to_json(compute_evidence(network(), picture(), [1], CLASSES, top=2)))
    )
    assert set(found[0]) == {"class", "logit", "contributions"}
    row = found[0]["contributions"][0]
    assert {"contribution", "score", "weight", "box", "part"} <= set(row)
    owner = CLASSES[row["unit"] // 4]
    assert row["part"] == f"prototype {row['unit']} of class {owner}"


@pytest.mark.parametrize("mode", ["crop", "stretch", "pad"])
@pytest.mark.parametrize(("width", "height"), [(90, 40), (40, 90), (200, 200), (10, 31)])
def test_a_box_of_the_square_comes_back_to_the_same_pixels(mode, width, height):
    """Paint a rectangle in the original, find it in the square, and map it back."""
    square = (12, 14, 20, 18)
    back = to_original(square, (32, 32), (height, width), mode)
    if back is None:
        assert mode == "pad"
        return
    x0, y0, x1, y1 = back
    assert 0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height
    pixels = np.zeros((height, width), np.uint8)
    pixels[y0:y1, x0:x1] = 255
    seen = np.asarray(resize_image(Image.fromarray(pixels), 32, mode))
    assert seen[14:18, 12:20].min() > 120  # what was asked for is covered
    # one pixel of the original is several of the square where it was enlarged
    grow = int(np.ceil(32 / min(width, height))) + 1
    far = np.ones((32, 32), bool)
    far[14 - grow : 18 + grow, 12 - grow : 20 + grow] = False
    assert not seen[far].any()


def test_a_box_in_the_padding_has_no_place_in_the_original():
    assert to_original((0, 0, 32, 5), (32, 32), (20, 80), "pad") is None
    assert to_original((0, 0, 32, 32), (32, 32), (20, 80), "pad") == (0, 0, 80, 20)


def test_a_model_without_parts_is_refused_in_a_sentence(network, picture):
    with pytest.raises(ConfigError, match="no parts"):
        compute_evidence(network(head="linear"), picture(), [0], CLASSES)


@pytest.mark.parametrize("top", [0, -1])
def test_nothing_to_list_is_refused(network, picture, top):
    with pytest.raises(ConfigError, match="top"):
        compute_evidence(network(), picture(), [0], CLASSES, top=top)


def test_two_images_are_refused(network, picture):
    with pytest.raises(ConfigError, match="one image"):
        compute_evidence(network(), picture(2), [0], CLASSES)


def test_a_diverged_model_is_named_as_such(network, picture):
    net = network()
    net.head.weight.data[0, 0] = torch.nan
    with pytest.raises(RunError, match="finite"):
        compute_evidence(net, picture(), [0], CLASSES)


class Liar(PartHead):
    """A head whose pieces are not its logit."""

    def __init__(self):
        super().__init__()
        self.owner = torch.zeros(1, dtype=torch.int64)

    def forward(self, z):
        return {"logits": z.sum((1, 2, 3))[:, None] * 0 + 5.0}

    def pieces(self, z, label):
        return [Piece("pull", 1.0, 1.0, 1.0)]


def test_a_head_whose_pieces_do_not_add_up_is_found_out(network, picture):
    net = network()
    net.head = Liar()
    with pytest.raises(RunError, match=r"add up to 1, its logit is 5"):
        compute_evidence(net, picture(), [0], CLASSES)
