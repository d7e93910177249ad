"""A finished run opened again: the same preprocessing, the same start, the same images."""

import hashlib
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file

import vitrail
import vitrail.runs.personalize_head as later
from vitrail.attack.server_view import ServerView
from vitrail.config.schema import Model
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.errors import RunError
from vitrail.files import read_tensors, write_tensors
from vitrail.local.evaluate import evaluate
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key
from vitrail.runs.opened_run import Run
from vitrail.runs.reopen import ensure_local_model, load_run_federation, reopen_host

PUBLIC = {"source": "embedded", "aviary": {"images": 12, "classes": 3, "seed": 9}}


@pytest.fixture
def pretrained(tiny, tmp_path):
    """A function: a run whose backbone begins with the tensors of a file, and those tensors."""
    start = tiny("donor", run={"rounds": 0, "seed": 11}).model().network.backbone.state_dict()
    save_file(start, tmp_path / "w.safetensors")

    def get(out="run", **changes):
        model = {"weights": str(tmp_path / "w.safetensors"), **changes.pop("model", {})}
        return tiny(out, model=model, **changes), start

    return get


@pytest.fixture
def two_threads():
    """A context in which the caller computes with two threads."""

    @contextmanager
    def inside():
        torch.set_num_threads(2)
        try:
            yield
        finally:
            torch.set_num_threads(1)

    return inside


def begins_with(network, start):
    found = network.backbone.state_dict()
    return all(torch.equal(found[name], tensor) for name, tensor in start.items())


def test_a_run_from_pretrained_weights_is_reopened_as_it_began(pretrained, tmp_path):
    run, start = pretrained(run={"rounds": 1})
    (tmp_path / "w.safetensors").unlink()  # a run stands alone
    host = reopen_host(run, load_run_federation(run))
    assert host.inputs.normalize.name == "imagenet"
    assert list(host.inputs.normalize.shift) == run.card["shift"]
    assert list(host.inputs.normalize.scale) == run.card["scale"]
    assert begins_with(host.model.network, start)
    attacker = ServerView(run)
    assert begins_with(attacker.network, start)
    assert attacker.plan.config.data.normalize == "imagenet"
    assert not begins_with(run.model().network, start)  # or the start would be the end


def test_a_local_reference_made_later_is_that_of_the_run(pretrained):
    first, _ = pretrained("first", run={"rounds": 1, "local_reference": True})
    later, _ = pretrained("later", run={"rounds": 1, "local_reference": False})
    site = later.sites[0]
    assert SiteFolder(later.path, site).load_model("local") is None
    ensure_local_model(later, load_run_federation(later), site)
    made, known = (SiteFolder(r.path, site).load_model("local") for r in (later, first))
    assert made.keys() == known.keys()
    assert all(torch.equal(made[name], known[name]) for name in known)


def test_the_common_start_of_backbones_that_stay_home_is_that_of_the_weights(pretrained):
    run, start = pretrained(method={"name": "local"}, run={"rounds": 1})
    network, normalize = run.extractor()
    assert begins_with(network, start) and normalize.name == "imagenet"


def test_an_older_run_finds_its_start_in_the_weights_file_or_says_so(pretrained, tmp_path):
    run, start = pretrained(run={"rounds": 1})
    Checkpoints(run.folder.server).start_file.unlink()
    assert begins_with(reopen_host(run, load_run_federation(run)).model.network, start)
    save_file({n: t + 1 if t.is_floating_point() else t for n, t in start.items()}, tmp_path / "w")
    (tmp_path / "w").replace(tmp_path / "w.safetensors")
    with pytest.raises(RunError, match=r"began with are no longer there.*Put .*w\.safetensors"):
        reopen_host(run, load_run_federation(run))
    (tmp_path / "w.safetensors").unlink()
    with pytest.raises(RunError, match=r"began with are no longer there"):
        reopen_host(run, load_run_federation(run))


def test_a_start_that_a_seed_gives_is_not_written(tiny, pretrained):
    assert not Checkpoints(tiny("plain", run={"rounds": 0}).folder.server).start_file.exists()
    frozen, start = pretrained(model={"frozen": True}, run={"rounds": 0})
    assert not Checkpoints(frozen.folder.server).start_file.exists()
    assert begins_with(reopen_host(frozen, load_run_federation(frozen)).model.network, start)


@pytest.mark.parametrize("older", [False, True])
def test_public_images_are_not_taken_for_those_of_the_sites(tiny, tmp_path, older):
    def stop(progress):
        if progress.round == 1:
            raise KeyboardInterrupt

    changes = {"method": {"name": "feddf", "steps": 1}, "data": {"public": PUBLIC}}
    with pytest.raises(KeyboardInterrupt):
        tiny("run", stop, **changes, run={"rounds": 2})
    if older:  # which wrote one digest behind the other
        file = Checkpoints(tmp_path / "run" / "server").path(1)
        tensors, meta = read_tensors(file)
        meta["data"] += meta.pop("public")
        write_tensors(file, tensors, meta)
    vitrail.resume(tmp_path / "run")
    run = Run(tmp_path / "run")
    assert len(load_run_federation(run).sites) == 4
    assert later.personalize(run, run.sites[0], epochs=1).file.exists()
    file = Checkpoints(run.folder.server).path(run.round)
    tensors, meta = read_tensors(file)
    write_tensors(file, tensors, {**meta, "data": hashlib.blake2b(digest_size=16).hexdigest()})
    with pytest.raises(RunError, match="images of this run changed"):
        load_run_federation(run)


def test_other_public_images_are_refused_at_a_resume(tiny, tmp_path):
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny("run", stop, method={"name": "feddf", "steps": 1}, data={"public": PUBLIC})
    file = Checkpoints(tmp_path / "run" / "server").path(1)
    tensors, meta = read_tensors(file)
    write_tensors(file, tensors, {**meta, "public": "0" * 32})
    with pytest.raises(RunError, match="public images of this run changed"):
        vitrail.resume(tmp_path / "run")


def test_directions_of_many_classes_do_not_depend_on_the_callers_threads(two_threads):
    def head():
        model = Model(backbone="resnet8", width=32)
        return make_network(model, "sphere", 3, 100, derive_server_key(5).at("init"))[0].head.weight

    one = head()
    with two_threads():
        two = head()
    assert torch.equal(one, two)


def test_personalize_computes_on_one_thread(tiny, two_threads, monkeypatch):
    run, counts = tiny(run={"rounds": 1}), []

    def watched(*args):
        counts.append(torch.get_num_threads())
        return evaluate(*args)

    monkeypatch.setattr(later, "evaluate", watched)
    with two_threads():
        later.personalize(run, run.sites[0], epochs=1)
        assert torch.get_num_threads() == 2  # the caller gets them back
    assert counts == [1, 1]
