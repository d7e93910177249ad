"""Attributions against their formulas, against each other, and against what they leave behind."""

import copy

import numpy as np
import pytest
import torch

from vitrail.config.schema import Model
from vitrail.errors import ConfigError, DataError
from vitrail.explain.attribution import (
    ATTRIBUTIONS,
    Settings,
    attribute,
    compute_last_map,
    compute_logits_from_map,
)
from vitrail.models import build
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key, seed_torch

TARGETS = torch.tensor([0, 2, 1])


def slope(net, x, targets):
    """d logit / d image by autograd, one image at a time."""
    found = []
    for image, target in zip(x, targets):
        image = image[None].clone().requires_grad_()
        found.append(torch.autograd.grad(net(image)[0, target], image)[0])
    return torch.cat(found)


def reference(net, x, name, settings=None):
    """The same maps by their formulas, written out in float64, channels summed."""
    settings = settings or Settings()
    net, x = copy.deepcopy(net).double(), x.double()
    if name == "gradient":
        return slope(net, x, TARGETS).sum(1)
    if name == "gradient-x-input":
        return (slope(net, x, TARGETS) * x).sum(1)
    if name == "integrated-gradients":
        points, weights = np.polynomial.legendre.leggauss(settings.steps)
        total = torch.zeros_like(x)
        for point, weight in zip((points + 1) / 2, weights / 2):
            total += weight * slope(
                net, settings.baseline + point * (x - settings.baseline), TARGETS
            )
        return (total * (x - settings.baseline)).sum(1)
    if name == "smoothgrad":
        maps = []
        for row, (image, target) in enumerate(zip(x, TARGETS)):
            spread = settings.noise * float(image.max() - image.min())
            with seed_torch(settings.key.at("image", row)):
                noise = torch.normal(0.0, torch.full((settings.samples, *image.shape), spread))
            copies = image + noise.double()
            maps.append(slope(net, copies, target.repeat(settings.samples)).mean(0).sum(0))
        return torch.stack(maps)
    assert name == "grad-cam"
    z = compute_last_map(net, x).detach().requires_grad_()
    chosen = compute_logits_from_map(net, z).gather(1, TARGETS[:, None]).sum()
    weights = torch.autograd.grad(chosen, z)[0].mean((2, 3), keepdim=True)
    cam = (weights * z).sum(1, keepdim=True).clamp_min(0)
    return torch.nn.functional.interpolate(cam, x.shape[2:], mode="bilinear")[:, 0]


@pytest.mark.parametrize("head", ["linear", "protopnet"])
@pytest.mark.parametrize(
    "name", ["gradient", "gradient-x-input", "smoothgrad", "integrated-gradients", "grad-cam"]
)
def test_maps_are_those_of_the_formulas(network, picture, head, name):
    net, x = network(head), picture(3)
    found = attribute(name, net, x, TARGETS)
    assert found.shape == (3, 32, 32) and found.abs().sum() > 0
    wanted = reference(net, x, name).detach().float()
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


def test_the_gradient_is_a_difference_quotient(network, picture):
    net, x = network().double(), picture(1).double()
    found = attribute("gradient", net, x, torch.tensor([1]))
    step = torch.zeros_like(x)
    step[0, :, 9, 17] = 1e-6
    with torch.no_grad():
        slope = (net(x + step) - net(x - step))[0, 1] / 2e-6
    assert float(found[0, 9, 17]) == pytest.approx(float(slope), rel=1e-4, abs=1e-9)


def test_integrated_gradients_add_up_to_the_difference_of_logits(network, picture):
    net, x = network("linear"), picture(3)
    maps = attribute("integrated-gradients", net, x, TARGETS, Settings(steps=200, baseline=0.3))
    with torch.no_grad():
        change = (net(x) - net(torch.full_like(x, 0.3))).gather(1, TARGETS[:, None])[:, 0]
    torch.testing.assert_close(maps.sum((1, 2)), change, rtol=0.02, atol=2e-3)


