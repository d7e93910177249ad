"""MyTH and inDISCO: what travels, what stays, what moves when, and the traps of absent classes."""

import json

import pytest
import torch

import vitrail
from vitrail.engine.plan import make_plan
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.local.phases.push import ROW
from vitrail.methods import METHODS
from vitrail.release.door import Door

SMALL = {
    "data": {"image_size": 16, "aviary": {"images": 45, "classes": 3}},
    "partition": {"kind": "iid", "sites": 3, "minimum": 6},
    "model": {
        "backbone": "small-cnn",
        "width": 8,
        "prototypes": {"per_class": 2, "depth": 8},
    },
    "run": {"rounds": 3, "local_reference": False},
}
EPOCHS = {"warm_epochs": 1, "last_epochs": 2}
HEAD = {"model/head.vectors": (6, 8), "model/head.weight": (3, 6), "model/head.mask": (6,)}
SKEWED = {"kind": "shards", "shards": 1, "sites": 3, "minimum": 6}  # one class a site


@pytest.fixture
def myth(tiny):
    """A function: run a prototype method on a federation of three small sites."""

    def run(name="myth-pm", out="run", on_round=None, options=None, **changes):
        sections = {**SMALL, **{k: {**SMALL.get(k, {}), **v} for k, v in changes.items()}}
        method = {"name": name, **EPOCHS, **(options or {})}
        return tiny(out, on_round, method=method, **sections)

    return run


def sent(run, round_):
    folder = run.path / "server" / "transcript" / f"round-{round_:05d}"
    return read_tensors(folder / "sent.safetensors")[0]


def update(run, round_, site="site-00"):
    folder = run.path / "server" / "transcript" / f"round-{round_:05d}"
    return read_tensors(folder / "updates" / f"{site}.safetensors")[0]


def moved(run, round_):
    """The tensors in which a site's update differs from what it received."""
    down, up = sent(run, round_), update(run, round_)
    return {n.removeprefix("model/") for n in up if not torch.equal(up[n], down[n])}


def models(run, kind):
    """A kind of model of every site, as the bytes on disk."""
    return {s: SiteFolder(run.path, s).model_file(kind).read_bytes() for s in run.sites}


def state(run, *which):
    return run.model(*which).network.state_dict()


def same_state(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


# What travels


def test_what_was_declared_is_what_left(myth, releases):
    run = myth(run={"record_updates": True})
    for round_ in (1, 2, 3):
        assert set(sent(run, round_)) == set(update(run, round_)) == set(HEAD)
    for lines in releases(run.path).values():
        assert [line["bytes"] for line in lines] == [288, 288, 288, 0]  # and figures at the end
    first, second = (state(run, site) for site in run.sites[:2])
    assert all(not torch.equal(first[n], second[n]) for n in first if n.startswith("backbone."))
    with pytest.raises(RunError, match="no global model"):
        run.model()


def test_a_stage_of_the_backbone_is_averaged_and_the_others_are_not(myth):
    run = myth(options={"share": ["backbone.stage3", "prototypes", "head"]})
    first, second = (state(run, site) for site in run.sites[:2])
    assert torch.equal(first["backbone.stage3.conv.weight"], second["backbone.stage3.conv.weight"])
    assert not torch.equal(
        first["backbone.stage2.conv.weight"], second["backbone.stage2.conv.weight"]
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"share": ["prototype"]}, r"method\.share: there is no part 'prototype'.*'prototypes'"),
        ({"share": ["backbone.stage9"]}, r"'backbone\.stage9'.*Did you mean 'backbone\.stage"),
        ({"first_share": ["necks"]}, r"method\.first_share: there is no part 'necks'.*'neck'"),
        ({"share": ["prototypes"], "match": True}, "match needs both prototypes and head"),
        ({"first_share": ["head"], "match": True}, "match needs both prototypes and head"),
        ({"warm_epochs": 0}, r"method\.warm_epochs"),
        ({"shares": ["head"]}, r"method\.shares.*Did you mean 'share'"),
    ],
)
def test_options_that_cannot_be_meant_are_one_clear_sentence(myth, tmp_path, options, words):
    with pytest.raises(ConfigError, match=words) as err:
        myth(options=options)
    assert "\n" not in str(err.value) and not (tmp_path / "run").exists()


