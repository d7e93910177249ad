"""TesNet and FedGraSP across sites: what travels, what stays, what a user can rely on."""

import json

import numpy as np
import pytest
import torch

import vitrail
from vitrail.aggregate.subspace_rules import CLASS_COUNTS
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.errors import ConfigError, DataError, RunError
from vitrail.files import read_tensors
from vitrail.geometry import deviation, grassmann
from vitrail.geometry.frames import draw_frames
from vitrail.local.session import Site
from vitrail.methods import METHODS, About
from vitrail.models import make_network
from vitrail.release.message import Field
from vitrail.rng import derive_server_key
from vitrail.runs.personalize_head import personalize

OFF = {"run": {"local_reference": False}}
FRAMES = "model/head.frames"


def sent(run):
    """What was sent and received in each round, by file."""
    root = run.path / "server" / "transcript"
    files = sorted(root.rglob("*.safetensors"))
    return {str(f.relative_to(root)): read_tensors(f)[0] for f in files}


def subspace(name="fedgrasp", **changes):
    changes["run"] = {**OFF["run"], **changes.get("run", {})}
    changes["method"] = {"name": name, **changes.get("method", {})}
    return changes


def server_files(run):
    return {f: f.read_bytes() for f in sorted((run.path / "server").rglob("*")) if f.is_file()}


def test_what_travels_are_frames_and_g_stays_the_identity(tiny):
    run = tiny(**subspace(run={"record_updates": True, "rounds": 1}))
    found = [t for t in sent(run).values() if FRAMES in t]
    assert len(found) == 5  # 4 sites and the server
    for tensors in found:
        assert deviation(tensors[FRAMES]).max() < 1e-5
        assert "model/head.weight" not in tensors
    model = run.model()
    assert torch.equal(model.network.head.weight.detach(), torch.eye(3))
    for site in run.sites:
        own = run.model(site).network.state_dict()
        shared = run.model(site, "global").network.state_dict()
        different = {n for n in own if not torch.equal(own[n], shared[n])}
        assert different == {"head.weight"}


def test_turning_a_basis_inside_its_span_changes_nothing_on_the_wire(tiny, monkeypatch):
    """Every site turns the bases of its subspaces by its own secret right before it sends."""
    straight = tiny("straight", **subspace(run={"record_updates": True, "rounds": 1}))
    real = METHODS["fedgrasp"].end

    def turning(self, site: Site, ctx):
        found = real(self, site, ctx)
        frames = site.model.named["head.frames"]
        turn = draw_frames((len(frames), 3, 3), site.key.at("turn"))
        frames.copy_(frames @ turn)
        return found

    monkeypatch.setattr(METHODS["fedgrasp"], "end", turning)
    turned = tiny("turned", **subspace(run={"record_updates": True, "rounds": 1}))
    first = [k for k in sent(straight) if "round-00001" in k]
    assert len(first) == 5  # the server's message and four answers
    for key in first:
        one, two = sent(straight)[key], sent(turned)[key]
        assert one.keys() == two.keys()
        for name in one:
            assert (one[name] - two[name]).abs().max() <= 1e-6, (key, name)


def test_the_agreement_of_sites_is_kept_by_class(tiny):
    run = tiny(**subspace(run={"rounds": 2}))
    checkpoints = Checkpoints(run.path / "server")
    tensors, _ = read_tensors(checkpoints.path(checkpoints.newest()))
    for word in ("eigengap", "consensus"):
        values = tensors[f"state/agreement/head.frames/{word}"]
        assert values.shape == (3,) and (values > 0).all() and (values <= 1 + 1e-6).all()
    for site in run.sites:
        distances = run.own(site, "personal")["subspaces/distance"]
        assert distances.shape == (3,) and (distances >= 0).all()


def test_one_site_alone_agrees_with_itself(tiny):
    run = tiny(**subspace(partition={"sites": 1, "kind": "iid"}))
    checkpoints = Checkpoints(run.path / "server")
    tensors, _ = read_tensors(checkpoints.path(checkpoints.newest()))
    gap = tensors["state/agreement/head.frames/eigengap"]
    torch.testing.assert_close(gap, torch.ones(3), rtol=0, atol=1e-5)
    distance = run.own(run.sites[0], "personal")["subspaces/distance"]
    assert distance.max() < 1e-3


def test_consensus_options_give_nearby_subspaces(tiny):
    runs = {c: tiny(c, **subspace(method={"consensus": c}, run={"rounds": 1})) for c in
            ("exact", "thin", "iterative", "karcher")}  # fmt: skip
    frames = {c: r.model().network.head.frames.detach() for c, r in runs.items()}
    assert grassmann.projection_distance(frames["exact"], frames["thin"]).max() < 1e-5
    assert grassmann.projection_distance(frames["exact"], frames["iterative"]).max() < 1e-3
    assert 0 < grassmann.projection_distance(frames["exact"], frames["karcher"]).max() < 0.5


