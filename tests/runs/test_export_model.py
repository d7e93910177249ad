import copy
import json
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.config.schema import Model
from vitrail.data.aviary.birds import draw_birds
from vitrail.data.normalize import Normalize
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.models import BACKBONES, HEADS
from vitrail.models.heads.head import LinearHead
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.runs import onnx_export as onnx_module
from vitrail.runs.deployed import DeployedModel
from vitrail.runs.export_model import export, load_exported
from vitrail.runs.exported_card import read_last_metrics
from vitrail.runs.ledgers import read_ledgers
from vitrail.runs.onnx_export import draw_check_images, make_onnx

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
    assert card == tmp_path / "model.safetensors.json"


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
    (tmp_path / "model.safetensors.json").write_text("mine")
    with pytest.raises(RunError, match="exists"):
        export(run, tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors.json").read_text() == "mine"
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


def make_model(backbone, head, channels=1, size=32):
    network, _ = make_network(
        Model(backbone=backbone, width=WIDTHS.get(backbone, 8)),
        head,
        channels,
        3,
        derive_server_key(1).at("onnx-test"),
    )
    card = {"classes": ["a", "b", "c"], "image_size": size, "channels": channels}
    return DeployedModel(network, Normalize.from_name("half", channels), card)


def open_session(raw):
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(raw, providers=["CPUExecutionProvider"])


def make_bird_tensors(count, channels, size=32):
    birds = draw_birds(count, 3, derive_server_key(7).at("onnx-birds"), size).images
    images = torch.from_numpy(birds).permute(0, 3, 1, 2).float() / 255
    return images[:, :channels].contiguous()


def check_agreement(session, model, channels):
    for count in (1, 5):
        images = make_bird_tensors(count, channels)
        (found,) = session.run(["logits"], {"images": images.numpy()})
        wanted = model(images).detach().numpy()
        assert found.shape == (count, 3)
        assert np.abs(found - wanted).max() <= 1e-3 * np.abs(wanted).max()


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_every_backbone_is_the_same_in_onnx(name):
    model = make_model(name, "fedgrasp")
    check_agreement(open_session(make_onnx(model).raw), model, 1)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_every_head_is_the_same_in_onnx(head):
    model = make_model("resnet8", head, channels=3)
    check_agreement(open_session(make_onnx(model).raw), model, 3)


@pytest.mark.parametrize("head", ["fedgrasp", "protopnet", "tesnet", "tesnet-stiefel"])
def test_the_evidence_stands_beside_the_logits_and_adds_up(head):
    model = make_model("resnet8", head, channels=3)
    session = open_session(make_onnx(model, evidence=True).raw)
    images = make_bird_tensors(5, 3)
    logits, maps, contributions = session.run(
        ["logits", "maps", "contributions"], {"images": images.numpy()}
    )
    np.testing.assert_allclose(contributions.sum(2), logits, atol=1e-4 * np.abs(logits).max())
    network = model.network
    z = network.features(network.prefix((images[:1] - model.shift) / model.scale))
    own_maps = network.head.maps(z)[0].detach().numpy()
    assert maps.shape == (5, *own_maps.shape)
    np.testing.assert_allclose(maps[0], own_maps, atol=1e-3 * np.abs(own_maps).max())
    by_unit = np.zeros(contributions.shape[2])
    for piece in network.head.pieces(z, 1):
        by_unit[piece.unit] += piece.contribution
    np.testing.assert_allclose(contributions[0, 1], by_unit, atol=1e-3 * np.abs(by_unit).max())


def test_a_black_box_has_no_evidence_to_export(run, tmp_path):
    with pytest.raises(ConfigError, match="no parts to explain"):
        export(run, tmp_path / "model.onnx", evidence=True)
    with pytest.raises(ConfigError, match=r"name in \.onnx"):
        export(run, tmp_path / "model.safetensors", evidence=True)
    assert list(tmp_path.iterdir()) == []


def test_prototypes_that_lie_on_patches_are_exported_all_the_same():
    """At a distance of 0 single precision loses digits; the network itself is off by more."""
    model = make_model("resnet8", "protopnet", channels=3)
    network, images = model.network, draw_check_images(model)
    with torch.no_grad():
        z = network.features(network.prefix((images - model.shift) / model.scale))
        patches = z.permute(0, 2, 3, 1).flatten(0, 2)
        network.head.vectors.copy_(patches[: len(network.head.vectors)])
    made = make_onnx(model)
    assert 1e-3 < made.difference <= made.allowed < 0.2


def test_a_head_that_onnx_has_no_words_for_is_one_sentence(capfd):
    class Strange(LinearHead):
        def forward(self, z):
            return {"logits": super().forward(z)["logits"].mT.contiguous().mT}

    model = make_model("resnet8", "linear")
    model.network.head = Strange(model.network.channels, 3)
    with pytest.raises(RunError, match="cannot be written as ONNX") as caught:
        make_onnx(model)
    assert len(str(caught.value)) < 400
    assert "graph(" not in "".join(capfd.readouterr())


def test_two_formats_of_one_stem_have_two_cards(run, tmp_path):
    pytest.importorskip("onnxruntime")
    tensors, first = export(run, tmp_path / "model.safetensors")
    _, second = export(run, tmp_path / "model.onnx")
    assert first != second
    assert json.loads(second.read_text())["file"] == "model.onnx"
    assert torch.equal(load_exported(tensors)(IMAGES), run.model()(IMAGES))


def test_an_export_of_an_older_version_still_opens(run, tmp_path):
    file, card = export(run, tmp_path / "model.safetensors")
    card.rename(tmp_path / "model.json")
    assert load_exported(file).classes == run.classes


def test_the_onnx_file_tells_what_it_is(run, tmp_path):
    file, card = export(run, tmp_path / "model.onnx")
    told = open_session(file.read_bytes()).get_modelmeta().custom_metadata_map
    assert json.loads(told["vitrail.classes"]) == list(run.classes)
    preprocessing = json.loads(told["vitrail.preprocessing"])
    assert preprocessing["shape"] == ["N", 3, 24, 24] and preprocessing["resize"] == "crop"
    assert told["vitrail.audit"] == "not audited"
    assert told["vitrail.guarantee"] == "none" and told["vitrail.epsilon"] == "null"
    written = json.loads(card.read_text())
    assert told["vitrail.run"] == written["run"] and len(written["run"]) == 32
    assert written["agreement"]["largest_difference"] <= written["agreement"]["tolerance"]


def test_the_program_of_the_guide_runs(run, tmp_path, monkeypatch, capsys, project):
    export(run, tmp_path / "model.onnx")
    page = (project / "docs/how-to/hand-a-model-on.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "guide", "exec"), {})
    assert capsys.readouterr().out.strip().endswith("not audited null")


def test_an_onnx_file_is_checked_on_the_user_s_own_images(run, tmp_path):
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "images"
    folder.mkdir()
    pixels = (IMAGES[0].permute(1, 2, 0) * 255).to(torch.uint8).numpy()
    Image.fromarray(pixels).save(folder / "one.png")
    _, card = export(run, tmp_path / "model.onnx", images=folder)
    assert json.loads(card.read_text())["agreement"]["images"].startswith("1 images of the user")
    (folder / "one.png").write_bytes(b"nothing")
    with pytest.raises(DataError, match="can be read"):
        export(run, tmp_path / "other.onnx", images=folder)


def test_the_card_tells_the_finding_of_the_audit(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    finding = {"class": "crested", "score": 9.1, "p_value": 0.001, "verdict": "biased"}
    clear = {"class": "plain", "score": 11.0, "p_value": 0.9, "verdict": "clear"}
    sites = [{"site": "site-01", "classes": [clear, finding]}]
    (tmp_path / "run" / "audit.json").write_text(json.dumps({"sites": sites}))
    _, file = export(vitrail.load(tmp_path / "run"), tmp_path / "model.safetensors")
    audit = json.loads(file.read_text())["audit"]
    assert audit["verdict"] == "biased"
    assert "crested" in audit["finding"] and "site-01" in audit["finding"]


def test_the_card_tells_the_largest_epsilon_of_a_private_run(tmp_path):
    options = {"epsilon": 4.0, "delta": 1e-3, "clip": 1.0}
    private = {
        **CONFIG,
        "model": {**CONFIG["model"], "norm": "group"},
        "release": {"defenses": ["client-dp"], "client-dp": options},
    }
    run = vitrail.run(private, tmp_path / "run")
    _, file = export(run, tmp_path / "model.safetensors")
    told = json.loads(file.read_text())["guarantee"]
    spent = [b["epsilon"] for s in read_ledgers(run.path).sites for b in s.budgets]
    assert told["epsilon"] == max(spent) > 0 and told["delta"] == 1e-3
    assert told["kind"] == "formal" and "simulation" in told["says"]


def test_onnx_through_the_command(run, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    out = tmp_path / "model.onnx"
    done = CliRunner().invoke(app, ["export", str(run.path), "--out", str(out)])
    assert done.exit_code == 0, done.exception
    session = runtime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    (found,) = session.run(["logits"], {"images": IMAGES.numpy()})
    np.testing.assert_allclose(found, run.model()(IMAGES).detach().numpy(), atol=1e-4)
    assert json.loads((tmp_path / "model.onnx.json").read_text())["file"] == "model.onnx"


def test_an_onnx_file_with_other_numbers_is_not_written(run, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    trace = onnx_module._trace

    def trace_another(module, *rest):
        other = copy.deepcopy(module)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(1.1)
        return trace(other, *rest)

    monkeypatch.setattr(onnx_module, "_trace", trace_another)
    with pytest.raises(RunError, match="other logits"):
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