def test_gm_has_no_option_to_share_less(myth):
    with pytest.raises(ConfigError, match="unknown"):
        myth("myth-gm", options={"share": ["head"]})


# What moves when


def test_the_first_round_is_warm_only_and_the_last_layer_waits_for_its_phase(myth):
    run = myth("myth-gm", run={"record_updates": True})
    assert moved(run, 1) == {"neck.conv1.weight", "neck.conv1.bias"} | {
        "neck.conv2.weight",
        "neck.conv2.bias",
        "head.vectors",
    }
    later = moved(run, 2)
    assert "backbone.stage1.conv.weight" in later and "head.weight" in later  # joint, then last
    assert "head.mask" not in later


def test_in_pm_the_last_layer_moves_on_arrival_only(myth):
    run = myth(run={"record_updates": True})
    assert moved(run, 1) == {"head.vectors"}  # warm
    assert moved(run, 2) == {"head.vectors"}  # joint, nothing on arrival yet
    assert moved(run, 3) == {"head.vectors", "head.weight"}  # push, last layer, joint


def test_what_is_shared_later_starts_from_what_was_learned_at_home(myth):
    """The first round may share less; its warm-up must not be thrown away by the second.

    Every site draws its own add-on layers, so that the server's are far from all of them.
    """
    options = {"first_share": ["prototypes", "head"], "same_start": False}
    options["share"] = ["neck", "prototypes", "head"]
    run = myth(options=options, run={"record_updates": True, "rounds": 2})
    start, early = sent(run, 2), myth(out="early", options=options, run={"rounds": 1})
    warm = state(early, "site-00")["neck.conv1.weight"]
    fresh = start["model/neck.conv1.weight"]  # the server's, which nobody trained
    found = update(run, 2)["model/neck.conv1.weight"]
    assert (found - warm).norm() < 0.1 * (found - fresh).norm()


def test_nothing_can_be_shared_in_the_first_round(myth):
    run = myth(options={"first_share": []}, run={"record_updates": True})
    assert update(run, 1) == {} and set(update(run, 2)) == set(HEAD)


# The trap: classes that a site does not have


@pytest.mark.parametrize("options", [{}, {"match": True}, {"prune": True}])
def test_prototypes_of_an_absent_class_never_become_zero(myth, options):
    run = myth(partition=SKEWED, options=options, run={"record_updates": True})
    counts = json.loads((run.path / "partition.json").read_text())["train"]
    assert all(sum(n > 0 for n in row) == 1 for row in counts)  # one class each
    for round_ in (1, 2, 3):
        for site in run.sites:
            assert (update(run, round_, site)["model/head.vectors"].abs().sum(1) > 0.1).all()
    server = sent(run, 3)["model/head.vectors"]
    for at, site in enumerate(run.sites):
        own = [n > 0 for n in counts[at] for _ in range(2)]
        assert (run.own(site, "personal")[ROW] >= 0).tolist() == own
        vectors = state(run, site)["head.vectors"]
        assert vectors.isfinite().all() and (vectors.abs().sum(1) > 0.1).all()
        assert vectors.shape == server.shape
        assert all(state(run, site)["head.mask"][j] == 1 for j in range(6) if not own[j])
    final = [row for row in run.rows() if row["round"] == 3 and row["site"] != "*"]
    assert [row["grounded"] for row in final] == pytest.approx([1 / 3] * 3)


def test_a_real_push_ends_at_patches_and_absent_classes_at_the_mean(myth):
    """What a site cannot ground is what it received, untouched."""
    run = myth(partition=SKEWED, run={"rounds": 1})
    views = read_tensors(run.path / "server" / "checkpoints" / "round-00001.safetensors")[0]
    mean = views["model/head.vectors"]
    for site in run.sites:
        lost = run.own(site, "personal")[ROW] < 0
        vectors = state(run, site)["head.vectors"]
        assert torch.equal(vectors[lost], mean[lost])
        assert not torch.equal(vectors[~lost], mean[~lost])


