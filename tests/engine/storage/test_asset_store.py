"""Shared images on their way: counted, ledgered, sent once, kept, and checked at every step."""

import json

import pytest
import torch

import vitrail
from vitrail.aggregate.guard import Guard
from vitrail.engine.storage.asset_store import AssetStore
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.release.asset import Asset
from vitrail.release.message import ANY, KEEP, Field, Schema
from vitrail.release.update import Update

XDS = {"method": {"name": "fedxds", "warmup": 1}}


def lines(run, site, kind):
    text = (run.path / "sites" / site / "ledger.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == kind]


@pytest.fixture(scope="module")
def shared(tmp_path_factory, tiny_config):
    """Six rounds, half of the sites in each, sharing in the second."""
    config = tiny_config(**XDS, run={"rounds": 6, "participation": 0.5, "record_updates": True})
    return vitrail.run(config, tmp_path_factory.mktemp("shared") / "run")


def test_the_ledger_counts_what_was_sent_and_nothing_else_left(shared):
    rows = {(row["round"], row["site"]): row for row in shared.rows()}
    total = 0
    for site in shared.sites:
        release = next(line for line in lines(shared, site, "release") if line["round"] == 2)
        (told,) = lines(shared, site, "images")
        sent = read_tensors(
            shared.path / "server/transcript/round-00002/updates" / f"{site}.safetensors"
        )[0]
        assert set(sent) == {"images/pixels", "images/targets"}
        size = sum(t.numel() * t.element_size() for t in sent.values())
        assert size == release["bytes"] == told["bytes"] == rows[2, site]["bytes_up"] > 0
        assert told["images"] == len(sent["images/targets"]) == rows[2, site]["shared_images"]
        assert told["guarantee"] == "empirical: no formal guarantee"
        total += size
    assert rows[2, "*"]["bytes_up"] == total


def test_images_reach_each_site_once_and_are_the_same_everywhere(shared):
    rows = shared.rows()
    (file,) = (shared.path / "server/assets").iterdir()
    asset = AssetStore(file.parent).get(file.stem)
    sites = [row for row in rows if row["site"] != "*" and row.get("bytes_down")]
    plain = next(row["bytes_down"] for row in sites if row["round"] == 1)
    extra = {}
    for row in sites:
        if row["round"] > 2:
            extra.setdefault(row["site"], []).append(row["bytes_down"] - plain)
    assert extra
    for site, got in extra.items():
        assert got == [asset.bytes] + [0] * (len(got) - 1)
        kept = shared.path / "sites" / site / "assets" / file.name
        assert kept.read_bytes() == file.read_bytes()
    assert len(asset.tensors["targets"]) == sum(
        row["shared_images"] for row in rows if row.get("shared_images")
    )


def test_a_run_that_dies_before_or_after_sharing_ends_with_the_same_bits(tiny, tmp_path, same_bits):
    whole = tiny("whole", **XDS, run={"rounds": 5, "checkpoint_every": 2})
    for dies in (1, 3):

        def stop(progress, dies=dies):
            if progress.round == dies:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tiny(f"{dies}", stop, **XDS, run={"rounds": 5, "checkpoint_every": 2})
        again = vitrail.resume(tmp_path / f"{dies}")
        assert same_bits(whole.path, again.path)
        for site in whole.sites:
            assert len(lines(again, site, "images")) == 1
        assert [r.get("bytes_down") for r in whole.rows()] == [
            r.get("bytes_down") for r in again.rows()
        ]


def test_a_lost_or_changed_asset_is_a_sentence(tiny, tmp_path):
    def stop(progress):
        if progress.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny("run", stop, **XDS, run={"rounds": 4})
    (file,) = (tmp_path / "run/server/assets").iterdir()
    raw = file.read_bytes()
    file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(RunError, match="not what its name says"):
        vitrail.resume(tmp_path / "run")
    file.unlink()
    with pytest.raises(RunError, match=r"asset .* is not here"):
        vitrail.resume(tmp_path / "run")


def test_restart_begins_again_with_the_first_model(tiny):
    run = tiny(method={"name": "fedxds", "warmup": 1, "after": "restart"}, run={"rounds": 4})
    folder = run.path / "server/checkpoints"
    first = tiny("first", method={"name": "fedavg"}, run={"rounds": 0})
    start = read_tensors(first.path / "server/checkpoints/round-00000.safetensors")[0]
    after = read_tensors(folder / "round-00002.safetensors")[0]
    assert all(torch.equal(start[name], after[name]) for name in start)


@pytest.mark.parametrize(
    "changes",
    [
        {"run": {"local_reference": True}},
        {"model": {"norm": "home"}},
        {"model": {"norm": "group"}},
        {"aggregate": {"rule": "median"}},
        {"release": {"defenses": ["tip"]}},
        {"release": {"defenses": ["prune", "quantize"]}},
        {"model": {"frozen": "layer2"}},
        {"partition": {"kind": "shards", "shards": 1}},  # classes that one site alone has
    ],
    ids=str,
)
def test_sharing_goes_with_the_rest(tiny, changes):
    run = tiny(**{**changes, "method": {"name": "fedxds"}})
    assert run.finished and (run.path / "server/assets").exists()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("dp-sgd", {"protection": "paper"}),
        ("dp-sgd", {"protection": "metric", "mask_from": "class"}),
        ("dp-sgd", {"protection": "local-dp", "mask_from": "class"}),
        ("client-dp", {"protection": "metric"}),
    ],
)
def test_formal_defenses_refuse_what_nothing_covers(tiny, name, how):
    with pytest.raises(ConfigError, match=r"release\.defenses"):
        tiny(
            method={"name": "fedxds", **how},
            model={"norm": "group"},
            release={"defenses": [name], name: {"delta": 1e-3}},
        )


