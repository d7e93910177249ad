"""Which pixels are shared: masks to the pixel, filters, and each image by its own label."""

import numpy as np
import pytest
import torch

from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.data.partition.partition import SiteRows
from vitrail.errors import ConfigError, RunError
from vitrail.explain.attribution import Settings, attribute
from vitrail.local.inputs import Inputs
from vitrail.local.session import Site
from vitrail.local.sharing.choose_pixels import (
    SharingChoice,
    choose,
    compute_heatmaps,
    make_masks,
    scale_to_unit_length,
)
from vitrail.local.sharing.share_filters import (
    DETECTORS,
    EMBEDDINGS,
    embed_images,
    find_forbidden_pixels,
    make_box_mask,
)
from vitrail.local.sharing.shared_batches import SharedBatches, read_shared_images
from vitrail.models.flat import FlatModel, Region
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key

COUNT = 12


@pytest.fixture
def site():
    """A site of twelve random images of three classes, with a small network."""
    draw = derive_server_key(2).at("pixels").numpy()
    inputs = Inputs(
        images=draw.integers(0, 256, (COUNT, 16, 16, 3), dtype=np.uint8),
        labels=np.arange(COUNT) % 3,
        normalize=Normalize.from_name("half", 3),
    )
    network = make_network(
        Model(backbone="resnet8", width=8), "linear", 3, 3, derive_server_key(0)
    )[0]
    rows = SiteRows("a", np.arange(COUNT), np.empty(0, np.int64))
    return Site("a", rows, inputs, FlatModel(network), {}, derive_server_key(4), Region(()))


def literal_mask(heat, removed):
    """The pixels sorted one by one."""
    places = sorted(range(heat.numel()), key=lambda at: (-float(heat.flatten()[at]), at))
    keep = set(places[: round((1 - removed) * heat.numel())])
    return torch.tensor([float(at in keep) for at in range(heat.numel())]).view_as(heat)


@pytest.mark.parametrize("removed", [0.05, 0.5, 0.8, 0.85])
def test_a_mask_keeps_exactly_the_top_pixels(removed):
    heat = torch.randn(3, 6, 7, generator=derive_server_key(0).torch()).round(
        decimals=1
    )  # with ties
    found = make_masks(heat, removed)
    for one, map_ in zip(found, heat):
        assert torch.equal(one, literal_mask(map_, removed))


def test_an_embedding_must_give_a_row_an_image():
    images = torch.rand(3, 4, 4, 1)
    assert embed_images("pixels", images).shape == (3, 16)
    wrong = {"scalar": lambda x: x.mean(), "whole": lambda x: x.flatten(1).long()}
    right = {"numpy": lambda x: x.flatten(1).numpy()}
    for name, function in {**wrong, **right}.items():
        EMBEDDINGS.register(f"{name}-of-tests")(function)
    assert torch.equal(embed_images("numpy-of-tests", images), images.flatten(1))
    for name in wrong:
        with pytest.raises(ConfigError, match=rf"embedding '{name}-of-tests'.*\[3, D\]"):
            embed_images(f"{name}-of-tests", images)


def test_a_mask_of_nothing_or_of_a_constant():
    assert make_masks(torch.zeros(0, 4, 4), 0.8).shape == (0, 4, 4)
    found = make_masks(torch.zeros(1, 4, 4), 0.75)
    assert found.flatten()[:4].eq(1).all() and found.sum() == 4
    assert make_masks(torch.rand(1, 2, 2), 0.99).sum() == 1  # never nothing at all
    broken = torch.tensor([[[float("nan"), 1.0], [0.0, -1.0]]])
    assert make_masks(broken, 0.5)[0].tolist() == [[0, 1], [1, 0]]
    soft = make_masks(torch.zeros(1, 4, 4), 0.75, soft=True)
    assert soft.isfinite().all() and soft.max() == 1


def test_a_soft_mask_falls_off_within_the_kept_pixels():
    heat = torch.arange(16.0).view(1, 4, 4)
    found = make_masks(heat, 0.75, soft=True).flatten()
    assert found[:12].eq(0).all() and found[12:].tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])


@pytest.mark.parametrize("removed", [0.0, 1.0, -0.2, 80.0, float("nan")])
def test_all_or_nothing_is_refused(removed):
    with pytest.raises(ConfigError, match="cannot be removed"):
        make_masks(torch.zeros(1, 4, 4), removed)


