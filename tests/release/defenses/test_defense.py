"""The seam: what a defense knows before the run, what is refused, and noise of a stated energy."""

import json

import pytest
import torch

from vitrail.config.load import parse
from vitrail.engine.plan import make_plan
from vitrail.engine.tasks import Task
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.local.optimizer import OptimizerSettings
from vitrail.local.session import Context, Site
from vitrail.models.flat import Layout
from vitrail.models.parts import TensorSpec
from vitrail.release import DEFENSES, Additive, Defense, Noise, Update
from vitrail.rng import Key, derive_site_key


class Hiss(Additive):
    """White noise on every floating tensor of the model, 0.01 strong."""

    def noise(self, update, site, ctx):
        source = self.key(site).stream()
        return {
            name: 0.01 * source.normal(t.shape)
            for name, t in update.tensors.items()
            if name.startswith("model/") and t.is_floating_point()
        }


class Proof(Defense):
    formal = True


class Steps(Defense):
    formal = True
    acts = "training"


class Looks(Defense):
    uses_data = True


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(DEFENSES, "_items", dict(DEFENSES._items))
    for name, kind in {"hiss": Hiss, "proof": Proof, "steps": Steps, "looks": Looks}.items():
        DEFENSES.register(name)(kind)


@pytest.fixture
def plan(tiny_config, tmp_path):
    def make(examples=None, **changes):
        config = parse(tiny_config(**changes), tmp_path)
        return make_plan(config, ("a", "b", "c"), 3, examples)[0]

    return make


def test_the_setting_tells_stages_convolutions_norms_and_sites(plan):
    setting = plan({"site-1": 7}, method={"name": "fedbn"}).setting
    assert setting.method == "fedbn" and setting.examples == {"site-1": 7} and setting.rounds == 3
    assert not setting.beside and all("bn" not in name for name in setting.leaves)
    convs = {c.name: c for c in setting.convs}
    last = convs["backbone.layer2.0.conv2.weight"]
    assert last.shape == (16, 16, 3, 3) and last.last and not last.pointwise and not last.frozen
    assert not convs["backbone.layer2.0.conv1.weight"].last
    shortcut = convs["backbone.layer2.0.downsample.0.weight"]
    assert shortcut.pointwise and not shortcut.last and shortcut.block == last.block
    assert convs["backbone.conv1.weight"].last
    assert {n.kind for n in setting.norms} == {"BatchNorm2d"} and all(
        n.batch for n in setting.norms
    )
    frozen = plan(model={"frozen": "layer1", "norm": "group"}).setting
    assert [c.name for c in frozen.convs if c.frozen] == [
        "backbone.conv1.weight",
        "backbone.layer1.0.conv1.weight",
        "backbone.layer1.0.conv2.weight",
    ]
    assert not any(n.batch for n in frozen.norms) and sum(n.frozen for n in frozen.norms) == 3


@pytest.mark.parametrize(
    ("backbone", "count", "some"),
    [
        ("small-cnn", 3, "stage2.conv"),
        ("resnet50", 17, "layer4.2.conv3"),
        ("densenet121", 1 + 58 + 3, "features.denseblock3.denselayer24.conv2"),
        ("vgg19", 5, "features.16"),
        ("efficientnet-lite0", 18, "_blocks.3._project_conv"),
    ],
)
def test_where_the_blocks_of_a_backbone_end(plan, backbone, count, some):
    convs = plan(model={"backbone": backbone, "width": None}).setting.convs
    last = [conv.name for conv in convs if conv.last]
    assert len(last) == count and f"backbone.{some}.weight" in last
    assert not any("downsample" in name for name in last)


def test_the_setting_names_what_leaves_beside_the_model_and_the_phases(plan):
    assert plan(method={"name": "scaffold"}).setting.beside == ("control/change",)
    stages = plan(method={"name": "myth-pm"}).setting.stages
    assert any("push" in stage.arrive for stage in stages)
    assert all(stage.answers["backbone.conv1.weight"] == "home" for stage in stages[-1:])