# Options


def test_matching_pairs_slots_that_one_site_sends_in_another_order(myth, monkeypatch):
    straight = myth(out="straight", options={"match": True}, run={"rounds": 1})
    real = Door._collect

    def crossed(self, site, schema, extra):
        found = real(self, site, schema, extra)
        if self.site == "site-01" and found:  # the two slots of every class change places
            order = [1, 0, 3, 2, 5, 4]
            found["model/head.vectors"] = found["model/head.vectors"][order]
            found["model/head.weight"] = found["model/head.weight"][:, order]
        return found

    monkeypatch.setattr(Door, "_collect", crossed)
    for match in (True, False):
        run = myth(out=f"crossed {match}", options={"match": match}, run={"rounds": 1})
        ends = [
            read_tensors(r.path / "server" / "checkpoints" / "round-00001.safetensors")[0]
            for r in (straight, run)
        ]
        vectors = [end["model/head.vectors"] for end in ends]
        assert torch.allclose(*vectors, atol=1e-6) == match


def test_without_a_same_start_every_site_draws_its_own_add_on_layers(myth):
    runs = {
        same: myth(out=str(same), options={"same_start": same}, run={"rounds": 1})
        for same in (True, False)
    }
    far = {
        same: float(
            (
                state(run, "site-00")["neck.conv1.weight"]
                - state(run, "site-01")["neck.conv1.weight"]
            ).norm()
        )
        for same, run in runs.items()
    }
    assert far[False] > 5 * far[True] > 0


@pytest.mark.parametrize("name", ["myth-gm", "myth-pm"])
def test_pruning_masks_at_the_end_and_at_the_site_only(myth, name):
    run = myth(name, options={"prune": True}, run={"record_updates": True})
    assert sent(run, 3)["model/head.mask"].tolist() == [1.0] * 6
    final = {r["site"]: r for r in run.rows() if r["round"] == 3 and r["site"] != "*"}
    for site in run.sites:
        mask = state(run, site)["head.mask"]
        assert set(mask.tolist()) <= {0.0, 1.0}
        assert final[site]["pruned"] == pytest.approx(1 - float(mask.mean()))
        assert run.model(site)(torch.zeros(1, 3, 16, 16)).isfinite().all()
    assert any(row["pruned"] > 0 for row in final.values())  # the case prunes something


# Models: global, personal, local


def test_the_personal_model_of_gm_is_the_global_one(myth):
    run = myth("myth-gm")
    for site in run.sites:
        assert same_state(state(run, site), state(run))
        assert (run.own(site, "personal")[ROW] >= 0).all()  # with pictures of its own


def test_the_local_reference_of_pm_is_a_local_run(myth):
    """Same stages, same draws, nothing shared: the same model, to the bit."""
    pm = myth("myth-pm", "pm", run={"local_reference": True})
    local = myth("local", "local", options={"model": "protopnet"})
    assert models_tensors(pm, "local").keys() == models_tensors(local, "personal").keys()
    for name, tensor in models_tensors(local, "personal").items():
        assert torch.equal(models_tensors(pm, "local")[name], tensor), name


def models_tensors(run, kind):
    return {
        f"{site}/{name}": tensor
        for site in run.sites
        for name, tensor in SiteFolder(run.path, site).load_model(kind).items()
    }


def test_the_local_reference_of_gm_follows_gms_own_stages(myth):
    """No real push: prototypes end between patches, and differ from PM's reference."""
    gm = myth("myth-gm", "gm", run={"local_reference": True})
    pm = myth("myth-pm", "pm", run={"local_reference": True})
    for site in gm.sites:
        assert not same_state(state(gm, site, "local"), state(pm, site, "local"))
        assert not same_state(state(gm, site, "local"), state(gm, site, "personal"))
        assert (gm.own(site, "local")["push/distance"] > 1e-4).any()


