"""One table over every defense: it runs alone, with dropout, resumed and spread, to the bit; and
over every method it changes what it says it touches, or says why it cannot."""

import json

import pytest
import torch

import vitrail
from vitrail.errors import ConfigError
from vitrail.methods import METHODS
from vitrail.release import DEFENSES

OWN = [name for name in DEFENSES if DEFENSES[name].__module__.startswith("vitrail.release.")]
SUBSPACES = {"depth": 8, "hidden": 8}
NEEDS = {  # by defense: sections without which it is refused
    "dp-sgd": {"model": {"norm": "group"}},
    "client-dp": {"model": {"norm": "group"}},
    "subspace-dp": {
        "model": {"norm": "group", "subspaces": SUBSPACES},
        "method": {"name": "fedgrasp", "personal_epochs": 0},
    },
}
REASONS = (
    "would touch nothing",
    "take the noise off",
    "guarantee",
    "does not cover",
    "past the clipping",
    "learned at home",
    "both want to",
    "this model trains none",
    "is not floating point",
)


def quick(name, rounds=2, **run):
    """A federation of seconds behind a defense, which draws in every round."""
    sections = {
        "model": {"backbone": "small-cnn", "width": 8},
        "release": {"defenses": [name]},
        "run": {"rounds": rounds, "record_updates": True, **run},
    }
    for key, more in NEEDS.get(name, {}).items():
        sections[key] = {**sections.get(key, {}), **more}
    return sections


@pytest.fixture
def plain(run_once):
    """The undisturbed run behind a defense, made once."""
    return lambda name: run_once(name, quick(name))


def stopping(progress):
    if progress.round == 1:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "scenario", ["one site", "dropout", "resume", pytest.param("workers", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", OWN)
def test_axioms(name, scenario, tiny, tmp_path, plain, ending, same_bits, releases):
    if scenario == "one site":
        run = tiny(**quick(name), partition={"sites": 1, "kind": "iid"})
    elif scenario == "dropout":
        run = tiny(**quick(name, dropout=0.4))
    elif scenario == "resume":
        with pytest.raises(KeyboardInterrupt):
            tiny("stopped", on_round=stopping, **quick(name))
        run = vitrail.resume(tmp_path / "stopped")
        assert same_bits(run.path, plain(name).path)
    else:
        run = tiny(**quick(name, workers=2))
        assert same_bits(run.path, plain(name).path)
    model = [t for n, t in ending(run.path).items() if n.startswith("model/")]
    assert run.finished and model and all(bool(t.isfinite().all()) for t in model)
    for lines in releases(run.path).values():
        rounds = [line["round"] for line in lines]
        assert len(set(rounds)) == len(rounds)  # a resume counts nothing twice
        for line in lines:
            (said,) = line["defenses"]
            assert said["name"] == name and said["formal"] is DEFENSES[name].formal
            assert "withheld" not in said["figures"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", OWN)
def test_it_changes_what_it_says_or_says_why_not(name, method, desk):
    sections = quick(name, rounds=3)  # methods that share something first train in the third
    sections["model"] |= {"prototypes": {"per_class": 2, "depth": 8}}
    if METHODS[method].table.get("norm") == "home":
        sections["model"]["backbone"] = "resnet8"
    sections["method"] = {"name": method, **sections.get("method", {})}
    try:
        d = desk(**sections)
    except ConfigError as err:
        assert any(words in str(err) for words in REASONS), str(err)
        return
    (defense,) = d.plan.defenses()
    found, figures = d.passed(defense)
    changed = {n for n, t in found.items() if not torch.equal(t, d.update.tensors[n])}
    allowed = set(defense.touches(d.plan.setting))
    assert changed <= allowed and (changed or name == "none" or defense.acts == "training")
    assert found.keys() == d.update.tensors.keys()
    assert all(t.isfinite().all() and t.dtype == torch.float32 for t in found.values())
    json.dumps(figures, allow_nan=False)
    if defense.additive:
        assert figures["noise_l2"] > 0 and figures["touched"] > 0
