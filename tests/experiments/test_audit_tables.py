"""The tables of the audit: marks of new kinds, and federations of images that are drawn."""

import numpy as np
import pytest
from experiments.tables.audit_bank import SOURCES, deal, load_bank
from experiments.tables.audit_detection import FAMILIES, judge, list_cases
from experiments.tables.audit_quiet import LEVELS, play_quiet
from experiments.tables.new_marks import NEW_KINDS, stamp_new

from vitrail.data.bias.marks import SPRITES, WASHES
from vitrail.rng import derive_server_key

KEY = derive_server_key(2)
KINDS = [kind for kinds in NEW_KINDS.values() for kind in kinds]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_kind_changes_images_and_only_where_it_should(kind, channels):
    images = np.random.default_rng(0).integers(0, 256, (3, 40, 40, channels)).astype(np.uint8)
    before = images.copy()
    marked = stamp_new(images, kind, 0.02, KEY.at(kind))
    assert np.array_equal(images, before) and marked.shape == images.shape
    changed = (marked != images).any(-1).mean((1, 2))
    assert (changed > 0).all()
    if kind in (*NEW_KINDS["place"], *NEW_KINDS["anywhere"]):
        assert (changed <= 0.025).all()


def test_new_kinds_are_new_and_every_biased_federation_has_an_unbiased_one():
    assert len(KINDS) == 16 and not {*KINDS} & {*SPRITES, *WASHES}
    for part in ("main", "new"):
        cases = list(list_cases(part, 2))
        assert sum(c["family"] == "none" for c in cases) == len(cases) / 2
    assert {c["source"] for c in list_cases("main", 1)} == {*SOURCES} and len(FAMILIES) == 4


def test_a_federation_of_drawn_images_is_played_with_and_without_a_bias(tmp_path):
    bank = load_bank("aviary", tmp_path, "small-cnn", 240, 2)
    assert sum(map(len, deal(bank, 4, True, KEY))) == 240 == len(bank.labels)
    row = play_quiet(bank, 4, "aviary", range(3))
    assert len(row["first"]) == 3 and row["every"] == sorted(row["every"])
    assert len(row["every"]) == len(LEVELS) and row["pairs"] >= 12
    case = {
        "source": "aviary", "sites": 4, "skew": False, "seed": 0, "family": "tone",
        "kind": "brightness", "area": 0.02, "share": 1.0,
    }  # fmt: skip
    judged = judge(bank, case)
    assert judged["judged"] and judged["first"] and judged["p"] < 0.05
