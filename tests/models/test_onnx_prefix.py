"""Frozen stages in onnxruntime: the same features as PyTorch, whatever comes with an image."""

import copy

import pytest
import torch

from vitrail.config import parse
from vitrail.config.schema import Model
from vitrail.engine.resolve_config import resolve_config
from vitrail.errors import ConfigError
from vitrail.flower.versions import find_version_conflict, list_versions
from vitrail.models import BACKBONES
from vitrail.models.network import make_network
from vitrail.models.onnx_prefix import TOLERANCE
from vitrail.rng import derive_server_key

pytest.importorskip("onnxruntime")
OURS = sorted(n for n in BACKBONES if BACKBONES[n].__module__.startswith("vitrail."))
FROZEN = {"backbone": "resnet8", "width": 8, "frozen": True, "runtime": "onnx"}


def build(**model):
    return make_network(Model(**model), "linear", 3, 3, derive_server_key(1))[0]


@pytest.mark.parametrize("backbone", OURS)
def test_features_are_those_of_torch_and_do_not_depend_on_the_batch(backbone):
    network = build(backbone=backbone, frozen=True, runtime="onnx").eval()
    x = torch.randn(9, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    given, wanted = network.prefix(x), network.run_prefix_in_torch(x)
    assert given.shape == wanted.shape
    assert (given - wanted).abs().max() <= TOLERANCE * wanted.abs().max()
    assert torch.equal(network.prefix(x[8:]), given[8:])


def test_other_weights_and_a_damaged_file_are_noticed(own_cache):
    network = build(**FROZEN).eval()
    x = torch.randn(2, 3, 16, 16)
    first = network.prefix(x)
    (file,) = own_cache.glob("prefix-*.onnx")
    file.write_bytes(file.read_bytes()[:100])
    assert torch.equal(copy.deepcopy(network).prefix(x), first)
    with torch.no_grad():
        next(network.backbone.parameters()).mul_(2)
    torch.testing.assert_close(network.prefix(x), network.run_prefix_in_torch(x))
    assert not torch.allclose(network.prefix(x), first)


def test_auto_is_decided_once(tiny_config, monkeypatch, tmp_path):
    def resolve(**model):
        return resolve_config(parse(tiny_config(model=model), tmp_path)).model.runtime

    auto = {"frozen": True, "runtime": "auto"}
    assert resolve(**auto) == resolve(frozen=True) == "onnx"
    assert resolve(**auto, cache_features=False) == "onnx"
    assert resolve() == resolve(frozen=True, runtime="torch") == "torch"
    monkeypatch.setattr("vitrail.engine.resolve_config.find_missing_package", lambda: "onnx")
    assert resolve(**auto) == "torch"
    with pytest.raises(ConfigError, match="the package onnx is not installed"):
        resolve(frozen=True, runtime="onnx")


def test_a_site_without_the_runtime_refuses_in_one_sentence(monkeypatch):
    theirs = list_versions("onnx")
    assert theirs["runtime"].startswith("onnxruntime ")
    assert find_version_conflict(theirs, "onnx") is None
    monkeypatch.setattr("vitrail.models.onnx_prefix.find_missing_package", lambda: "onnxruntime")
    assert "not installed at this site" in find_version_conflict(theirs, "onnx")


def test_a_run_resumed_ends_with_the_same_bits(tiny, same_bits, tmp_path):
    import vitrail

    whole = tiny("whole", model=FROZEN)
    assert whole.card["runtime"].startswith("onnxruntime ")

    def stop(progress):
        if progress.round == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny("part", on_round=stop, model=FROZEN)
    vitrail.resume(tmp_path / "part")
    assert same_bits(whole.path, tmp_path / "part")