def test_each_image_is_masked_by_its_own_label(site):
    found = choose(site, SharingChoice(removed=0.8), derive_server_key(9))
    x = site.inputs.normalize(site.inputs.images)
    for row in range(COUNT):
        label = torch.tensor([row % 3])
        one = x[row : row + 1]
        heat = attribute("lrp", site.model.network, one, label, Settings(start="logit"))
        torch.testing.assert_close(found.heat[row], heat[0], rtol=1e-3, atol=1e-6)
        raw = torch.from_numpy(site.inputs.images[row]) / 255
        kept = found.mask[row].bool()
        assert int(kept.sum()) == round(0.2 * 256)
        assert torch.equal(found.pixels[row][kept], raw[kept])
        assert found.pixels[row][~kept].eq(0).all()


def test_ranks_follow_the_sign_where_it_means_something(site):
    def heat(name, rank="auto"):
        choice = SharingChoice(attribution=name, rank=rank)
        return compute_heatmaps(site, np.arange(2), choice, derive_server_key(1))

    for name in ("gradient", "smoothgrad"):
        assert heat(name).min() >= 0
    for name in ("lrp", "integrated-gradients", "gradient-x-input"):
        assert heat(name).min() < 0
    assert heat("lrp", "absolute").min() >= 0 and heat("gradient", "signed").min() < 0


@pytest.mark.parametrize("source", ["class", "model"])
def test_masks_of_a_class_are_the_same_for_all_its_images(site, source):
    found = choose(site, SharingChoice(source=source), derive_server_key(9))
    for label in range(3):
        own = found.mask[found.labels == label]
        assert bool((own == own[0]).all())
    assert not torch.equal(found.mask[0], found.mask[1])


def test_a_mask_from_the_model_knows_nothing_of_the_images(site):
    before = choose(site, SharingChoice(source="model"), derive_server_key(9)).mask
    site.inputs.images[:] = 255 - site.inputs.images
    assert torch.equal(
        before, choose(site, SharingChoice(source="model"), derive_server_key(9)).mask
    )
    assert not torch.equal(choose(site, SharingChoice(), derive_server_key(9)).mask, before)


def test_what_is_never_shared_is_zero_whatever_the_heat(site):
    @DETECTORS.register("bright-corner")
    def bright(images):
        found = np.zeros(images.shape[:3], bool)
        found[:, -4:, -4:] = True
        return found

    choice = SharingChoice(removed=0.05, boxes=((0.0, 0.0, 0.5, 0.25),), detector="bright-corner")
    found = choose(site, choice, derive_server_key(9))
    assert found.pixels[:, :4, :8].eq(0).all() and found.pixels[:, -4:, -4:].eq(0).all()
    assert found.pixels[:, 4:12].sum() > 0

    @DETECTORS.register("wrong")
    def wrong(images):
        return images[0] > 3

    with pytest.raises(ConfigError, match=r"'wrong'.*not bool of shape"):
        find_forbidden_pixels(site.inputs.images, (), "wrong")


def test_a_box_is_made_of_the_pixels_whose_middle_it_holds():
    assert make_box_mask((0, 0, 1, 1), 3, 5).all()
    assert make_box_mask((0.5, 0, 1, 0.5), 4, 4).nonzero().tolist() == [
        [0, 2],
        [0, 3],
        [1, 2],
        [1, 3],
    ]
    with pytest.raises(ConfigError, match="holds no pixel"):
        make_box_mask((0.2, 0.2, 0.21, 0.21), 4, 4)


@pytest.mark.parametrize(("fraction", "count"), [(0.5, 6), (1.0, 12), (0.01, 1)])
def test_a_fraction_of_the_images_is_drawn_once_each(site, fraction, count):
    found = choose(site, SharingChoice(fraction=fraction), derive_server_key(9))
    assert len(found.rows) == count == len(set(found.rows.tolist()))
    assert found.labels.tolist() == (found.rows % 3).tolist()


def test_noise_on_the_heatmap_changes_masks_and_comes_from_the_key(site):
    plain = choose(site, SharingChoice(), derive_server_key(9)).mask
    one, again = (
        choose(site, SharingChoice(heat_noise=2.0), derive_server_key(9)).mask for _ in range(2)
    )
    assert torch.equal(one, again) and not torch.equal(one, plain)