def test_a_local_reference_leaves_nothing_and_changes_nothing(myth, releases):
    with_it = myth(out="with", run={"local_reference": True})
    without = myth(out="without")
    assert models(with_it, "personal") == models(without, "personal")
    assert releases(with_it.path) == releases(without.path)
    with pytest.raises(RunError, match="no local model"):
        without.model("site-00", "local")


def test_prototype_methods_train_a_reference_unless_told_not_to(myth):
    run = myth(run={"local_reference": None, "rounds": 1})
    assert all(SiteFolder(run.path, s).model_file("local").exists() for s in run.sites)


@pytest.mark.parametrize("name", ["local", "centralized"])
def test_references_of_a_comparison_train_prototypes_too(myth, name):
    run = myth(name, options={"model": "protopnet"})
    for site in run.sites:
        assert (run.own(site, "personal")[ROW] >= 0).all()
        assert run.own(site, "personal")["push/distance"].isfinite().all()
    if name == "centralized":
        assert run.sites == ("pooled",)
        assert not same_state(state(run, "pooled"), state(run))  # pushed, and its last layer tuned


def test_no_rounds_at_all_still_ends(myth):
    run = myth(run={"rounds": 0})
    assert run.finished and state(run, "site-00")["head.vectors"].isfinite().all()


# Bits


class Killed(BaseException):
    """As sudden as a signal: nothing in the engine catches it."""


@pytest.mark.parametrize("moment", ["first personal", "closing", "first reference"])
def test_a_kill_in_the_closing_part_changes_no_file(myth, tmp_path, monkeypatch, moment):
    options, run = {"prune": True}, {"local_reference": True, "rounds": 2}
    whole = myth(out="whole", options=options, run=run)
    real = SiteFolder.save_model

    def save(self, kind, tensors):
        real(self, kind, tensors)
        if moment == f"first {'personal' if kind == 'personal' else 'reference'}" and (
            self.path.is_relative_to(tmp_path / "stopped")
        ):
            raise Killed

    def on_round(progress):
        if moment == progress.note:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(SiteFolder, "save_model", save)
        with pytest.raises(Killed):
            myth(out="stopped", on_round=on_round, options=options, run=run)
    stopped = vitrail.resume(tmp_path / "stopped")
    assert stopped.finished
    for kind in ("personal", "local"):
        assert models(stopped, kind) == models(whole, kind)
    for file in ("ledger.jsonl",):
        for site in whole.sites:
            folders = (SiteFolder(r.path, site).path for r in (whole, stopped))
            one, other = ((folder / file).read_text() for folder in folders)
            assert one == other
    quiet = [
        [{k: v for k, v in row.items() if k != "seconds"} for row in r.rows()]
        for r in (whole, stopped)
    ]
    assert quiet[0] == quiet[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["myth-gm", "myth-pm"])
def test_one_and_two_workers_make_the_same_models(myth, same_bits, name):
    run = {"local_reference": True, "rounds": 2}
    one = myth(name, "one", run=run)
    two = myth(name, "two", run={**run, "workers": 2})
    assert same_bits(one.path, two.path)
    for kind in ("personal", "local"):
        assert models(one, kind) == models(two, kind)


def test_in_the_public_space_necks_stay_as_they_began_and_prototypes_travel(tiny):
    run = tiny(
        method={"name": "myth-pm", "space": "public", "warm_epochs": 1, "last_epochs": 1},
        run={"rounds": 2, "local_reference": False},
    )
    necks, vectors = [], []
    for site in run.sites:
        network = run.model(site).network
        necks.append(network.neck.state_dict())
        vectors.append(network.head.vectors.detach())
    _, start = make_plan(run.loaded, run.classes, run.card["channels"])
    for neck in necks:
        for name, tensor in start.neck.state_dict().items():
            assert torch.equal(neck[name], tensor)
    assert not torch.equal(vectors[0], start.head.vectors.detach())


@pytest.mark.parametrize(
    "wrong", [{"share": ["neck", "prototypes", "head"]}, {"same_start": False}]
)
def test_a_public_space_is_the_same_start_for_all_and_no_shared_neck(wrong):
    with pytest.raises(ConfigError, match="public"):
        METHODS["myth-pm"]({"space": "public", **wrong})
