"""`vitrail fidelity`: runs beside a baseline, in figures, JSON and a page with pictures."""

import json
import shutil

import pytest
import torch
from PIL import Image

import vitrail
from vitrail.audit.map_fidelity import measure_fidelity, prototype_drift, subspace_angle
from vitrail.geometry.angles import principal_angles
from vitrail.runs.opened_run import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_config):
    """A run without a defense, two with one, and one of another seed."""
    folder = tmp_path_factory.mktemp("runs")
    kinds = {
        "none": {},
        "tip": {"release": {"defenses": ["tip"], "energy": 2.0}},
        "all": {"release": {"defenses": ["all-channels"], "energy": 0.01}},
        "seed": {"run": {"seed": 6}},
        "other": {"method": {"name": "fedper"}},
    }
    model = {"backbone": "small-cnn", "width": 8}
    for name, changes in kinds.items():
        vitrail.run(tiny_config(model=model, **changes), folder / name)
    return folder


def test_the_same_run_is_the_same(runs):
    report = measure_fidelity(Run(runs / "none"), [Run(runs / "none")], images=12)
    (same,) = report.runs
    assert same.agreement == 1.0 and same.deletion == 0.0 and same.accuracy == report.accuracy
    assert same.figures["mse"] == 0.0 and same.figures["ssim"] == pytest.approx(1.0)
    assert same.figures["top_overlap"] == 1.0 and same.figures["psnr"] is None
    assert same.failures == report.failures and same.prototype_drift is None


def test_more_noise_moves_the_maps_further(runs):
    """Refuted if 200 times the noise left the maps as close as before."""
    report = measure_fidelity(
        Run(runs / "none"), [Run(runs / n) for n in ("all", "tip", "seed")], 12
    )
    little, much, seed = report.runs
    assert little.figures["mse"] < much.figures["mse"]
    assert little.figures["rank_correlation"] > much.figures["rank_correlation"]
    assert "seeds differ" in seed.notes[0] and not little.notes


def test_the_command_prints_writes_json_and_a_page(runs, command, read_page, tmp_path):
    code, out, err = command(
        "fidelity", str(runs / "none"), str(runs / "tip"), str(runs / "all"), "--images", "9",
        "--json", "f.json", "--out", "f.html",
    )  # fmt: skip
    assert code == 0, err
    assert "9 images" in out and "tip, energy 2" in out and "all-channels, energy 0.01" in out
    found = json.loads((tmp_path / "f.json").read_text())
    assert [run["defenses"] for run in found["runs"]] == [["tip"], ["all-channels"]]
    assert found["images"] == 9 and found["runs"][0]["figures"]["ssim"] <= 1
    page = read_page(tmp_path / "f.html")
    assert len(page.labels) == 8 * 4  # images, no defense, and two defenses
    assert "tip, energy 2" in page.text
    code, _, err = command("fidelity", str(runs / "none"), str(runs / "tip"), "--json", "f.json")
    assert code == 2 and "exists" in err


def test_a_picture_of_private_images_is_asked_for_twice(runs, command, tmp_path):
    call = ("fidelity", runs / "none", runs / "tip", "--images", "4", "--out", "f.png")
    assert command(*call)[0] == 0
    with Image.open(tmp_path / "f.png") as picture:
        assert picture.width > 300 and picture.height > 300
    shutil.copytree(runs / "none", tmp_path / "secret")
    card = tmp_path / "secret" / "server" / "card.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "public": False}))
    call = ("fidelity", tmp_path / "secret", runs / "tip", "--images", "4", "--out", "g.png")
    code, _, err = command(*call)
    assert code == 2 and "--with-images" in err and not (tmp_path / "g.png").exists()
    assert command(*call, "--with-images")[0] == 0 and (tmp_path / "g.png").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none", "other"), "another model than none"),
        (("other", "other"), "there is no global model"),
        (("none", "missing"), "not a run folder"),
        (("none", "tip", "--out", "page.pdf"), "cannot be written as"),
        (("none", "tip", "--site", "nobody"), "no site 'nobody'"),
    ],
)
def test_bad_calls_are_one_sentence(runs, command, arguments, words):
    names = [str(runs / a) if a in ("none", "tip", "other", "missing") else a for a in arguments]
    code, _, err = command("fidelity", *names)
    assert code == 2 and words in err and err.count("\n") <= 2 and "Traceback" not in err


def test_a_site_can_compare_its_own_models(runs, command):
    code, out, err = command(
        "fidelity", str(runs / "other"), str(runs / "other"), "--site", "site-01"
    )
    assert code == 0 and "images" in out, err


def test_drift_of_prototypes_and_angles_of_subspaces(tiny):
    small = {"backbone": "small-cnn", "width": 8, "prototypes": {"per_class": 2, "depth": 8}}
    quick = {"rounds": 1, "local_reference": False}
    kinds = {
        "myth-gm": {
            "model": small,
            "method": {"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        },
        "fedgrasp": {"model": small, "method": {"name": "fedgrasp"}},
    }
    for name, sections in kinds.items():
        models = [
            tiny(f"{name}-{seed}", run={**quick, "seed": seed}, **sections) for seed in (5, 6)
        ]
        site = models[0].sites[0]
        a, b = (run.model(site, "personal") for run in models)
        angle, drift = subspace_angle(a, b), prototype_drift(a, b)
        if name == "fedgrasp":
            frames = [
                next(t for n, t in m.network.state_dict().items() if n == "head.frames").double()
                for m in (a, b)
            ]
            largest = [float(principal_angles(x, y).max()) for x, y in zip(*frames, strict=True)]
            assert drift is None
            assert angle == pytest.approx(sum(largest) / len(largest) * 180 / torch.pi)
            assert subspace_angle(a, a) == pytest.approx(0.0, abs=1e-3)
        else:
            assert angle is None and drift > 0 and prototype_drift(a, a) == 0.0
