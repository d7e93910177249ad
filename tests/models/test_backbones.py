"""One table of demands over every backbone."""

import copy
import math

import pytest
import torch
from torch import nn

from vitrail import rng
from vitrail.errors import ConfigError, DataError
from vitrail.models.backbone import BACKBONES
from vitrail.models.backbones import LeNet, uniform_
from vitrail.models.backbones.layers import Concat, SamePad, Sum
from vitrail.models.build import build, build_backbone

# name: (a small width, channels of its map at that width, image side / map side, sums, concats)
TABLE = {
    "small-cnn": (8, 16, 8, 0, 0),
    "lenet": (6, 6, 4, 0, 0),
    "resnet8": (8, 64, 8, 4, 0),
    "resnet18": (8, 64, 32, 8, 0),
    "resnet50": (8, 256, 32, 16, 0),
    "densenet121": (8, 128, 32, 0, 58),
    "vgg19": (8, 64, 32, 0, 0),
    "efficientnet-lite0": (8, 320, 32, 10, 0),  # 9, and one where rounding makes 8 equal 8
}
DEFAULT_FIRST = {
    "small-cnn": 32,
    "lenet": 12,
    "resnet8": 16,
    "resnet18": 64,
    "resnet50": 64,
    "densenet121": 64,
    "vgg19": 64,
    "efficientnet-lite0": 32,
}
KEY = rng.derive_server_key(3)
every = pytest.mark.parametrize("name", TABLE)


def small(name, in_channels=3, norm="batch", key=KEY):
    return build_backbone(name, in_channels, TABLE[name][0], norm, key)


def images(size=64, channels=3, count=2):
    return torch.randn(count, channels, size, size, generator=KEY.at("images", size).torch())


def randomize_statistics(net):
    """Statistics as after training, so that evaluation mode is no identity."""
    generator = KEY.at("statistics").torch()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 2.0, generator=generator)


def leaves(net):
    return [(k, m) for k, m in net.named_modules() if not list(m.children())]


def test_the_table_is_complete():
    # another test may have plugged one in: only what ships counts
    shipped = {n for n in BACKBONES if BACKBONES[n].__module__.startswith("vitrail.")}
    assert set(TABLE) == shipped == set(DEFAULT_FIRST)


@every
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [32, 64, 224])
def test_map_has_the_promised_shape(name, size, channels):
    _, depth, shrink, _, _ = TABLE[name]
    net = small(name, channels).eval()
    side = math.ceil(size / shrink)
    with torch.no_grad():
        z = net(images(size, channels, count=1))
    assert z.shape == (1, depth, side, side)
    assert net.channels == depth
    assert torch.isfinite(z).all()


@every
def test_images_need_not_be_square_and_a_batch_may_be_empty(name):
    net = small(name).eval()
    shrink = TABLE[name][2]
    with torch.no_grad():
        assert net(torch.zeros(1, 3, 64, 96)).shape[2:] == (64 // shrink, 96 // shrink)
        assert net(torch.zeros(0, 3, 64, 64)).shape[0] == 0


@every
def test_width_is_the_channels_of_the_first_convolution(name):
    def first(net):
        return next(m for m in net.modules() if isinstance(m, nn.Conv2d)).out_channels

    assert first(build_backbone(name)) == DEFAULT_FIRST[name]
    assert first(build_backbone(name, width=10)) == 10
    for width in (0, -1):
        with pytest.raises(ConfigError, match=r"model\.width"):
            build_backbone(name, width=width)


@every
def test_smallest_width_runs(name):
    net = build_backbone(name, 1, 2 if name == "densenet121" else 1).eval()
    assert torch.isfinite(net(images(32, 1))).all()


def test_densenet_without_growth_is_refused():
    with pytest.raises(ConfigError, match="2 or more"):
        build_backbone("densenet121", width=1)


@every
def test_group_norm_leaves_no_batch_norm_and_no_statistics(name):
    net = small(name, norm="group")
    assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    assert not list(net.buffers())
    plain = name in ("small-cnn", "lenet", "vgg19")
    assert any(isinstance(m, nn.GroupNorm) for m in net.modules()) != plain
    assert {k for k, _ in net.named_parameters()} == {k for k, _ in small(name).named_parameters()}
    x = images(64)
    alone = net(x[:1])
    torch.testing.assert_close(net(x)[:1], alone, atol=1e-4, rtol=1e-4)


@every
def test_stages_compose_to_features(name):
    net = small(name).eval()
    randomize_statistics(net)
    x = z = images(64)
    for _, step in net.stages():
        z = step(z)
    assert torch.equal(z, net.features(x))
    assert torch.equal(z, net(x))


@every
def test_every_tensor_belongs_to_the_stage_in_which_its_layer_runs(name):
    net = small(name).eval()
    names = [stage for stage, _ in net.stages()]
    assert len(set(names)) == len(names)
    seen, ran = [], {}
    for key, module in leaves(net):
        module.register_forward_hook(lambda *_, key=key: seen.append(key))
    z = images(64)
    for stage, step in net.stages():
        seen.clear()
        z = step(z)
        ran |= dict.fromkeys(seen, stage)
    for tensor in net.state_dict():
        assert net.stage_of(tensor) == ran[tensor.rpartition(".")[0]], tensor
    for module, stage in ran.items():
        assert net.stage_of(module) == stage, module
    assert set(ran.values()) == set(names)


@every
def test_every_layer_runs_once_and_never_in_place(name):
    """Relevance propagation hooks layers: a shared or an in-place one would be seen wrongly."""
    net = small(name).with_classifier(3).eval()
    calls = dict.fromkeys((k for k, _ in leaves(net)), 0)

    def count(key):
        def hook(*_):
            calls[key] += 1

        return hook

    for key, module in leaves(net):
        assert not getattr(module, "inplace", False), key
        module.register_forward_hook(count(key))
    net(images(32))
    assert set(calls.values()) == {1}, {k: n for k, n in calls.items() if n != 1}
    kinds = [type(m) for m in net.modules()]
    assert (kinds.count(Sum), kinds.count(Concat)) == TABLE[name][3:]


@every
def test_every_parameter_gets_a_gradient(name):
    net = small(name).with_classifier(3).train()
    net(images(32, count=3)).square().sum().backward()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), key


