"""FedFed: what the autoencoder learns, what leaves, and that the ledger counts it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vitrail
from vitrail.data.normalize import Normalize
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.local.inputs import Inputs
from vitrail.local.session import Context
from vitrail.methods.base.auxiliary_model import get_module_tensors
from vitrail.methods.fedfed import FedFed
from vitrail.methods.fedfed_phases import ShareFeatures, compute_loss, make_vae
from vitrail.models.vae import Vae
from vitrail.rng import Key, seed_torch

KEY = Key(b"a key of tests")


@pytest.fixture
def site():
    """Five images of a site with a linear model."""
    images = KEY.numpy().integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
    labels = np.array([0, 1, 2, 1, 0])
    weight = torch.randn(3, 192, generator=KEY.torch(), dtype=torch.float64) / 10
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 3, bias=False))
    network[1].weight.data = weight.float()
    return SimpleNamespace(
        inputs=Inputs(images, labels, Normalize.from_name("half", 3)),
        rows=SimpleNamespace(train=np.arange(5)),
        model=SimpleNamespace(network=network),
        key=KEY.at("round", 1),
        noise=KEY.at("noise"),
        lines=[],
    )


def test_the_objective_is_its_formula_in_float64(site):
    options = FedFed({}).options
    vae = make_vae(options, 3)
    found = compute_loss(site, vae, np.arange(5), options, KEY.at("latent").torch())
    x = torch.from_numpy(site.inputs.images).double().permute(0, 3, 1, 2) / 255
    vae, weight = vae.double(), site.model.network[1].weight.detach().double()
    mean, spread = vae.encode(x)
    noise = torch.randn(5, 8, 2, 2, generator=KEY.at("latent").torch()).double()
    again = vae.decode(mean + (spread / 2).exp() * noise, (8, 8))

    def ce(pixels):
        logits = ((pixels * 255 - 127.5) / 127.5).flatten(1) @ weight.T
        told = torch.log_softmax(logits, 1)
        return -sum(told[i, y] for i, y in enumerate(site.inputs.labels)) / 5

    divergence = -0.5 * (1 + spread - mean**2 - spread.exp()).mean()
    slow = 2 * ce(x - again) + ce(x) + 5 * ((x - again) ** 2).mean() + 0.005 * divergence
    assert abs(float(found.detach()) - float(slow.detach())) < 1e-5


def test_what_is_shared_is_the_remainder_in_two_noised_views(site):
    """Without noise a view IS x - VAE(x); with it they differ by the noise asked for."""
    options = FedFed({"sigmas": [0.0, 0.3]}).options
    ctx = Context(2, "share", 1, 3, 1, 8, None, options, KEY)
    vae = make_vae(options, 3)
    site.down = get_module_tensors(vae, "vae")
    figures = ShareFeatures()(site, ctx)
    pixels, targets = site.out["images/pixels"], site.out["images/targets"]
    x = torch.from_numpy(site.inputs.images).permute(0, 3, 1, 2) / 255
    left = (x - vae(x)[0]).detach().permute(0, 2, 3, 1)
    assert torch.allclose(pixels[:5], left, atol=1e-6)
    assert float((pixels[5:] - left).std()) == pytest.approx(0.3, rel=0.1)
    assert targets.tolist() == site.inputs.labels.tolist() * 2
    assert figures["shared_images"] == 10 and [line["sigma"] for line in site.lines] == [0.0, 0.3]
    assert sum(line["bytes"] for line in site.lines) == pixels.nbytes + targets.nbytes


@pytest.mark.parametrize("shape", [(8, 8), (10, 13), (28, 28), (9, 9)])
def test_an_autoencoder_gives_back_images_of_any_size(shape):
    with seed_torch(KEY):
        vae = Vae(1, width=4, latent=2)
    x = torch.rand(2, 1, *shape, generator=KEY.torch())
    again, divergence = vae(x, torch.zeros(vae.shape(x)))
    assert again.shape == x.shape and float(divergence.detach()) >= 0
    assert torch.equal(again, vae(x)[0])


@pytest.fixture(scope="module")
def shared(tmp_path_factory, tiny_config):
    """A round of the autoencoder, one of sharing, one of training."""
    config = tiny_config(method={"name": "fedfed"}, run={"record_updates": True})
    return vitrail.run(config, tmp_path_factory.mktemp("shared") / "run")


def test_the_ledger_counts_what_was_shared_and_the_autoencoder_left_in_the_open(shared):
    sent = shared.path / "server/transcript"
    for site in shared.sites:
        text = (shared.path / "sites" / site / "ledger.jsonl").read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        images = [line for line in lines if line["kind"] == "images"]
        release = next(r for r in lines if r["kind"] == "release" and r["round"] == 2)
        assert len(images) == 2 and sum(line["bytes"] for line in images) == release["bytes"]
        assert all(line["guarantee"] == "empirical: no formal guarantee" for line in images)
        first = read_tensors(sent / f"round-00001/updates/{site}.safetensors")[0]
        second = read_tensors(sent / f"round-00002/updates/{site}.safetensors")[0]
        assert any(name.startswith("vae/") for name in first)
        assert set(second) == {"images/pixels", "images/targets"}
    rows = {(row["round"], row["site"]): row for row in shared.rows()}
    for site in shared.sites:
        own = rows[1, site]["examples"]
        assert rows[1, site]["image_steps"] == 2 * own  # as they are, and what is left of them
        assert rows[2, site]["shared_images"] == 2 * own and not rows[2, site]["image_steps"]
        assert rows[3, site]["image_steps"] > own


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"method": {"distill_rounds": 2}}, "leave none of 3 to train"),
        ({"run": {"rounds": 2}}, r"run\.rounds.*leave none of 2 to train"),
        ({"method": {"sigmas": [0.1]}}, r"method\.sigmas"),
        ({"method": {"sigmas": [0.1, -1]}}, r"method\.sigmas"),
        ({"model": {"frozen": "layer1"}}, "through the whole network"),
        (
            {"release": {"defenses": ["dp-sgd"], "dp-sgd": {"delta": 1e-3}}},
            "distill|images|not floating point",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused(tiny, changes, told):
    method = {"name": "fedfed", **changes.get("method", {})}
    with pytest.raises(ConfigError, match=told):
        tiny(**{**changes, "method": method})


def test_a_site_alone_trains_without_an_autoencoder(tiny):
    run = tiny(method={"name": "fedfed"}, run={"local_reference": True})
    assert all((run.path / "sites" / s / "local.safetensors").exists() for s in run.sites)