@pytest.mark.parametrize(
    ("how", "told"), [("metric", "epsilon(distance) by the curve"), ("local-dp", "local DP")]
)
def test_a_model_trained_with_dp_chooses_what_is_shared(tiny, how, told):
    """Refuted if the round of sharing costs the model's budget, or a line promises less or more."""
    run = tiny(
        method={"name": "fedxds", "protection": how, "warmup": 1},
        model={"norm": "group"},
        release={"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 4.0, "delta": 1e-3}},
        run={"rounds": 4},
    )
    for site in run.sites:
        spent = {line["round"]: line for line in lines(run, site, "release") if line.get("spends")}
        epsilons = [spent[number]["spends"][0]["epsilon"] for number in (1, 2, 3, 4)]
        assert epsilons[0] == epsilons[1] < epsilons[2] < epsilons[3] <= 4.0
        shared = spent[2]["guarantee"]
        assert shared.startswith("formal: (epsilon, delta) = (") and shared.count("beside") == 1
        assert f"beside the model: formal: {told}" in shared
        assert all("beside" not in spent[n]["guarantee"] for n in (1, 3, 4))
        assert all(spent[n]["guarantee"].startswith("formal") for n in (1, 3, 4))
        (images,) = lines(run, site, "images")
        assert images["guarantee"].startswith("formal") and images["images"] > 0


def test_masks_from_the_model_are_formal_given_the_model(tiny):
    run = tiny(method={"name": "fedxds", "protection": "metric", "sigma": 0.5})
    (line,) = lines(run, run.sites[0], "images")
    assert line["guarantee"].startswith("formal: epsilon(distance)")
    assert "in its own lines" in line["masks"]


def test_a_noised_heatmap_of_a_class_is_told_with_its_budget(tiny):
    run = tiny(
        method={
            "name": "fedxds",
            "protection": "metric",
            "sigma": 0.5,
            "mask_from": "class",
            "heat_epsilon": 2.0,
        }
    )
    (line,) = lines(run, run.sites[0], "images")
    assert line["guarantee"].startswith("formal: 2 for the masks") and line["epsilon_mask"] == 2.0


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ({"removed": 0.0}, r"method\.removed.*whole images would leave"),
        ({"removed": 1}, "nothing would"),
        ({"removed": 80}, "between them"),
        ({"warmup": 2}, "leave none of 3 to train"),
        ({"attribution": "lpr"}, "Did you mean 'lrp'"),
        ({"detector": "faces"}, "no detector called 'faces'"),
        ({"group": 4}, "local-dp"),
        ({"protection": "metric", "mask_from": "image"}, "do not depend on the image"),
        ({"protection": "metric", "sigma": 0}, "needs noise"),
        ({"protection": "local-dp", "regions": [{"box": [0, 0, 1, 1], "factor": 0.5}]}, "void"),
        ({"boxes": [[0.5, 0.5, 0.5, 0.5]]}, "holds no pixel"),
        ({"regions": [{"box": [0.5, 0.5, 0.5, 0.5], "factor": 2.0}]}, "holds no pixel"),
        ({"heat_epsilon": 1.0}, 'mask_from = "class"'),
        ({"heat_epsilon": 1.0, "mask_from": "class", "heat_noise": 1.0}, "leave out heat_noise"),
        ({"sparsity": 80}, "method.sparsity"),
        ({"epsilon": 2.0}, "epsilon has no effect with protection = 'paper'.*local-dp"),
        ({"clip": 2.0, "protection": "metric"}, "clip has no effect"),
        ({"sigma": 1.0, "protection": "local-dp"}, "sigma has no effect.*follows from epsilon"),
        ({"delta": 1e-6}, "delta has no effect"),
        ({"heat_epsilon": 1.0, "mask_from": "class"}, "heat_epsilon has no effect"),
        ({"protection": "local-dp", "budgets": {"site-0": 1.0}}, r"method\.budgets.*'site-0'"),
        ({"protection": "local-dp", "delta": 0.9}, r"method\.delta.*publishing one of them"),
        ({"protection": "metric", "delta": 0.9}, r"method\.delta.*publishing one of them"),
    ],
    ids=lambda v: str(v)[:40],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(tiny, tmp_path, method, told):
    with pytest.raises(ConfigError, match=told):
        tiny(method={"name": "fedxds", **method})
    assert not (tmp_path / "run").exists(), "before a round is played"


