"""The configuration that a report shows: no file of this machine, and every choice as it was."""

import tomllib

from vitrail.report.sections.reproduction_section import WITHHELD, make_shareable_toml


def test_files_are_withheld_by_their_key_and_choices_stay():
    tree = {
        "data": {"path": "mine.npz", "public": {"path": "other.npz", "limit": 3}},
        "model": {"weights": "mine.safetensors"},
        "aggregate": {"weights": "method"},
        "run": {"plugins": ["mine.py"], "seed": 1},
        "attack": {"file": "/home/me/secret"},
    }
    shown = tomllib.loads(make_shareable_toml(tree))
    assert shown["data"] == {"path": WITHHELD, "public": {"path": WITHHELD, "limit": 3}}
    assert shown["model"]["weights"] == WITHHELD and shown["aggregate"]["weights"] == "method"
    assert shown["run"] == {"plugins": [WITHHELD], "seed": 1}
    assert shown["attack"]["file"] == WITHHELD  # whatever looks like a path
    known = tomllib.loads(make_shareable_toml({"model": {"weights": "imagenet"}}))
    assert known["model"]["weights"] == "imagenet"
