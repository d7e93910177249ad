"""One table of axioms: every method x {one site, dropout, refused update, resume, two workers}."""

import math

import pytest
import torch

import vitrail
import vitrail.engine.round as rounds
from vitrail.config import parse
from vitrail.engine.sampling import Draw
from vitrail.errors import ConfigError
from vitrail.files import read_tensors
from vitrail.methods import METHODS
from vitrail.methods.base.method import resolve_method_options
from vitrail.models.parts import PARTS

CORRUPT = '''
from dataclasses import replace

from vitrail.config.schema import Section
from vitrail.release import DEFENSES, Defense


class SiteOption(Section):
    site: str


@DEFENSES.register("corrupt")
class Corrupt(Defense):
    """In round 2 one site sends a NaN, or a count below zero if it sends no tensor."""

    Options = SiteOption

    def apply(self, update, site, ctx):
        if ctx.round != 2 or site.name != self.options.site:
            return update, {}
        if not update.tensors:
            return replace(update, counts={**update.counts, "examples": -1}), {}
        name = sorted(update.tensors)[0]
        bad = update.tensors[name].clone()
        bad.view(-1)[0] = float("nan")
        return replace(update, tensors={**update.tensors, name: bad}), {}
'''
SCENARIOS = (
    "one site",
    "dropout",
    "refused",
    "resume",
    pytest.param("two workers", marks=pytest.mark.slow),
)


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    path = tmp_path_factory.mktemp("plugin") / "corrupt.py"
    path.write_text(CORRUPT)
    return str(path)


@pytest.fixture
def plain_run(run_once):
    """The undisturbed run of a method, made once."""
    return lambda name: run_once(name, quick(name))


def quick(name, **run):
    """A method with as few epochs of its own as it takes, few prototypes and no references."""
    own = METHODS[name].Options.model_fields
    epochs = {key: 1 for key in ("warm_epochs", "last_epochs") if key in own}
    epochs |= {key: 2 for key in ("steps", "model_steps") if key in own}
    epochs |= {key: 8 for key in ("negatives",) if key in own}
    public = {"aviary": {"images": 24, "classes": 3, "seed": 11}}
    return {
        "data": {"public": public} if METHODS[name].server_data == "public" else {},
        "method": {"name": name, **epochs},
        "model": {"prototypes": {"per_class": 2, "depth": 8}},
        "run": {"local_reference": False, **run},
    }


def refused(plugin, site):
    return {
        "release": {"defenses": ["corrupt"], "corrupt": {"site": site}},
        "run": {"plugins": [plugin]},
    }


def healthy(run, tensors):
    assert run.finished and run.round == 3
    assert all(bool(torch.isfinite(t).all()) for t in tensors.values())
    rows = run.rows()
    figures = [v for row in rows for v in row.values() if isinstance(v, float)]
    assert figures and all(math.isfinite(v) for v in figures)
    first = 0 if METHODS[run.config.method.name].sends_global else 1
    assert {row["round"] for row in rows} == set(range(first, 4))
    final = [row for row in rows if row["round"] == 3 and row["site"] != "*"]
    assert sorted(row["site"] for row in final) == sorted(run.sites)
    assert all(row["test_examples"] == 0 or 0 <= row["accuracy"] <= 1 for row in final)


def stopping(progress):
    if progress.round == 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("name", METHODS)
def test_axioms(name, scenario, tiny, tmp_path, plugin, plain_run, ending, same_bits):
    pooled = METHODS[name].pooled
    if scenario == "one site":
        run = tiny(**quick(name), partition={"sites": 1, "kind": "iid"})
        again = tiny("again", **quick(name), partition={"sites": 1, "kind": "iid"})
        assert same_bits(run.path, again.path)
    elif scenario == "dropout":
        run = tiny(**quick(name, dropout=0.4))
        again = tiny("again", **quick(name, dropout=0.4))
        assert same_bits(run.path, again.path)
        assert pooled or "dropped out" in (run.path / "log.txt").read_text()
    elif scenario == "refused":
        site = "pooled" if pooled else "site-01"
        bad = refused(plugin, site)
        run = tiny(**quick(name, **bad["run"]), release=bad["release"])
        log = (run.path / "log.txt").read_text()
        assert log.count("refused") == 1 and f"round 2: refused {site}:" in log
        rows = {(row["round"], row["site"]): row for row in run.rows()}
        assert rows[2, "*"]["refused"] == 1 and rows[2, "*"]["accepted"] == (0 if pooled else 3)
        assert not same_bits(run.path, plain_run(name).path)
    elif scenario == "resume":
        with pytest.raises(KeyboardInterrupt):
            tiny("stopped", on_round=stopping, **quick(name))
        run = vitrail.resume(tmp_path / "stopped")
        assert same_bits(run.path, plain_run(name).path)
    else:
        run = tiny(**quick(name, workers=2))
        assert same_bits(run.path, plain_run(name).path)
    healthy(run, ending(run.path))


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedbn"])
def test_a_refused_update_equals_a_dropout(name, tiny, plugin, monkeypatch, same_bits):
    config = {"method": {"name": name}, "run": {"rounds": 4}}
    bad = refused(plugin, "site-01")
    bad["run"] |= config["run"]
    refusing = tiny("refusing", method=config["method"], **bad)
    real = rounds.draw_sites

    def without(examples, run, key, everybody):
        found = real(examples, run, key, everybody)
        if key.path != ("round", "2"):
            return found
        return Draw(tuple(s for s in found.sites if s != "site-01"), {"site-01": "dropped out"})

    monkeypatch.setattr(rounds, "draw_sites", without)
    dropping = tiny("dropping", **config)
    assert "refused site-01" in (refusing.path / "log.txt").read_text()
    assert "without site-01" in (dropping.path / "log.txt").read_text()
    assert same_bits(refusing.path, dropping.path)


