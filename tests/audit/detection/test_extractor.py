"""Maps that are remembered are those that would be computed, under the same weights."""

from pathlib import Path

import numpy as np
import torch

from vitrail.audit.detection.extractor import Extractor
from vitrail.config.schema import Model
from vitrail.data.normalize import Normalize
from vitrail.models.network import make_network
from vitrail.rng import derive_server_key


def pictures(count, seed=0):
    return derive_server_key(seed).numpy().integers(0, 256, (count, 16, 16, 3)).astype(np.uint8)


def network(seed):
    return make_network(Model(backbone="lenet"), "linear", 3, 2, derive_server_key(seed), Path())[0]


def test_what_is_remembered_is_what_would_be_computed():
    unit = Normalize.from_name("unit", 3)
    images = pictures(40)
    images[7] = images[3]
    seen = {}
    remembering = Extractor(network(1), unit, seen)
    wanted = Extractor(network(1), unit)(images)
    assert torch.allclose(remembering(images), wanted, atol=1e-6) and len(seen) == 39
    assert torch.allclose(remembering(images[[5, 3, 7]]), wanted[[5, 3, 7]], atol=1e-6)
    assert len(seen) == 39


def test_other_weights_and_other_scales_are_not_mistaken_for_it():
    images, seen = pictures(3), {}
    one = Extractor(network(1), Normalize.from_name("unit", 3), seen)(images)
    two = Extractor(network(2), Normalize.from_name("unit", 3), seen)(images)
    three = Extractor(network(1), Normalize.from_name("half", 3), seen)(images)
    assert len(seen) == 9 and not torch.equal(one, two) and not torch.equal(one, three)


def test_no_more_than_so_many_are_kept(monkeypatch):
    monkeypatch.setattr("vitrail.audit.detection.extractor._MOST", 5)
    seen = {}
    extractor = Extractor(network(1), Normalize.from_name("unit", 3), seen)
    assert len(extractor(pictures(8))) == 8 and len(seen) == 5
    assert len(extractor(pictures(4, seed=9))) == 4 and len(seen) == 5