def test_a_class_heatmap_with_a_budget_moves_by_two_at_most_and_gets_its_noise(site):
    """One image of a class is replaced: the sum of unit maps moves by 2 or less, others stay."""
    rows, key = np.arange(COUNT), derive_server_key(9)
    choice = SharingChoice(source="class", heat_sigma=1e-9)
    before = compute_heatmaps(site, rows, choice, key)
    site.inputs.images[0] = 255 - site.inputs.images[0]  # of class 0
    after = compute_heatmaps(site, rows, choice, key)
    moved = (after - before).double().flatten(1).norm(dim=1)
    assert 0 < float(moved[0]) <= 2 + 1e-5 and moved[1:3].eq(0).all()
    single = [compute_heatmaps(site, rows[at : at + 1], choice, key) for at in (0, 3, 6, 9)]
    assert all(float(one.double().norm()) == pytest.approx(1, abs=1e-5) for one in single)
    torch.testing.assert_close(after[0], sum(single)[0], rtol=1e-4, atol=1e-5)
    loud = compute_heatmaps(site, rows, SharingChoice(source="class", heat_sigma=50.0), key) - after
    assert float(loud.flatten(1)[:3].std()) == pytest.approx(50.0, rel=0.1)
    assert torch.equal(loud[0], loud[3]) and not torch.equal(loud[0], loud[1])


def test_a_map_of_zeros_or_of_no_numbers_has_no_say():
    heat = torch.stack([torch.zeros(2, 2), torch.full((2, 2), torch.nan), torch.eye(2)])
    found = scale_to_unit_length(heat)
    assert found[:2].eq(0).all() and float(found[2].norm()) == pytest.approx(1)


def test_shared_batches_go_in_cycles_through_all_images(site):
    pixels, targets = torch.rand(7, 16, 16, 3), torch.arange(7) % 3
    term = SharedBatches(site, pixels, targets, batch_size=3)
    seen = [row for _ in range(4) for row in _rows(term.next()[0], pixels, site)]
    assert sorted(seen[:7]) == list(range(7)) == sorted(seen[7:14]) and seen[:7] != seen[7:14]


def _rows(x, pixels, site):
    known = site.inputs.normalize(pixels * 255)
    return [int((known - one).abs().flatten(1).sum(1).argmin()) for one in x]


def test_the_loss_of_a_shared_batch_is_its_cross_entropy_times_the_weight(site):
    pixels, targets = torch.rand(4, 16, 16, 3), torch.tensor([0, 1, 2, 0])
    network = site.model.network.eval()
    with torch.no_grad():
        logits = network(site.inputs.normalize(pixels * 255))
        wanted = torch.nn.functional.cross_entropy(logits.double(), targets)
        found = SharedBatches(site, pixels, targets, 4, weight=0.5).loss(site.model)
    assert float(found) == pytest.approx(0.5 * float(wanted), rel=1e-4)


def test_a_shared_batch_adds_its_gradient_to_the_sites_own(site):
    pixels, targets = torch.rand(4, 16, 16, 3), torch.tensor([0, 1, 2, 0])
    with site.model.training(None):
        site.model.grads.fill_(2.0)
        batches = SharedBatches(site, pixels, targets, 4)
        batches(site.model)
        found = site.model.grads.clone()
        site.model.grads.zero_()
        x = site.inputs.normalize(pixels * 255)
        logits = site.model.network.rest(x)["logits"]
        torch.nn.functional.cross_entropy(logits, targets).backward()
        torch.testing.assert_close(found, site.model.grads + 2.0, rtol=1e-4, atol=1e-6)
    assert float((found - 2.0).abs().sum()) > 0


@pytest.mark.parametrize("statistics", [True, False])
def test_running_statistics_see_shared_images_or_not(site, statistics):
    network = site.model.network.train()
    before = network.backbone.bn1.running_mean.clone()
    pixels, targets = torch.rand(4, 16, 16, 3), torch.tensor([0, 1, 2, 0])
    SharedBatches(site, pixels, targets, 4, statistics=statistics).loss(site.model)
    assert torch.equal(before, network.backbone.bn1.running_mean) != statistics


def test_shared_images_of_another_size_are_refused(site):
    with pytest.raises(RunError, match="one image_size"):
        SharedBatches(site, torch.rand(4, 8, 8, 3), torch.zeros(4).long(), 4)


def test_without_an_asset_there_is_nothing_to_train_on(site):
    assert [len(part) for part in read_shared_images(site, "images")] == [0, 0]