def test_smoothgrad_without_noise_is_the_gradient_and_repeats_itself(network, picture):
    net, x = network(), picture(3)
    plain = attribute("gradient", net, x, TARGETS)
    still = attribute("smoothgrad", net, x, TARGETS, Settings(noise=0.0, samples=2))
    torch.testing.assert_close(still, plain)
    one, again = (attribute("smoothgrad", net, x, TARGETS) for _ in range(2))
    other = attribute("smoothgrad", net, x, TARGETS, Settings(key=derive_server_key(9)))
    assert torch.equal(one, again) and not torch.allclose(one, other)


@pytest.mark.parametrize("name", sorted(ATTRIBUTIONS))
@pytest.mark.parametrize("backbone", ["small-cnn", "resnet8"])
def test_frozen_stages_change_nothing(network, picture, name, backbone):
    x = picture(3)
    settings = Settings(steps=3, samples=2)
    maps = [
        attribute(name, network("linear", frozen=frozen, backbone=backbone), x, TARGETS, settings)
        for frozen in (False, True)
    ]
    assert maps[0].abs().sum() > 0 and torch.equal(*maps)


@pytest.mark.parametrize("name", sorted(ATTRIBUTIONS))
def test_chunks_do_not_matter_and_nothing_is_left_on_the_model(network, picture, name):
    net, x = network("linear", backbone="resnet8").train(), picture(3)
    net.neck.eval()
    before = copy.deepcopy(net.state_dict())
    modes = [module.training for module in net.modules()]
    settings = Settings(steps=3, samples=2)
    with torch.inference_mode():
        whole = attribute(name, net, x, TARGETS, settings)
    parts = attribute(name, net, x, TARGETS, settings, chunk=1)
    torch.testing.assert_close(whole.clone(), parts, rtol=1e-4, atol=1e-6)
    assert not parts.requires_grad and not x.requires_grad
    assert modes == [module.training for module in net.modules()]
    assert all(torch.equal(before[n], t) for n, t in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert not any(m._forward_hooks or m._backward_hooks for m in net.modules())


def test_no_image_at_all(network, picture):
    none = torch.zeros(0, dtype=torch.int64)
    assert attribute("grad-cam", network(), picture(0), none).shape == (0, 32, 32)


def test_the_last_map_is_what_the_network_computes(network, picture):
    net = network(frozen=True)
    z = compute_last_map(net, picture())
    torch.testing.assert_close(net.head(net.neck(z))["logits"], net(picture()))


def test_an_unknown_name_is_refused_in_a_sentence(network, picture):
    with pytest.raises(ConfigError, match="grad-cam"):
        attribute("gradcam", network(), picture(), torch.tensor([0]))


@pytest.mark.parametrize("name", sorted(ATTRIBUTIONS))
def test_a_plain_classifier_is_attributed_like_a_network(network, picture, name):
    net, x = network("linear", backbone="resnet8"), picture(3)
    plain = build("resnet8", 3, width=8).eval()
    plain.load_state_dict(
        {**net.backbone.state_dict(), "fc.weight": net.head.weight, "fc.bias": net.head.bias}
    )
    settings = Settings(steps=3, samples=2)
    found, wanted = (attribute(name, model, x, TARGETS, settings) for model in (plain, net))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["gradient", "grad-cam", "lrp"])
def test_stages_that_are_not_used_take_no_part(picture, name):
    model = Model(backbone="resnet8", width=8, until="layer2")
    net = make_network(model, "linear", 3, 3, derive_server_key(0))[0].eval()
    x = picture(3)
    found = attribute(name, net, x, TARGETS)
    if name == "gradient":
        wanted = reference(net, x, name).detach().float()
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    assert found.abs().sum() > 0


def test_images_and_classes_must_fit(network, picture):
    with pytest.raises(DataError, match="a class for each"):
        attribute("gradient", network(), picture(2), torch.tensor([0]))
