"""TIP, its controls and AGP against slow transcriptions of what they say they do."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vitrail.errors import ConfigError
from vitrail.release import DEFENSES
from vitrail.release.defenses.guidance import compute_importance, draw_guidance_rows
from vitrail.release.defenses.spectrum import filter_noise, make_high_pass_mask

FAMILY = ("tip", "white-noise", "least-channels", "random-channels", "all-channels")


def make(name, energy=None, **options):
    return DEFENSES[name](name, options, energy=energy)


@pytest.mark.parametrize(
    ("side", "relative", "absolute"), [(1, 0, 0), (3, 8, 8), (5, 20, 24), (7, 40, 48)]
)
def test_the_bins_that_a_mask_keeps(side, relative, absolute):
    assert int(make_high_pass_mask(side, side, 0.5).sum()) == relative
    assert int(make_high_pass_mask(side, side, 0.5, "absolute").sum()) == absolute
    for cutoff in (0.3, 0.5, 0.9, 1.2):
        kept = make_high_pass_mask(side, side, cutoff).numpy()
        for row in range(side):
            for column in range(side):
                below = [x if x <= side // 2 else x - side for x in (row, column)]
                assert kept[row, column] == (math.hypot(*below) >= cutoff * side / 2)


@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (3, 5), (1, 7), (6, 6)])
@pytest.mark.parametrize("cutoff", [0.0, 0.4, 0.8])
def test_filtered_noise_is_real_for_any_kernel(shape, cutoff):
    noise = torch.randn(5, *shape, dtype=torch.float64)
    mask = make_high_pass_mask(*shape, cutoff)
    whole = torch.fft.ifft2(torch.fft.fft2(noise) * mask)
    assert float(whole.imag.abs().max()) < 1e-12
    torch.testing.assert_close(filter_noise(noise, mask), whole.real)
    again = filter_noise(filter_noise(noise, mask), mask)
    torch.testing.assert_close(again, whole.real)  # a projection: nothing is left to take away


def test_on_3x3_high_frequencies_are_everything_but_the_mean():
    noise = torch.randn(4, 6, 3, 3, dtype=torch.float64)
    expected = noise - noise.mean((2, 3), keepdim=True)
    torch.testing.assert_close(filter_noise(noise, make_high_pass_mask(3, 3, 0.5)), expected)


def slow_importance(desk, name, rows, loss):
    """Image by image: the mean over positions of d logit / d output, then the mean of |.|."""
    site = desk.site
    modules = dict(site.model.network.named_modules())
    found = []
    for row in rows:
        kept = []
        hook = modules[name.removesuffix(".weight")].register_forward_hook(
            lambda _m, _i, out, kept=kept: kept.append(out)
        )
        label = int(site.inputs.labels[row])
        logits = site.model.network.eval()(site.inputs.plain(np.array([row])))
        hook.remove()
        score = F.cross_entropy(logits, torch.tensor([label])) if loss else logits[0, label]
        (slope,) = torch.autograd.grad(score, kept[0])
        found.append(
            [
                abs(float(slope[0, c].double().sum())) / slope[0, c].numel()
                for c in range(slope.shape[1])
            ]
        )
    return np.mean(found, 0)


@pytest.mark.parametrize("target", ["logit", "loss"])
def test_importance_against_one_image_at_a_time(desk, target):
    d = desk()
    names = ["backbone.conv1.weight", "backbone.layer3.0.conv2.weight"]
    rows = draw_guidance_rows(d.site, d.site.key)
    assert sorted(d.site.inputs.labels[rows]) == [0, 1, 2]
    found = compute_importance(d.site, names, rows, target, batch=2)
    for name in names:
        slow = slow_importance(d, name, rows, target == "loss")
        np.testing.assert_allclose(found[name].numpy(), slow, rtol=1e-4, atol=1e-9)
    assert not any(m._forward_hooks for m in d.site.model.network.modules())
    assert not d.site.model.grads.any()


def test_a_class_that_a_site_lacks_guides_nothing(desk):
    d = desk(labels=(2, 2, 2, 2))
    assert list(d.site.inputs.labels[draw_guidance_rows(d.site, d.site.key)]) == [2]
    found, figures = d.passed(make("tip"))
    assert figures["touched"] > 0 and all(t.isfinite().all() for t in found.values())


def slow_tip(d, options, chosen):
    """The decided algorithm, kernel by kernel, with a DFT written as sums."""
    names = [n for n in chosen if n]
    source = d.site.noise.at("release", "tip", "noise").stream()
    sensitivity = 2 * options["clip"] / len(d.site.rows.train)
    zeta = math.sqrt(2 * math.log(1.25 / options["delta"])) * sensitivity / options["epsilon"]
    beta = min(1.0, zeta / len(names))
    found = {n: t.double().numpy().copy() for n, t in d.update.tensors.items()}
    for name in names:
        rows = chosen[name]
        _, before, height, width = found[name].shape
        noise = source.normal((len(rows), before, height, width)).double().numpy()
        side = [np.exp(-2j * np.pi * np.outer(range(n), range(n)) / n) for n in (height, width)]
        for at, row in enumerate(rows):
            for column in range(before):
                transform = side[0] @ found[name][row, column] @ side[1]
                drawn = side[0] @ noise[at, column] @ side[1]
                for u in range(height):
                    for v in range(width):
                        shifted = [(u + height // 2) % height, (v + width // 2) % width]
                        away = math.hypot(shifted[0] - height // 2, shifted[1] - width // 2)
                        if away >= 0.5 * height / 2:
                            transform[u, v] += beta * drawn[u, v]
                back = side[0].conj() @ transform @ side[1].conj() / (height * width)
                assert np.abs(back.imag).max() < 1e-12
                found[name][row, column] = back.real
    return found


@pytest.mark.parametrize("backbone", ["resnet8", "lenet"])
def test_tip_against_a_slow_transcription(desk, backbone):
    d = desk(model={"backbone": backbone, "width": 8})
    options = {"epsilon": 0.7, "delta": 1e-4, "clip": 0.5, "share": 0.3}
    tip = make("tip", **options)
    rows = draw_guidance_rows(d.site, d.site.key.at("release", "guidance"))
    chosen = {}
    for name in tip.touches(d.plan.setting):
        rank = slow_importance(d, name.removeprefix("model/"), rows, loss=False)
        chosen[name] = np.argsort(-rank)[: max(1, int(0.3 * len(rank)))]
    found, figures = d.passed(tip)
    slow = slow_tip(d, options, chosen)
    for name, tensor in found.items():
        np.testing.assert_allclose(tensor.double().numpy(), slow[name], rtol=0, atol=2e-7)
        spared = np.setdiff1d(np.arange(len(tensor)), chosen.get(name, []))
        before = d.update.tensors[name].numpy()
        assert tensor.numpy()[spared].tobytes() == before[spared].tobytes()
    noise = sum(((slow[n] - d.update.tensors[n].double().numpy()) ** 2).sum() for n in slow) ** 0.5
    assert figures["noise_l2"] == pytest.approx(noise, rel=1e-4)
    kernels = sum(len(chosen[n]) * d.update.tensors[n][0].numel() for n in chosen)
    assert 0.99 * kernels <= figures["touched"] <= kernels  # an addition may round to nothing


def touched(d, name, **options):
    """By layer: the channels that a defense changed."""
    found, _ = d.passed(make(name, **options))
    return {
        n: set(torch.nonzero((found[n] != t).flatten(1).any(1)).flatten().tolist())
        for n, t in d.update.tensors.items()
        if not torch.equal(found[n], t) and t.dim() == 4
    }


def test_the_controls_differ_from_tip_in_one_thing_each(desk):
    d = desk()
    chosen = {name: touched(d, name, share=0.25) for name in FAMILY}
    layers = {n for n in d.update.tensors if "conv" in n}
    assert all(set(found) == layers for found in chosen.values())
    assert chosen["white-noise"] == chosen["tip"]
    for layer in layers:
        count = max(1, int(0.25 * len(d.update.tensors[layer])))
        tip, least = chosen["tip"][layer], chosen["least-channels"][layer]
        assert len(tip) == len(least) == len(chosen["random-channels"][layer]) == count
        assert not tip & least and len(chosen["all-channels"][layer]) == len(
            d.update.tensors[layer]
        )
    assert chosen["random-channels"] != chosen["tip"]
    white, _ = d.passed(make("white-noise", share=0.25))
    masked, _ = d.passed(make("tip", share=0.25))
    for layer in layers:
        kernels = [(x[layer] - d.update.tensors[layer]).mean((2, 3)) for x in (masked, white)]
        assert kernels[0].abs().max() < 1e-6 < kernels[1].abs().max()


@pytest.mark.parametrize("name", [*FAMILY, "agp"])
@pytest.mark.parametrize("energy", [0.01, 3.0])
def test_energy_is_the_same_for_all(desk, name, energy):
    d = desk()
    found, figures = d.passed(make(name, energy=energy))
    received = d.site.model.layout.views(d.site.received)
    change = sum(
        float((t - received[n[6:]]).double().square().sum()) for n, t in d.update.tensors.items()
    )
    noise = sum(float((found[n] - t).double().square().sum()) for n, t in d.update.tensors.items())
    assert math.sqrt(noise / change) == pytest.approx(energy, rel=1e-3)
    assert figures["energy"] == pytest.approx(energy, rel=1e-3)


@pytest.mark.parametrize("select", ["least", "most"])
def test_agp_spares_a_quarter_where_a_block_ends_and_nothing_elsewhere(desk, select):
    d = desk()
    found = touched(d, "agp", select=select)
    rows = draw_guidance_rows(d.site, d.site.key.at("release", "guidance"))
    lasts = {"model/backbone.conv1.weight"} | {n for n in d.update.tensors if "conv2" in n}
    assert set(found) == {n for n in d.update.tensors if "conv" in n or "downsample.0" in n}
    for name, channels in found.items():
        count = len(d.update.tensors[name])
        if name not in lasts:
            assert len(channels) == count
            continue
        rank = slow_importance(d, name.removeprefix("model/"), rows, loss=False)
        order = np.argsort(rank if select == "least" else -rank)
        assert channels == set(order[: int(0.75 * count)].tolist())


def test_agp_has_the_scale_of_the_gaussian_mechanism(desk):
    d = desk()
    found, _ = d.passed(make("agp", epsilon=2.0, delta=1e-3, clip=0.1))
    name = "model/backbone.layer4.0.conv1.weight"
    sigma = math.sqrt(2 * math.log(1250)) * (2 * 0.1 / 8) / 2.0
    noise = (found[name] - d.update.tensors[name]).double()
    assert float(noise.std()) == pytest.approx(sigma, rel=0.03)  # 18,432 draws: SD 0.5 %


@pytest.mark.parametrize("name", [*FAMILY, "agp"])
def test_budgets_schedules_and_secrets(desk, name):
    d = desk()
    one, figures = d.passed(make(name))
    again, _ = desk().passed(make(name))
    other, _ = desk(secret=b"another").passed(make(name))
    assert all(torch.equal(one[n], again[n]) for n in one)
    assert any(not torch.equal(one[n], other[n]) for n in one)
    base = DEFENSES[name].Options().epsilon
    _, half = d.passed(make(name, sites={"site-00": 2 * base}))
    assert half["noise_l2"] == pytest.approx(figures["noise_l2"] / 2, rel=1e-2)
    _, none = d.passed(make(name, schedule=[0.0]))
    assert none["noise_l2"] == 0.0 and none["touched"] == 0
    json.dumps([figures, half, none], allow_nan=False)


def test_beta_is_at_most_one(desk):
    d = desk()
    found, _ = d.passed(make("all-channels", epsilon=1e-6))
    name = "model/backbone.layer4.0.conv1.weight"
    noise = (found[name] - d.update.tensors[name]).double()
    assert float(noise.std()) == pytest.approx(math.sqrt(8 / 9), rel=0.03)


@pytest.mark.parametrize("name", FAMILY)
def test_an_update_of_zeros_and_one_that_is_not_finite(desk, name):
    d = desk()
    received = d.site.model.layout.views(d.site.received)
    zeros = {n: received[n[6:]].clone() for n in d.update.tensors}
    found, figures = d.passed(make(name, energy=1.0), zeros)
    assert all(torch.equal(found[n], zeros[n]) for n in zeros) and figures["noise_l2"] == 0
    _, own = d.passed(make(name), zeros)
    assert own["noise_l2"] > 0 and "energy" not in own
    bad = {**zeros, "model/head.bias": torch.full((3,), float("nan"))}
    found, figures = d.passed(make(name, energy=1.0), bad)
    assert all(t.isnan().all() for t in found.values()) and figures == {"withheld": 1.0}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"frozen": True}}, "larger than 1x1 are frozen"),
        ({"method": {"name": "myth-pm"}}, "keeps the convolutions larger than 1x1 at home"),
        ({"method": {"name": "local"}}, "would touch nothing"),
        ({"method": {"name": "scaffold"}}, "take the noise off"),
        ({"release": {"tip": {"cutoff": 9.0}}}, "no frequency of a kernel lies beyond cutoff = 9"),
        ({"release": {"tip": {"cutoff": -1.0}}}, "release.tip.cutoff"),
        ({"release": {"tip": {"share": 0.0}}}, "release.tip.share"),
        ({"release": {"tip": {"share": float("nan")}}}, "release.tip.share"),
        ({"release": {"tip": {"delta": 1.0}}}, "release.tip.delta"),
        ({"release": {"tip": {"epsilon": -1.0}}}, "release.tip.epsilon"),
        ({"release": {"tip": {"clip": float("inf")}}}, "release.tip.clip"),
        ({"release": {"tip": {"radius": "huge"}}}, "release.tip.radius"),
    ],
)
def test_settings_in_which_tip_could_do_nothing_are_refused(desk, changes, words):
    release = {"defenses": ["tip"], **changes.pop("release", {})}
    with pytest.raises(ConfigError, match=words):
        desk(release=release, **changes)


def test_each_says_what_it_touches(desk):
    setting = desk().plan.setting
    tip = make("tip").touches(setting)
    assert set(tip) == {n for n in setting.leaves if "conv" in n}
    assert set(make("agp").touches(setting)) == {
        *tip,
        *(n for n in setting.leaves if "downsample.0" in n),
    }
    partly = desk(model={"frozen": "layer2"}).plan.setting
    assert all("layer3" in n or "layer4" in n for n in make("tip").touches(partly))


def test_tip_is_guided_through_cached_features(tiny, releases):
    """With frozen stages a site feeds what they made of its images, not the images."""
    run = tiny(
        model={"frozen": "layer2"}, release={"defenses": ["tip"], "energy": 0.3}, run={"rounds": 1}
    )
    for lines in releases(run.path).values():
        (said,) = lines[0]["defenses"]
        assert said["figures"]["energy"] == pytest.approx(0.3, rel=1e-3)
