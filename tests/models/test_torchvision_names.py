"""Tensor names, shapes and counts as torchvision has them, written out independently here."""

import pytest

from vitrail.models.build import build, build_backbone


def batch_norm(name, channels):
    leaves = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (channels,))
    return {
        f"{name}.{leaf}": shape for leaf, shape in (leaves | {"num_batches_tracked": ()}).items()
    }


def linear(name, inputs, classes=1000):
    return {f"{name}.weight": (classes, inputs), f"{name}.bias": (classes,)}


def resnet18_tensors():
    names = {"conv1.weight": (64, 3, 7, 7)} | batch_norm("bn1", 64)
    for layer, block, before, after in [
        ("layer1", 0, 64, 64),
        ("layer1", 1, 64, 64),
        ("layer2", 0, 64, 128),
        ("layer2", 1, 128, 128),
        ("layer3", 0, 128, 256),
        ("layer3", 1, 256, 256),
        ("layer4", 0, 256, 512),
        ("layer4", 1, 512, 512),
    ]:
        at = f"{layer}.{block}"
        names |= {f"{at}.conv1.weight": (after, before, 3, 3)} | batch_norm(f"{at}.bn1", after)
        names |= {f"{at}.conv2.weight": (after, after, 3, 3)} | batch_norm(f"{at}.bn2", after)
        if before != after:
            names |= {f"{at}.downsample.0.weight": (after, before, 1, 1)}
            names |= batch_norm(f"{at}.downsample.1", after)
    return names | linear("fc", 512)


def resnet50_tensors():
    names = {"conv1.weight": (64, 3, 7, 7)} | batch_norm("bn1", 64)
    before = 64
    for layer, depth, width in [(1, 3, 64), (2, 4, 128), (3, 6, 256), (4, 3, 512)]:
        for block in range(depth):
            at = f"layer{layer}.{block}"
            names |= {f"{at}.conv1.weight": (width, before, 1, 1)}
            names |= {f"{at}.conv2.weight": (width, width, 3, 3)}
            names |= {f"{at}.conv3.weight": (4 * width, width, 1, 1)}
            names |= batch_norm(f"{at}.bn1", width) | batch_norm(f"{at}.bn2", width)
            names |= batch_norm(f"{at}.bn3", 4 * width)
            if block == 0:
                names |= {f"{at}.downsample.0.weight": (4 * width, before, 1, 1)}
                names |= batch_norm(f"{at}.downsample.1", 4 * width)
            before = 4 * width
    return names | linear("fc", 2048)


def densenet121_tensors():
    names = {"features.conv0.weight": (64, 3, 7, 7)} | batch_norm("features.norm0", 64)
    for block, depth, before in [(1, 6, 64), (2, 12, 128), (3, 24, 256), (4, 16, 512)]:
        for layer in range(1, depth + 1):
            at = f"features.denseblock{block}.denselayer{layer}"
            channels = before + 32 * (layer - 1)
            names |= batch_norm(f"{at}.norm1", channels) | batch_norm(f"{at}.norm2", 128)
            names |= {f"{at}.conv1.weight": (128, channels, 1, 1)}
            names |= {f"{at}.conv2.weight": (32, 128, 3, 3)}
    for i, channels in [(1, 256), (2, 512), (3, 1024)]:
        names |= batch_norm(f"features.transition{i}.norm", channels)
        names |= {f"features.transition{i}.conv.weight": (channels // 2, channels, 1, 1)}
    return names | batch_norm("features.norm5", 1024) | linear("classifier", 1024)


VGG19 = [
    (0, 64, 3),
    (2, 64, 64),
    (5, 128, 64),
    (7, 128, 128),
    (10, 256, 128),
    (12, 256, 256),
    (14, 256, 256),
    (16, 256, 256),
    (19, 512, 256),
    (21, 512, 512),
    (23, 512, 512),
    (25, 512, 512),
    (28, 512, 512),
    (30, 512, 512),
    (32, 512, 512),
    (34, 512, 512),
]


def vgg19_tensors():
    names = {}
    for index, after, before in VGG19:
        names |= {f"features.{index}.weight": (after, before, 3, 3)}
        names |= {f"features.{index}.bias": (after,)}
    return names | linear("classifier", 512)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", resnet18_tensors()),
        ("resnet50", resnet50_tensors()),
        ("densenet121", densenet121_tensors()),
        ("vgg19", vgg19_tensors()),
    ],
)
def test_names_and_shapes(name, expected):
    tensors = {k: tuple(v.shape) for k, v in build(name, 1000).state_dict().items()}
    assert tensors == expected


@pytest.mark.parametrize(
    ("name", "published"),
    [("resnet18", 11_689_512), ("resnet50", 25_557_032), ("densenet121", 7_978_856)],
)
def test_parameter_counts_with_a_thousand_classes(name, published):
    assert sum(p.numel() for p in build(name, 1000).parameters()) == published


def test_parameter_count_of_the_vgg19_features():
    assert sum(p.numel() for p in build_backbone("vgg19").parameters()) == 20_024_384


@pytest.mark.parametrize(
    ("name", "strides"),
    [("resnet18", {"layer2.0.conv1": 2}), ("resnet50", {"layer2.0.conv1": 1, "layer2.0.conv2": 2})],
)
def test_strides_sit_where_torchvision_has_them(name, strides):
    """The same tensors fit the older ResNet50 with its stride in the 1x1, and give other maps."""
    net = build_backbone(name)
    for layer, stride in strides.items():
        assert net.get_submodule(layer).stride == (stride, stride)
    assert net.layer2[0].downsample[0].stride == (2, 2)