def test_weights_by_examples_are_an_option_and_differ(tiny, same_bits):
    uniform = tiny("uniform", **subspace(run={"rounds": 1}))
    examples = tiny("examples", **subspace(method={"weights": "examples"}, run={"rounds": 1}))
    assert not same_bits(uniform.path, examples.path)


def test_class_counts_are_declared_and_say_what_they_disclose(tiny):
    method = METHODS["fedgrasp"]({"weights": "class-counts"})
    about = About(7, (16, 16, 3), 8)
    assert method.messages("train", about) == (
        (),
        (Field(CLASS_COUNTS, (7,), "grassmann-classes"),),
    )
    assert METHODS["fedgrasp"]({}).messages("train", about) == ((), ())
    assert "discloses the label histogram" in " ".join(method.Options.__doc__.split())
    with pytest.raises(ConfigError, match="class-counts"):
        METHODS["fedgrasp"]({"weights": "class-counts", "consensus": "karcher"})
    run = tiny(**subspace(method={"weights": "class-counts"}, run={"record_updates": True}))
    counts = [t[CLASS_COUNTS] for t in sent(run).values() if CLASS_COUNTS in t]
    assert len(counts) == 12
    lines = [json.loads(x) for x in (run.path / f"sites/{run.sites[0]}/ledger.jsonl").open()]
    declared = [x for x in lines if x["kind"] == "declaration"]
    assert any(name == CLASS_COUNTS for x in declared for name, *_ in x["tensors"])


def test_affine_subspaces_send_frames_and_nothing_else(tiny):
    lifted = {"neck": "none", "normalize": "none", "lift": 20.0, "gain": 2.0, "dimension": 2}
    run = tiny(
        **subspace(
            method={"consensus": "thin"},
            model={"subspaces": lifted, "frozen": True},
            run={"rounds": 1, "record_updates": True},
        )
    )
    up = [t for name, t in sent(run).items() if "site" in name]
    assert len(up) == 4 and all(set(t) == {FRAMES} for t in up)
    channels = run.model().network.channels
    assert up[0][FRAMES].shape[1:] == (channels + 1, 2)


def test_personalize_later_makes_the_same_head_and_leaves_the_global_model(tiny):
    run = tiny(**subspace(run={"rounds": 1}))
    site = run.sites[1]
    file = run.path / "sites" / site / "personal.safetensors"
    before, first = server_files(run), read_tensors(file)[0]
    file.unlink()
    found = personalize(run, site)
    again = read_tensors(file)[0]
    names = [n for n in first if n.startswith("model/")]
    assert found.file == file and all(torch.equal(first[n], again[n]) for n in names)
    assert server_files(run) == before
    longer = personalize(run, site, epochs=40, lr=0.05)
    off = run.model(site).network.head.weight.detach()
    assert not torch.equal(off, first["model/head.weight"]) and longer.before == found.before
    assert torch.equal(run.model(site, "global").network.head.weight.detach(), torch.eye(3))


def test_personalize_works_on_any_run_with_a_global_model(tiny):
    run = tiny(method={"name": "fedavg"}, run={"rounds": 1})
    before = server_files(run)
    personalize(run, run.sites[0], epochs=2, lr=0.01)
    own = run.model(run.sites[0]).network.state_dict()
    shared = run.model().network.state_dict()
    assert {n for n in own if not torch.equal(own[n], shared[n])} == {"head.weight", "head.bias"}
    assert server_files(run) == before


def test_personalize_refuses_what_it_cannot_do(tiny):
    run = tiny(**subspace(run={"rounds": 1}))
    with pytest.raises(RunError, match="no site 'nobody'"):
        personalize(run, "nobody")
    local = tiny("local", method={"name": "local"}, run={"rounds": 1})
    with pytest.raises(RunError, match="no global model"):
        personalize(local, local.sites[0])


def test_no_personal_epochs_leave_the_identity(tiny):
    run = tiny(**subspace(method={"personal_epochs": 0}, run={"rounds": 1}))
    weight = run.model(run.sites[0]).network.head.weight.detach()
    assert torch.equal(weight, torch.eye(3))


@pytest.mark.parametrize("align", [True, False])
def test_stiefel_frames_stay_orthonormal(tiny, align):
    run = tiny(
        **subspace(
            "tesnet-stiefel", method={"align": align}, run={"record_updates": True, "rounds": 2}
        )
    )
    for tensors in sent(run).values():
        if FRAMES in tensors:
            assert deviation(tensors[FRAMES]).max() < 1e-5
    assert deviation(run.model().network.head.frames.detach()).max() < 1e-5


@pytest.mark.parametrize("basis", ["home", "frozen"])
def test_personalized_tesnet_sends_no_basis(tiny, basis):
    run = tiny(
        **subspace(
            "tesnet-personalized",
            method={"basis": basis},
            run={"record_updates": True, "rounds": 2},
        )
    )
    assert not any(FRAMES in tensors for tensors in sent(run).values())
    frames = [run.model(site).network.head.frames.detach() for site in run.sites]
    assert torch.equal(frames[0], frames[1]) == (basis == "frozen")