@pytest.mark.parametrize("protection", ["metric", "local-dp"])
def test_layers_that_stay_home_void_what_masks_promise(tiny, protection):
    own = {"model": {"backbone": "resnet8", "width": 4, "norm": "home"}}
    with pytest.raises(ConfigError, match=r"model\.norm: layers that stay home.*group"):
        tiny(method={"name": "fedxds", "protection": protection}, **own)
    run = tiny(method={"name": "fedxds"}, **own)
    assert lines(run, run.sites[0], "images")[0]["guarantee"] == "empirical: no formal guarantee"


def test_a_network_without_relevance_rules_is_refused_before_the_warm_up(tiny, tmp_path):
    plugin = tmp_path / "smooth.py"
    plugin.write_text(
        "from torch import nn\n"
        "from vitrail.models.backbone import BACKBONES, Backbone\n"
        "class Smooth(Backbone):\n"
        "    def __init__(self, channels, width):\n"
        "        super().__init__(width)\n"
        "        self.low = nn.Sequential(nn.Conv2d(channels, width, 3), nn.LocalResponseNorm(2))\n"
        "    def stages(self):\n"
        "        return (('low', self.low),)\n"
        "@BACKBONES.register('smooth-for-assets')\n"
        "def smooth(in_channels=3, width=None, norm='batch'):\n"
        "    return Smooth(in_channels, width or 4)\n",
        encoding="utf-8",
    )
    own = {"model": {"backbone": "smooth-for-assets"}, "run": {"plugins": [str(plugin)]}}
    with pytest.raises(ConfigError, match="no relevance rule for LocalResponseNorm"):
        tiny(method={"name": "fedxds"}, **own)
    assert not (tmp_path / "run").exists()
    run = tiny(method={"name": "fedxds", "attribution": "gradient"}, **own)
    assert lines(run, run.sites[0], "images")


