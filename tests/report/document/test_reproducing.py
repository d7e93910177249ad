"""The configuration that a report shows: no file of this machine, and every choice as it was."""

import tomllib

from vitrail.report.document.reproducing import WITHHELD, shareable


def test_files_are_withheld_by_their_key_and_choices_stay():
    tree = {
        "data": {"path": "mine.npz", "public": {"path": "other.npz", "limit": 3}},
        "model": {"weights": "mine.safetensors"},
        "aggregate": {"weights": "method"},
        "run": {"plugins": ["mine.py"], "seed": 1},
        "attack": {"file": "/home/me/secret"},
    }
    found = tomllib.loads(shareable(tree))
    assert found["data"] == {"path": WITHHELD, "public": {"path": WITHHELD, "limit": 3}}
    assert found["model"]["weights"] == WITHHELD and found["aggregate"]["weights"] == "method"
    assert found["run"] == {"plugins": [WITHHELD], "seed": 1}
    assert found["attack"]["file"] == WITHHELD  # whatever looks like a path
    known = tomllib.loads(shareable({"model": {"weights": "imagenet"}}))
    assert known["model"]["weights"] == "imagenet"