@pytest.mark.parametrize("model", ["tesnet", "tesnet-stiefel", "fedgrasp"])
@pytest.mark.parametrize("name", ["centralized", "local"])
def test_every_model_exists_alone_and_in_one_place(tiny, name, model):
    run = tiny(method={"name": name, "model": model}, run={"rounds": 1})
    site = run.sites[0]
    network = run.model(site if name == "local" else None).network
    if model != "tesnet":
        assert deviation(network.head.frames.detach()).max() < 1e-5
    if model == "fedgrasp":
        assert torch.equal(network.head.weight.detach(), torch.eye(3))
    assert not torch.equal(network.head.frames.detach(), drawn(run, model))


def drawn(run, model):
    """The frames that everybody who knows the seed starts with."""
    key = derive_server_key(run.config.run.seed).at("init")
    return make_network(run.config.model, model, 3, 3, key)[0].head.frames.detach()


def test_the_server_draws_the_first_frames(tiny):
    run = tiny(**subspace(run={"rounds": 0}))
    assert torch.equal(run.model().network.head.frames.detach(), drawn(run, "fedgrasp"))
    assert drawn(run, "fedgrasp").shape == (3, 64, 3)


def test_a_defense_that_bends_frames_does_not_get_the_site_refused(tiny, tmp_path):
    """Noise takes frames off the manifold; the door brings them back before they leave."""
    plugin = tmp_path / "noisy.py"
    plugin.write_text(NOISY)
    run = tiny(
        **subspace(run={"plugins": [str(plugin)], "record_updates": True}),
        release={"defenses": ["noisy"]},
    )
    assert "refused" not in (run.path / "log.txt").read_text()
    for tensors in sent(run).values():
        if FRAMES in tensors:
            assert deviation(tensors[FRAMES]).max() < 1e-5


NOISY = '''
from dataclasses import replace

import torch

from vitrail.release import DEFENSES, Defense


@DEFENSES.register("noisy")
class Noisy(Defense):
    """Adds noise to everything."""

    def apply(self, update, site, ctx):
        source = site.key.at("noisy").torch()
        noised = {n: t + 0.05 * torch.randn(t.shape, generator=source)
                  for n, t in update.tensors.items()}
        return replace(update, tensors=noised), {}
'''


@pytest.mark.parametrize("rule", ["grassmann", "stiefel", "karcher"])
def test_a_mean_of_frames_for_weights_is_refused_before_the_run(tiny, tmp_path, rule):
    with pytest.raises(ConfigError, match=r"aggregate\.rule: .*averages frames, and 'model/"):
        tiny(aggregate={"rule": rule}, run={"rounds": 1})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"top": 500}, r"model\.subspaces\.top: 500 patches .* the map has \d+ positions"),
        ({"dimension": 9, "depth": 8}, r"model\.subspaces\.dimension: .* 9 orthogonal .* in 8"),
    ],
)
def test_more_patches_or_dimensions_than_there_are_stop_the_run_before_it_starts(
    tiny, tmp_path, options, said
):
    with pytest.raises(ConfigError, match=said):
        tiny(**subspace(model={"subspaces": options}))
    assert not (tmp_path / "run").exists()


def test_a_class_without_images_anywhere_is_refused(tmp_path):
    pixels = np.zeros((24, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "a.npz", x=pixels, y=np.array(["cat", "dog"] * 12))
    config = {
        "data": {
            "source": "npz",
            "path": str(tmp_path / "a.npz"),
            "classes": ["cat", "ghost", "dog"],
        },
        "method": {"name": "fedgrasp"},
    }
    with pytest.raises(DataError, match=r"data\.classes: no image has the class 'ghost'"):
        vitrail.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_subspaces_can_begin_at_what_the_patches_span(tiny):
    """One round more, in which frames alone travel and move."""
    start = {"start": "patches", "personal_epochs": 0}
    run = tiny(**subspace(method=start, run={"record_updates": True, "rounds": 2}))
    first = {name: t for name, t in sent(run).items() if "round-00001" in name}
    assert len(first) == 5 and all(set(t) == {FRAMES} for t in first.values())
    down = next(t[FRAMES] for name, t in first.items() if "updates" not in name)
    moved = [
        grassmann.projection_distance(t[FRAMES], down) for n, t in first.items() if "updates" in n
    ]
    assert len(moved) == 4 and all(float(far.max()) > 0.1 for far in moved)
    later = [t for name, t in sent(run).items() if "round-00002" in name]
    assert all("model/neck.conv1.weight" in t for t in later)


def test_a_start_from_patches_leaves_a_round_to_train(tiny):
    with pytest.raises(ConfigError, match="none is left to train"):
        tiny(**subspace(method={"start": "patches"}, run={"rounds": 1}))