@every
def test_channels_last_changes_nothing(name):
    net = small(name).with_classifier(5).eval()
    randomize_statistics(net)
    x = images(32)
    expected = net(x)
    torch.testing.assert_close(
        net(x.contiguous(memory_format=torch.channels_last)), expected, atol=1e-4, rtol=1e-4
    )


@every
def test_copies_names_and_functional_calls_work(name):
    """`features` is a child and a method in some families: all ways to reach it must agree."""
    net = small(name).eval()
    x = images(32)
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert net(x).abs().sum() > 0
    assert not torch.equal(net(x), twin(x))
    for key, parameter in net.named_parameters():
        assert net.get_parameter(key) is parameter
    doubled = {k: 2 * p.detach() for k, p in net.named_parameters()}
    called = torch.func.functional_call(net, doubled, (x,))
    assert not torch.equal(called, net(x))


@every
def test_same_key_same_bits_and_the_global_generator_is_left_alone(name):
    width = TABLE[name][0]
    before = torch.get_rng_state()
    one, two = (build(name, 4, width=width, key=KEY).state_dict() for _ in range(2))
    other = build(name, 4, width=width, key=KEY.at("other")).state_dict()
    wider = build(name, 9, width=width, key=KEY)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, two[key]) for key, value in one.items())
    assert any(not torch.equal(value, other[key]) for key, value in one.items())
    for key, value in wider.state_dict().items():
        assert key.startswith(f"{wider.linear_name}.") or torch.equal(value, one[key])


@every
def test_classifier_gives_logits_under_the_familys_name(name):
    net = build(name, 7, width=TABLE[name][0], key=KEY).eval()
    x = images(32)
    linear = getattr(net, net.linear_name)
    z = net.features(x)
    pooled = z.flatten(1) if name == "lenet" else z.mean((2, 3))
    torch.testing.assert_close(net(x), pooled @ linear.weight.T + linear.bias, atol=1e-5, rtol=1e-4)
    expected = {"densenet121": "classifier", "vgg19": "classifier", "efficientnet-lite0": "_fc"}
    assert net.linear_name == expected.get(name, "fc")
    assert net.stage_of(f"{net.linear_name}.weight") not in {stage for stage, _ in net.stages()}


@every
def test_initial_activations_neither_vanish_nor_explode(name):
    z = small(name, norm="group")(images(64))
    assert 1e-3 < z.std() < 1e3


@pytest.mark.parametrize(("name", "size"), [("small-cnn", 8), ("densenet121", 29), ("vgg19", 32)])
def test_images_too_small_are_refused_in_a_sentence(name, size):
    net = small(name).eval()
    assert net(images(size)).shape[2:] == (1, 1)
    with pytest.raises(DataError, match=f"at least {size}"):
        net(images(size - 1))
    with pytest.raises(DataError, match=f"at least {size}"):
        net.stages()[0][1](torch.zeros(1, 3, 224, size - 1))


def test_unknown_names_and_impossible_numbers_are_refused():
    with pytest.raises(ConfigError, match="Did you mean 'resnet18'"):
        build("resnet-18", 10)
    with pytest.raises(ConfigError, match="at least one class"):
        build("lenet", 0)
    with pytest.raises(ConfigError, match="at least one channel"):
        build("lenet", 2, in_channels=0)


@pytest.mark.parametrize(("size", "inputs"), [(32, 768), (28, 588), (30, 768)])
def test_lenet_flattens_its_map(size, inputs):
    net = LeNet(1, 12).with_classifier(10, size)
    assert net.fc.in_features == inputs
    assert net(images(size, 1)).shape == (2, 10)


def test_lenet_of_another_image_size_is_refused():
    with pytest.raises(DataError, match="28 x 28"):
        build("lenet", 10, in_channels=1)(images(28, 1))


def test_uniform_start_is_within_its_bound_and_repeatable():
    one, two = (LeNet(3, 12).with_classifier(10) for _ in range(2))
    uniform_(one, 0.5, KEY.torch())
    uniform_(two, 0.5, KEY.torch())
    values = torch.cat([p.detach().flatten() for p in one.parameters()])
    assert torch.equal(values, torch.cat([p.detach().flatten() for p in two.parameters()]))
    assert values.abs().max() <= 0.5
    assert abs(float(values.var()) - 1 / 12) < 5e-3


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 15, 112])
def test_same_padding_is_tensorflows(kernel, size):
    """TensorFlow: ceil(size / stride) outputs; the smaller half of the padding comes first."""
    out = math.ceil(size / 2)
    total = max((out - 1) * 2 + kernel - size, 0)
    padded = SamePad(kernel, 2)(torch.ones(1, 1, size, size))
    row = padded[0, 0].amax(0)
    assert row.tolist() == [0.0] * (total // 2) + [1.0] * size + [0.0] * (total - total // 2)
    assert nn.functional.conv2d(padded, torch.ones(1, 1, kernel, kernel), stride=2).shape[2] == out
