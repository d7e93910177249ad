"""Methods that train at the server, or share an autoencoder's remainders, go with the rest."""

import pytest
import torch

from vitrail.errors import ConfigError
from vitrail.methods import METHODS

PUBLIC = {"aviary": {"images": 20, "classes": 3, "seed": 11}}
OWN = {
    "feddf": {"steps": 2},
    "fedgen": {"steps": 2},
    "fedftg": {"steps": 1, "model_steps": 1},
    "fedaux": {"steps": 2, "negatives": 5},
    "fedfed": {},
}
CASES = [
    ("feddf", {"model": {"frozen": "layer2"}}),
    ("fedgen", {"model": {"frozen": True}}),
    ("fedftg", {"data": {"channels": 1}, "model": {"norm": "group"}}),
    ("fedaux", {"data": {"channels": 1}, "partition": {"kind": "shards", "shards": 1}}),
    ("fedfed", {"data": {"channels": 1, "augment": {"flip": True}}}),
    ("fedfed", {"model": {"norm": "home"}}),
    ("fedgen", {"partition": {"kind": "shards", "shards": 1}}),  # classes that one site alone has
    ("fedaux", {"run": {"local_reference": True}}),
    ("fedftg", {"release": {"defenses": ["tip"]}}),
]


@pytest.mark.parametrize(("name", "changes"), CASES, ids=str)
def test_a_run_comes_to_its_end(tiny, name, changes):
    data = {
        **changes.get("data", {}),
        **({"public": PUBLIC} if METHODS[name].server_data == "public" else {}),
    }
    run = tiny(**{**changes, "data": data, "method": {"name": name, **OWN[name]}})
    tensors = run.state()
    assert run.finished and all(bool(torch.isfinite(t).all()) for t in tensors.values())
    if "norm" not in changes.get("model", {}) or changes["model"]["norm"] != "home":
        values = run.model().network.state_dict().values()
        assert all(bool(torch.isfinite(t).all()) for t in values)


@pytest.mark.parametrize("name", ["fedgen", "fedftg"])
def test_label_histograms_do_not_leave_behind_a_formal_mechanism(tiny, name):
    release = {"defenses": ["client-dp"], "client-dp": {"delta": 1e-3}}
    with pytest.raises(ConfigError, match="label-0"):
        tiny(method={"name": name, **OWN[name]}, release=release)