@pytest.mark.parametrize("name", ["fedbn", "fedper", "local"])
def test_home_tensors_never_leave_and_differ_between_sites(name, tiny):
    run = tiny(method={"name": name}, run={"record_updates": True})
    home, travels = {}, set()
    for site in run.sites:
        files = sorted(run.path.glob(f"sites/{site}/state/*.safetensors"))
        home[site] = {n.removeprefix("home/"): t for n, t in read_tensors(files[-1])[0].items()}
    for file in run.path.glob("server/transcript/*/*.safetensors"):
        travels |= {n.removeprefix("model/") for n in read_tensors(file)[0]}
    names = set(home[run.sites[0]])
    assert names and not names & travels
    everything = {n for n in run.model(run.sites[0]).network.state_dict() if "num_batches" not in n}
    assert names | travels == everything
    if name == "local":
        assert not travels
    if name == "fedper":
        assert names == {"head.weight", "head.bias"}
    if name == "fedbn":  # by type of module: all of a BatchNorm, and nothing else
        assert {"bn" in n or "downsample.1" in n for n in names} == {True}
        assert not any("bn" in n or "downsample.1" in n for n in travels)
    first, second = (run.model(site).network.state_dict() for site in run.sites[:2])
    for tensor in names:
        assert not torch.equal(first[tensor], second[tensor]), tensor
    assert all(torch.equal(first[tensor], second[tensor]) for tensor in travels)
    with pytest.raises(vitrail.errors.RunError, match="no global model"):
        run.model()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": {"name": "feddyn"}, "aggregate": {"rule": "median"}}, "its own mean only"),
        ({"method": {"name": "feddyn"}, "aggregate": {"weights": "examples"}}, "its own mean only"),
        (
            {"aggregate": {"rule": "median", "weights": "examples"}},
            "every site count the same",
        ),
        ({"method": {"name": "feddyn", "alpha": 0.0}}, "alpha"),
        ({"method": {"name": "feddyn", "alpha": -0.1}}, "alpha"),
        ({"method": {"name": "feddyn", "clip": 0.0}}, "clip"),
        ({"method": {"name": "feddyn", "clip": -1.0}}, "clip"),
        ({"method": {"name": "fedprox", "mu": -0.1}}, "mu"),
        ({"method": {"name": "fedsam", "rho": -0.1}}, "rho"),
        ({"method": {"name": "fednova"}, "aggregate": {"rule": "krum"}}, "no plain mean"),
        ({"method": {"name": "local"}, "aggregate": {"rule": "median"}}, "no plain mean"),
        ({"aggregate": {"rule": "nova"}}, "count 'tau'"),
        ({"release": {"defenses": ["tipp"]}}, "no defense"),
        ({"release": {"tip": {"r": 0.1}}}, "not in release.defenses"),
        ({"release": {"defenses": ["none"], "none": {"r": 1}}}, "release.none.r"),
        ({"method": {"name": "fedbn"}, "model": {"backbone": "small-cnn"}}, "trains none"),
        ({"method": {"name": "fednova"}, "optimizer": {"name": "adam"}}, "FedNova"),
        ({"run": {"min_sites": 9}}, "run.min_sites"),
        ({"run": {"device": "mps"}}, "no mps device"),
    ],
)
def test_combinations_that_cannot_be_right_stop_before_they_start(tiny, tmp_path, changes, words):
    with pytest.raises(ConfigError, match=words):
        tiny("refused", **changes)
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("name", METHODS)
def test_a_given_decay_is_that_of_every_part_and_survives_being_stored(name):
    given = parse({"method": {"name": name}, "optimizer": {"weight_decay": 0.125}})
    stored = resolve_method_options(given).optimizer
    own = METHODS[name]({}, "test").optimizer
    for settings in (own.override_with(given.config.optimizer), own.override_with(stored)):
        assert {settings.of(part)[1] for part in PARTS} == {0.125}
        assert {p: settings.of(p)[0] for p in PARTS} == {p: own.of(p)[0] for p in PARTS}