@pytest.mark.parametrize(
    ("defenses", "words"),
    [
        (["proof", "looks"], "'looks' looks at images again after 'proof'"),
        (["looks", "steps"], "'looks' looks at images again after 'steps'"),
        (["hiss", "hiss"], "stands there twice"),
    ],
)
def test_lists_that_cannot_be_meant_are_refused(plan, defenses, words):
    with pytest.raises(ConfigError, match=words):
        plan(release={"defenses": defenses})


@pytest.mark.parametrize("defenses", [["looks", "proof"], ["proof", "hiss"], ["steps", "hiss"]])
def test_noise_after_a_proof_and_images_before_one_are_fine(plan, defenses):
    assert [d.name for d in plan(release={"defenses": defenses}).defenses()] == defenses


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"defenses": ["looks"], "energy": 0.1}, "no defense of this run adds noise"),
        ({"defenses": ["hiss"], "energy": 0.0}, "release.energy"),
        ({"defenses": ["hiss"], "energy": -1.0}, "release.energy"),
        ({"defenses": ["hiss"], "energy": float("nan")}, "release.energy"),
        ({"defenses": ["hiss"], "hiss": {"epsilon": 0.0}}, "release.hiss.epsilon"),
        ({"defenses": ["hiss"], "hiss": {"epsilon": float("nan")}}, "release.hiss.epsilon"),
        ({"defenses": ["hiss"], "hiss": {"schedule": [1.0, 1.0]}}, "2 factors for 3 rounds"),
        ({"defenses": ["hiss"], "hiss": {"schedule": [1.0, -1.0, 1.0]}}, "release.hiss.schedule"),
        ({"defenses": ["hiss"], "hiss": {"sites": {"nobody": 1.0}}}, "no site 'nobody'"),
        ({"defenses": ["hiss"], "hiss": {"loud": 1}}, "release.hiss.loud"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(plan, section, words):
    with pytest.raises(ConfigError, match=words):
        plan({"site-1": 5}, release=section)


def test_noise_is_refused_where_nothing_leaves_or_where_it_could_be_taken_off(plan):
    with pytest.raises(ConfigError, match="would touch nothing: local sends no tensor"):
        plan(method={"name": "local"}, release={"defenses": ["hiss"]})
    with pytest.raises(ConfigError, match="take the noise off"):
        plan(method={"name": "scaffold"}, release={"defenses": ["hiss"]})


def test_schedules_and_budgets_by_site():
    noise = Noise(epsilon=2.0, sites={"b": 0.5}, schedule="decay", decay=0.5)
    assert (noise.epsilon_at("a"), noise.epsilon_at("b")) == (2.0, 0.5)
    assert [noise.factor(r) for r in (1, 2, 3)] == [1.0, 0.5, 0.25]
    assert [Noise(schedule=(1.0, 0.0, 3.0)).factor(r) for r in (1, 2, 3)] == [1.0, 0.0, 3.0]
    assert Noise().factor(9) == 1.0


def test_energy_is_as_asked_and_the_ledger_says_so(tiny):
    """Measured from outside: the transcripts of a run with and one without noise."""
    record = {"rounds": 1, "record_updates": True}
    clean = tiny("clean", run=record)
    options = {"defenses": ["hiss"], "energy": 0.25, "hiss": {"schedule": [2.0]}}
    noised = tiny("noised", run=record, release=options)
    for site in ("site-00", "site-03"):
        sent, one, two = _tape(clean, noised, site)
        change = _norm({n: one[n] - sent[n] for n in one})
        noise = _norm({n: two[n] - one[n] for n in one})
        assert noise / change == pytest.approx(0.5, rel=1e-4)
        lines = (noised.path / "sites" / site / "ledger.jsonl").read_text().splitlines()
        line = next(x for x in map(json.loads, lines) if x["kind"] == "release")
        (said,) = line["defenses"]
        assert said["name"] == "hiss" and said["formal"] is False
        assert said["parameters"]["energy"] == 0.25 and said["parameters"]["schedule"] == [2.0]
        assert said["figures"]["energy"] == pytest.approx(noise / change, rel=1e-6)
        assert said["figures"]["noise_l2"] == pytest.approx(noise, rel=1e-6)
        assert said["figures"]["update_l2"] == pytest.approx(change, rel=1e-6)


def _tape(clean, noised, site):
    found = []
    for run, file in ((clean, "sent"), (clean, f"updates/{site}"), (noised, f"updates/{site}")):
        folder = run.path / "server" / "transcript" / "round-00001"
        found.append(read_tensors(folder / f"{file}.safetensors")[0])
    return found


def _norm(tensors):
    return sum(float(t.double().square().sum()) for t in tensors.values()) ** 0.5


class FakeSite:
    """A model of two tensors, received as zeros."""

    digest_data = str

    def __init__(self, secret=b"secret"):
        specs = [
            TensorSpec("w", (3, 2), "head", "weight", "euclidean", True, False),
            TensorSpec("b", (2,), "head", "weight", "euclidean", True, False),
        ]
        self.name = "site-1"
        self.model = self
        self.layout = Layout.of(specs)
        self.received = torch.zeros(self.layout.size)
        self.key = Key(secret, ("round", "1"))
        self.message, self.cause = "asked", "this run"

    noise = Site.noise


def passed(tensors, energy=None, site=None):
    made = Hiss("hiss", {}, energy=energy)
    ctx = Context(1, "train", 1, 2, 1, 8, OptimizerSettings(), None, Key(b"seed"))
    update = Update("site-1", 1, "train", tensors)
    found, figures = made.apply(update, site or FakeSite(), ctx)
    json.dumps(figures, allow_nan=False)  # the ledger could not be written otherwise
    return found.tensors, figures


def test_an_update_of_zeros_gets_the_mechanisms_own_noise_and_none_at_an_energy():
    zeros = {"model/w": torch.zeros(3, 2), "model/b": torch.zeros(2)}
    found, figures = passed(zeros, energy=0.5)
    assert all(torch.equal(found[n], zeros[n]) for n in zeros)
    assert figures == {"noise_l2": 0.0, "update_l2": 0.0, "touched": 0.0}
    found, figures = passed(zeros)
    assert all(bool((found[n] != 0).all()) for n in zeros) and figures["touched"] == 8
    assert "energy" not in figures and figures["noise_l2"] == pytest.approx(_norm(found))


def test_a_tensor_that_is_not_floating_leaves_as_it_is():
    tensors = {"model/w": torch.ones(3, 2), "model/b": torch.ones(2, dtype=torch.int64)}
    found, figures = passed(tensors, energy=1.0)
    assert torch.equal(found["model/b"], tensors["model/b"]) and figures["touched"] == 6
    assert figures["update_l2"] == pytest.approx(6**0.5) and figures["energy"] == pytest.approx(1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("energy", [None, 0.1])
def test_nothing_can_be_read_from_an_update_that_is_not_finite(value, energy):
    tensors = {"model/w": torch.ones(3, 2), "model/b": torch.tensor([1.0, value])}
    found, figures = passed(tensors, energy)
    assert all(bool(t.isnan().all()) for t in found.values()) and figures == {"withheld": 1.0}


def test_another_message_for_the_same_round_gets_other_noise():
    """Refuted if the difference of two answers is free of noise."""
    ones = {"model/w": torch.ones(3, 2), "model/b": torch.ones(2)}
    other = FakeSite()
    other.message = Task("site-1", 1, sites=2, base=0).make_answer_key("digest")
    first = FakeSite()
    first.message = Task("site-1", 1, sites=2, base=1).make_answer_key("digest")
    (one, _), (two, _) = passed(ones, site=first), passed(ones, site=other)
    assert not torch.isclose(one["model/w"], two["model/w"], atol=1e-6).any()
    third = FakeSite()
    third.message, third.cause = first.message, "a run with another budget"
    (three, _) = passed(ones, site=third)
    assert not torch.isclose(one["model/w"], three["model/w"], atol=1e-6).any()


def test_a_server_that_knows_the_seed_cannot_repeat_the_noise_of_a_site_with_a_secret():
    ones = {"model/w": torch.ones(3, 2), "model/b": torch.ones(2)}
    at_the_site, _ = passed(ones, site=FakeSite(b"made at the site"))
    again, _ = passed(ones, site=FakeSite(b"made at the site"))
    guessed, _ = passed(ones, site=FakeSite(derive_site_key(5, "site-1").root))
    assert torch.equal(at_the_site["model/w"], again["model/w"])
    assert not torch.isclose(at_the_site["model/w"], guessed["model/w"], atol=1e-6).any()
