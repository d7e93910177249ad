"""A frozen backbone with cached features gives what it gives without the cache."""

import pytest
import torch

BACKBONE = {"backbone": "resnet8", "width": 8}


@pytest.mark.parametrize("frozen", [True, "layer2"])
def test_cache_and_no_cache_end_alike(tiny, ending, own_cache, frozen):
    model = {**BACKBONE, "frozen": frozen}
    with_cache = tiny("cached", model=model)
    files = sorted(own_cache.glob("features-*.npy"))
    assert len(files) == 1  # VITRAIL_CACHE is where they lie
    stamp = files[0].stat().st_mtime_ns
    without = tiny("plain", model={**model, "cache_features": False})
    a, b = ending(with_cache.path), ending(without.path)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-5)
    start = ending(tiny("start", model=model, run={"rounds": 0}).path)
    assert any(not torch.equal(a[name], start[name]) for name in a)
    assert files[0].stat().st_mtime_ns == stamp  # found again, not made again
    names = {name.split(".")[1] for name in a if name.startswith("model/backbone.")}
    assert names == (set() if frozen is True else {"layer3", "layer4"}), names


@pytest.mark.slow
def test_workers_read_the_same_features(tiny, same_bits, own_cache):
    model = {**BACKBONE, "frozen": True}
    first = tiny("two", model=model, run={"workers": 2, "rounds": 2})
    assert len(list(own_cache.glob("features-*.npy"))) == 1
    for file in own_cache.glob("features-*.npy"):
        file.unlink()
    assert same_bits(first.path, tiny("one", model=model, run={"rounds": 2}).path)


def test_other_pixels_and_other_weights_get_other_features(tiny, own_cache):
    model = {**BACKBONE, "frozen": True}
    tiny("a", model=model, run={"rounds": 1})
    tiny("b", model=model, run={"rounds": 1}, data={"aviary": {"seed": 8}})
    tiny("c", model=model, run={"rounds": 1, "seed": 6})
    tiny("d", model=model, run={"rounds": 1}, data={"views": ["identity", "flip"]})
    assert len(list(own_cache.glob("features-*.npy"))) == 4
    assert not list(own_cache.glob("*.tmp"))


def test_a_bias_reuses_what_it_left_alone_to_the_bit(tiny, own_cache, monkeypatch):
    """The same file with and without the features from before, and fewer chunks computed."""
    from vitrail.engine.storage import feature_cache as features

    computed = []
    chunks = features._find_reusable_chunks
    monkeypatch.setattr(
        features,
        "_find_reusable_chunks",
        lambda *a: computed.append(len(chunks(*a)[2])) or chunks(*a),
    )
    monkeypatch.setattr(features, "_CHUNK", 8)
    changes = {
        "model": {**BACKBONE, "frozen": True},
        "bias": [{"kind": "emoji", "sites": [0], "classes": [0], "where": ["train"]}],
        "run": {"rounds": 1},
    }
    tiny("alone", **changes)
    (file,) = own_cache.glob("features-*.npy")
    whole = file.read_bytes()
    file.unlink()
    tiny("before", **{**changes, "bias": []})
    before = set(own_cache.glob("features-*.npy"))
    tiny("after", **changes)
    assert [f.read_bytes() for f in set(own_cache.glob("features-*.npy")) - before] == [whole]
    assert 0 < computed[2] < computed[0]
