import json
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.errors import ConfigError, RunError
from vitrail.models import BACKBONES
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.runs import onnx_export as onnx_module
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.export_model import export, load_exported, read_last_metrics
from vitrail.runs.onnx_export import make_onnx

CONFIG = {
    "data": {"image_size": 24, "aviary": {"images": 60, "classes": 3}},
    "partition": {"sites": 2},
    "model": {"backbone": "resnet8", "width": 8},
    "run": {"rounds": 2, "batch_size": 16},
}
IMAGES = torch.rand(3, 3, 24, 24, generator=torch.Generator().manual_seed(5))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return vitrail.run(CONFIG, tmp_path_factory.mktemp("runs") / "fedavg")


def test_the_exported_model_needs_no_run_folder(run, tmp_path):
    wanted = run.model()(IMAGES)
    file, card = export(run, tmp_path / "model.safetensors")
    found = load_exported(file)
    assert torch.equal(found(IMAGES), wanted)
    bytes_ = (IMAGES * 255).round().to(torch.uint8)
    assert torch.equal(found(bytes_), run.model()(bytes_))
    assert found.classes == run.classes and found.image_size == 24
    assert card == tmp_path / "model.json"


def test_the_card_says_what_a_stranger_must_know(run, tmp_path):
    _, file = export(run, tmp_path / "model.safetensors")
    card = json.loads(file.read_text())
    assert card["classes"] == list(run.classes)
    assert card["input"]["shape"] == ["N", 3, 24, 24]
    assert card["method"] == {"name": "fedavg"}
    assert card["round"] == 2 and card["finished"] is True
    assert card["metrics"]["accuracy"] == pytest.approx(run.curve("accuracy")[-1][1])
    assert card["versions"]["vitrail"] == vitrail.__version__
    assert "random" in card["start_weights"]["source"]
    assert str(tmp_path) not in file.read_text()
    assert card["intended_use"].startswith("to be filled in")


def test_a_site_s_own_model_and_figures(tmp_path):
    run = vitrail.run({**CONFIG, "method": {"name": "fedper"}}, tmp_path / "run")
    with pytest.raises(RunError, match="no global model"):
        export(run, tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()
    file, card = export(run, tmp_path / "model.safetensors", site="site-01")
    assert torch.equal(load_exported(file)(IMAGES), run.model("site-01")(IMAGES))
    rows = [r for r in run.rows() if r["site"] == "site-01" and r.get("accuracy") is not None]
    assert json.loads(card.read_text())["metrics"]["accuracy"] == rows[-1]["accuracy"]
    assert read_last_metrics(run, "nobody") == {}


def test_nothing_is_overwritten_without_force(run, tmp_path):
    (tmp_path / "model.json").write_text("mine")
    with pytest.raises(RunError, match="exists"):
        export(run, tmp_path / "model.safetensors")
    assert (tmp_path / "model.json").read_text() == "mine"
    assert not (tmp_path / "model.safetensors").exists()
    export(run, tmp_path / "model.safetensors", force=True)
    assert load_exported(tmp_path / "model.safetensors").classes == run.classes


def test_hostile_and_torn_exports_are_sentences(run, tmp_path):
    file, card = export(run, tmp_path / "model.safetensors")
    whole = json.loads(card.read_text())
    for broken in ("", "[1]", "{}", json.dumps({**whole, "format": "other"})):
        card.write_text(broken)
        with pytest.raises(RunError):
            load_exported(file)
    for change in ({"classes": ["one"]}, {"model": {"backbone": 3}}, {"head": None}, {"input": {}}):
        card.write_text(json.dumps({**whole, **change}))
        with pytest.raises(vitrail.errors.VitrailError):
            load_exported(file)
    card.write_text(json.dumps(whole))
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(RunError, match="not the one its card"):
        load_exported(file)
    card.unlink()
    with pytest.raises(RunError, match="card"):
        load_exported(file)
    with pytest.raises(RunError, match=r"no \.safetensors file"):
        load_exported(tmp_path / "gone.safetensors")


def test_an_unknown_suffix_is_refused(run, tmp_path):
    with pytest.raises(ConfigError, match=r"\.safetensors or \.onnx"):
        export(run, tmp_path / "model.pth")


WIDTHS = {"small-cnn": 4, "lenet": None, "vgg19": 4}


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_every_backbone_is_the_same_in_onnx(name):
    runtime = pytest.importorskip("onnxruntime")
    width = WIDTHS.get(name, 8)
    network, _ = make_network(
        Model(backbone=name, width=width), "linear", 1, 3, derive_server_key(1).at("onnx-test")
    )
    card = {"classes": ["a", "b", "c"], "image_size": 32, "channels": 1}
    model = DeployedModel(network, Normalize.from_name("half", 1), card)
    session = runtime.InferenceSession(make_onnx(model), providers=["CPUExecutionProvider"])
    for count in (1, 4):
        images = torch.rand(count, 1, 32, 32, generator=torch.Generator().manual_seed(count))
        (found,) = session.run(None, {"images": images.numpy()})
        assert found.shape == (count, 3)
        np.testing.assert_allclose(found, model(images).detach().numpy(), atol=1e-4)


def test_onnx_through_the_command(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    out = tmp_path / "model.onnx"
    done = CliRunner().invoke(app, ["export", str(run.path), "--out", str(out)])
    assert done.exit_code == 0, done.exception
    session = runtime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"images": IMAGES.numpy()})
    np.testing.assert_allclose(found, run.model()(IMAGES).detach().numpy(), atol=1e-4)
    assert json.loads((tmp_path / "model.json").read_text())["file"] == "model.onnx"


def test_an_onnx_file_with_other_numbers_is_not_written(run, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnx_module, "TOLERANCE", -1.0)
    with pytest.raises(RunError, match="other numbers"):
        export(run, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_one_sentence_says_how_to_install_it(run, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"pip install 'vitrail\[onnx\]'"):
        export(run, tmp_path / "model.onnx")


def test_an_unfinished_run_is_exported_with_its_round(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "half")
    (tmp_path / "half" / "server" / "finished").unlink()
    half = vitrail.load(tmp_path / "half")
    _, card = export(half, tmp_path / "half.safetensors")
    assert json.loads(card.read_text())["finished"] is False