def test_two_runs_with_other_budgets_share_no_noise(tiny):
    """Refuted if (s2 o1 - s1 o2) / (s2 - s1) is the masked image, whose removed pixels are zero."""
    own = {"name": "fedxds", "warmup": 0, "protection": "local-dp", "epsilon_label": 50.0}
    seen = []
    for epsilon in (8.0, 4.0):
        run = tiny(out=f"run-{epsilon}", method={**own, "epsilon": epsilon},
                   run={"record_updates": True})  # fmt: skip
        first = run.sites[0]
        (line,) = lines(run, first, "images")
        file = run.path / "server/transcript/round-00001/updates" / f"{first}.safetensors"
        seen.append((line["sigma"], read_tensors(file)[0]["images/pixels"].double()))
    (s1, o1), (s2, o2) = seen
    assert s2 > s1 and o1.shape == o2.shape
    guess = (s2 * o1 - s1 * o2) / (s2 - s1)
    assert float((guess.abs() < 0.01).double().mean()) < 0.05 and float(guess.std()) > s1


FIELDS = (
    Field("images/pixels", (ANY, 2, 2, 1), KEEP, span=(-1.0, 2.0)),
    Field("images/targets", (ANY,), KEEP, torch.int64, span=(0, 2)),
)


@pytest.mark.parametrize(
    ("pixels", "targets", "told"),
    [
        (torch.zeros(2, 2, 2, 1), torch.tensor([0, 2]), None),
        (torch.zeros(0, 2, 2, 1), torch.zeros(0, dtype=torch.int64), None),
        (torch.zeros(2, 4, 4, 1), torch.tensor([0, 2]), "has shape"),
        (torch.zeros(2, 2, 2, 1), torch.tensor([0, 3]), "outside of 0 to 2"),
        (torch.zeros(2, 2, 2, 1), torch.tensor([-1, 0]), "outside of 0 to 2"),
        (torch.zeros(2, 2, 2, 1), torch.tensor([0]), "different numbers of rows"),
        (torch.zeros(9, 2, 2, 1), torch.zeros(9, dtype=torch.int64), "impossible"),
        (torch.full((2, 2, 2, 1), 3.0), torch.tensor([0, 1]), "outside of -1 to 2"),
        (torch.full((2, 2, 2, 1), torch.nan), torch.tensor([0, 1]), "not finite"),
        (torch.zeros(2, 2, 2, 1).double(), torch.tensor([0, 1]), "not torch.float32"),
    ],
)
def test_the_guard_refuses_hostile_images(pixels, targets, told):
    guard = Guard(Schema((), FIELDS, counts=("examples",)), {}, max_norm=1e-9)
    update = Update(
        "a", 1, "share", {"images/pixels": pixels, "images/targets": targets}, {"examples": 5}
    )
    limits = {"images/pixels": 5.0, "images/targets": 5.0}
    reason = guard.refusal(update, 1.0, ("a", 1, "share"), limits)
    assert reason is None if told is None else told in (reason or "")


def test_a_shelf_names_what_it_holds(tmp_path):
    one, other = AssetStore(tmp_path / "one"), AssetStore(tmp_path / "other")
    asset = Asset.of({"x": torch.arange(4)})
    assert asset.digest != Asset.of({"x": torch.arange(4).int()}).digest
    assert asset.digest != Asset.of({"x": torch.arange(4).view(2, 2)}).digest
    one.put(asset)
    other.take(asset.digest, one)
    other.take(asset.digest, one)
    assert torch.equal(other.get(asset.digest).tensors["x"], torch.arange(4))
    other.take("0" * 32, one)
    assert not other.path("0" * 32).exists()
