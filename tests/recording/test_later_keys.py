"""A key that comes later leaves run folders as they are: they open, are reported and go on to the
same end, and their digests are those of the keys they have."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import create_model

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cases import STORED
from measure import measure
from record import FOLDERS
from test_recording import RECORDED, check, spread

import vitrail
from vitrail.config import dump, parse, schema, to_stored_tree
from vitrail.config.added_keys import added
from vitrail.engine.resolve_config import fingerprint_config, fingerprint_run, resolve_config
from vitrail.engine.site_turn import compute_mechanism_digest
from vitrail.engine.storage.checkpoint import Checkpoints
from vitrail.engine.storage.run_folder import RunFolder
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.flower.run_terms import make_terms, merge_terms
from vitrail.flower.terms_digest import digest_terms
from vitrail.methods import METHODS, make_method
from vitrail.release import DEFENSES
from vitrail.release.defenses.defense import make_defense
from vitrail.sweep.cells import copy_finished_runs, make_cells, run_sweep

LOADING = sys.modules["vitrail.config.load"]  # the package has a function of that name
NEW, OLD = 7, 3
DEFAULTS = {
    "bare": lambda: NEW,
    "declared": lambda: added(NEW),
    "changed": lambda: added(NEW, before=OLD),
}
BEFORE = {"bare": NEW, "declared": NEW, "changed": OLD}
METHOD_NAMES = {
    stored.config().get("method", {}).get("name", "fedavg") for stored in STORED.values()
}
GRID = {
    "data": {"image_size": 8, "aviary": {"images": 24, "classes": 2}},
    "partition": {"sites": 2},
    "model": {"backbone": "small-cnn", "width": 4},
    "release": {"defenses": ["client-dp"], "client-dp": {"epsilon": 4.0, "delta": 0.001}},
    "run": {"rounds": 1},
    "sweep": {"seeds": [1]},
}


@pytest.fixture
def later(monkeypatch):
    """A function: from now on, `[run]`, `[release]`, `[data.augment]`, the methods and client-dp
    have one more key."""

    def extend(base, kind):
        return create_model(base.__name__, __base__=base, later=(int, DEFAULTS[kind]()))

    def come(kind):
        run, release = extend(schema.Run, kind), extend(schema.Release, kind)
        augment = extend(schema.Augment, kind)
        data = create_model("Data", __base__=schema.Data, augment=(augment, augment()))
        config = create_model(
            "Config",
            __base__=schema.Config,
            run=(run, run()),
            release=(release, release()),
            data=(data, data()),
        )
        monkeypatch.setattr(LOADING, "Config", config)
        for name in METHOD_NAMES:
            monkeypatch.setattr(METHODS[name], "Options", extend(METHODS[name].Options, kind))
        guard = DEFENSES["client-dp"]
        monkeypatch.setattr(guard, "Options", extend(guard.Options, kind))

    return come


@pytest.fixture
def folder(tmp_path):
    """A function: a copy of a stored run folder."""
    return lambda name: Path(shutil.copytree(FOLDERS / name, tmp_path / name))


def values(config):
    """The new key wherever it is."""
    guards = [make_defense(config, name) for name in config.release.defenses]
    sections = (config.run, config.release, config.data.augment, make_method(config).options)
    return [section.later for section in (*sections, *(guard.options for guard in guards))]


@pytest.mark.parametrize("kind", DEFAULTS)
@pytest.mark.parametrize("name", spread(STORED))
def test_an_old_folder_means_and_says_what_it_did(name, kind, folder, later):
    path = folder(name)
    later(kind)
    run = vitrail.load(path)
    assert set(values(run.config)) == {BEFORE[kind]}
    assert run.config.run.rounds == STORED[name].config()["run"]["rounds"]
    assert to_stored_tree(run.config) == tomllib.loads((path / "config.toml").read_text())
    _, meta = read_tensors(Checkpoints(path / "server").path(run.round))
    assert fingerprint_config(run.config) == meta["config"]
    assert f"later = {BEFORE[kind]}" in dump(run.config), "a report shows what was in force"


@pytest.mark.parametrize("kind", ["bare", "changed"])
def test_an_old_folder_is_reported_with_a_later_key(kind, folder, later, command):
    path = folder("stopped-client-dp")
    later(kind)
    code, _, said = command("report", path)
    assert code == 0, said
    assert f"later = {BEFORE[kind]}" in (path / "report.html").read_text()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("finished-fedavg", "changed"),
        ("stopped-client-dp", "bare"),
        ("stopped-client-dp", "declared"),
        ("stopped-client-dp", "changed"),
        ("stopped-fedxds", "changed"),
        ("stopped-myth-pm", "bare"),
        ("stopped-scaffold", "changed"),
        ("stopped-secure-sum", "changed"),
    ],
)
def test_an_old_folder_goes_on_to_the_same_end(name, kind, folder, later):
    path = folder(name)
    later(kind)
    vitrail.resume(path)
    result, row = measure(path), RECORDED["folders"][name]
    if (name, kind) == ("stopped-client-dp", "bare"):  # its ledger has the defense's every option
        assert result.pop("ledger") != row["ledger"]
        result["ledger"] = row["ledger"]
    check(result, row, name)


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_new_folder_has_the_key_and_another_value_is_refused(kind, tmp_path, later):
    later(kind)
    tree = {key: value for key, value in GRID.items() if key != "sweep"}
    vitrail.run(tree, tmp_path / "run")
    file = tmp_path / "run" / "config.toml"
    text = file.read_text()
    assert text.count(f"later = {NEW}\n") == (5 if kind == "changed" else 4)
    assert set(values(RunFolder(file.parent).open().config)) == {NEW}
    vitrail.resume(file.parent)
    for at in range(text.count(f"later = {NEW}\n")):
        parts = text.split(f"later = {NEW}\n")
        for line in ("later = 8\n", ""):
            joints = [f"later = {NEW}\n"] * (len(parts) - 1)
            joints[at] = line
            file.write_text("".join(a + b for a, b in zip(parts, [*joints, ""], strict=True)))
            with pytest.raises(RunError, match="config of this run changed"):
                vitrail.resume(file.parent)


def test_an_old_folder_whose_value_differs_is_still_refused(folder, later):
    path = folder("stopped-client-dp")
    later("changed")
    file = path / "config.toml"
    text = file.read_text()
    for other in (text.replace("seed = 5", "seed = 6"), text + f"later = {NEW}\n"):
        file.write_text(other)
        with pytest.raises(RunError, match="config of this run changed"):
            vitrail.resume(path)


@pytest.mark.parametrize("key", ["run.later", "method.later", "release.client-dp.later"])
@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_cell_is_the_same_if_it_has_the_old_value(kind, key, tmp_path, later):
    def grid(**values):
        settings = [f"{name}={value}" for name, value in values.items()]
        return parse(GRID, overrides=settings)

    played = []
    run_sweep(grid(), tmp_path / "grid", lambda *_: None)
    later(kind)
    everywhere = dict.fromkeys(
        (
            "run.later",
            "release.later",
            "data.augment.later",
            "method.later",
            "release.client-dp.later",
        ),
        BEFORE[kind],
    )
    asked = [grid(**everywhere)] + ([grid()] if kind != "changed" else [])
    for same in asked:
        run_sweep(same, tmp_path / "grid", lambda *cell: played.append(cell))
        copy_finished_runs(
            same, tmp_path / f"copy-{len(list(tmp_path.iterdir()))}", [tmp_path / "grid"]
        )
    assert not played and len(list(tmp_path.glob("copy-*/*/server/finished"))) == len(asked)
    other = grid(**{**everywhere, key: 8})
    with pytest.raises(RunError, match="another configuration"):
        run_sweep(other, tmp_path / "grid", lambda *_: None)
    copy_finished_runs(other, tmp_path / "none", [tmp_path / "grid"])
    assert not (tmp_path / "none").exists()


def test_noise_of_new_runs_changes_with_what_changes_the_mechanism(later):
    def cause(**values):
        settings = [f"{key}={value}" for key, value in values.items()]
        loaded = parse({key: GRID[key] for key in GRID if key != "sweep"}, overrides=settings)
        return compute_mechanism_digest(resolve_config(loaded))

    without = cause()
    later("declared")
    assert cause() == without
    keys = ("release.later", "method.later", "release.client-dp.later")
    assert len({without, *(cause(**{key: 8}) for key in keys)}) == 4
    assert cause(**{"run.later": 8}) == without, "it is no mechanism"


@pytest.mark.parametrize("kind", DEFAULTS)
def test_terms_of_an_old_federation_stay_what_a_site_agreed_to(kind, folder, later, tmp_path):
    file = folder("stopped-client-dp") / "config.toml"
    agreed = {"classes": ["a", "b", "c"], "channels": 3}
    tree = tomllib.loads(file.read_text())
    tree["data"] |= agreed
    own = {"source": "folder", "path": "images"}

    def terms():
        return make_terms(parse(tree, stored=True).config)

    def site(begun):
        return merge_terms(terms(), "east", own, {}, tmp_path, "east.toml", begun)

    before = terms()
    later(kind)
    assert digest_terms(terms()) == digest_terms(before)
    for begun in (True, False):
        config = resolve_config(site(begun))
        assert set(values(config)) == {BEFORE[kind]}, "the federation's keys, also augment's"
    fresh = make_terms(
        resolve_config(parse({**GRID, "sweep": {}, "data": agreed | {"image_size": 8}}))
    )
    assert fresh["run"]["later"] == fresh["method"]["later"] == fresh["release"]["later"] == NEW
    joined = resolve_config(merge_terms(fresh, "east", own, {}, tmp_path, "east.toml"))
    assert set(values(joined)) == {NEW}


def test_a_key_for_the_site_alone_has_its_default_in_a_new_run_and_its_old_value_in_one_begun(
    monkeypatch, tmp_path
):
    wide = create_model("Data", __base__=schema.Data, glare=(int, added(NEW, before=OLD)))
    config = create_model("Config", __base__=schema.Config, data=(wide, wide()))
    monkeypatch.setattr(LOADING, "Config", config)
    monkeypatch.setattr("vitrail.flower.run_terms.Data", wide)
    shared = {"classes": ["a", "b"], "image_size": 8, "channels": 3}
    terms = make_terms(resolve_config(parse({"data": shared})))
    assert "glare" not in terms["data"]

    def read(begun, **own):
        own = {"source": "folder", "path": "images", **own}
        return merge_terms(terms, "east", own, {}, tmp_path, "east.toml", begun).config.data.glare

    assert (read(begun=False), read(begun=True), read(begun=False, glare=5)) == (NEW, OLD, 5)


def test_a_new_default_of_none_is_refused():
    with pytest.raises(ValueError, match="cannot hold None"):
        added(None, before=3)
    assert added(None).default is None


def test_a_folder_without_the_options_class_of_today_is_told_apart_by_its_values(later):
    cells = make_cells(parse(GRID, overrides=["sweep.seeds=[1, 2]"]))
    first, second = (fingerprint_run(cell.loaded) for cell in cells)
    assert first != second
    with pytest.raises(ConfigError, match="must be a table of options"):
        fingerprint_run(parse({"release": {"defenses": ["prune"], "prune": 3}}))
