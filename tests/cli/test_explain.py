"""`vitrail explain` as a user meets it, and what it must never read."""

import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.files import read_tensors, write_tensors
from vitrail.report.training_patches import ELSEWHERE
from vitrail.runs.reopen import load_run_federation


@pytest.fixture(scope="module")
def made(tmp_path_factory, tiny_config):
    """One prototype run and one black box, and images of the first site."""
    folder = tmp_path_factory.mktemp("explained")
    proto = tiny_config(
        method={"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        model={"prototypes": {"per_class": 2, "depth": 8}},
        partition={"alpha": 0.3, "minimum": 4},
        run={"rounds": 2, "local_epochs": 1, "local_reference": True},
    )
    run = vitrail.run(proto, folder / "run")
    vitrail.run(tiny_config(run={"rounds": 1}), folder / "box")
    images = load_run_federation(run).images
    (folder / "images").mkdir()
    for row in range(3):
        Image.fromarray(images.images[row]).save(folder / "images" / f"{row}.png")
    return folder


@pytest.fixture
def explain(made, command):
    """A function: call the command on a run; code, stdout, stderr."""

    def call(run, *words):
        return command("explain", made / run if isinstance(run, str) else run, *words)

    return call


def test_json_adds_up_and_names_the_class_that_predict_names(explain, made, tmp_path):
    image = made / "images" / "0.png"
    code, out, _ = explain("run", "--image", image, "--out", "a.json", "--top", 2)
    found = json.loads((tmp_path / "a.json").read_text())
    assert code == 0 and found[0]["class"] in out and len(found) == 1
    for one in found:
        rows = one["contributions"]
        assert sum(row["contribution"] for row in rows) == pytest.approx(one["logit"], abs=1e-4)
        assert len(rows) == 3 and rows[-1]["part"] == "other"
    from vitrail.runs.predict_images import predict

    assert predict(vitrail.load(made / "run"), image).labels == [found[0]["class"]]


def test_the_page_shows_own_patches_and_never_those_of_others(read_page, explain, made, tmp_path):
    run = vitrail.load(made / "run")
    rows = {site: run.own(site, "personal")["push/row"] for site in run.sites}
    site = next(name for name, row in rows.items() if (row < 0).any() and (row >= 0).any())
    code, *_ = explain("run", "--prototypes", "--site", site, "--out", "p.html")
    page = read_page(tmp_path / "p.html")
    held = int((rows[site] >= 0).sum())
    assert code == 0 and len(page.labels) == held
    assert page.text.count(ELSEWHERE) == len(rows[site]) - held
    cards = page.text.partition("nearly equal to another one")[2]  # after the summary
    dead = cards.count("dead: far from every patch")  # which is worse, and is said instead
    assert cards.count("not grounded here") + dead >= len(rows[site]) - held
    assert cards.count("not grounded here") <= len(rows[site]) - held
    image = made / "images" / "1.png"
    explain("run", "--image", image, "--site", site, "--top", 9, "--out", "a.html")
    page = read_page(tmp_path / "a.html")
    assert sum("training patch" in label for label in page.labels) == held
    assert page.text.count(ELSEWHERE) == len(rows[site]) - held


def test_the_table_of_the_page_adds_up_as_printed(explain, made, tmp_path):
    explain("run", "--image", made / "images" / "2.png", "--out", "a.html", "--top", 3)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    cells = re.findall(r"<b>(\N{MINUS SIGN}?[\d.]+)</b>", page)
    *parts, total = [float(cell.replace("\N{MINUS SIGN}", "-")) for cell in cells]
    assert len(parts) == 4 and sum(parts) == pytest.approx(total, abs=1e-9)


def test_only_the_server_and_the_asking_site_are_read(explain, made, tmp_path):
    """Everybody else's files are first spoiled, then gone, and nothing changes."""
    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    asking, *others = vitrail.load(copy).sites
    asked = ("--image", made / "images" / "0.png", "--site", asking)
    calls = {
        "png": (*asked, "--out", "a.png"),
        "json": (*asked, "--out", "a.json"),
        "global": (*asked, "--model", "global", "--out", "g.html"),
        "local": (*asked, "--model", "local", "--out", "l.html"),
        "prototypes": ("--prototypes", "--site", asking, "--out", "p.html"),
    }

    def all_of_them():
        found = {}
        for name, words in calls.items():
            assert explain(copy, *words, "--force")[0] == 0
            found[name] = (tmp_path / words[-1]).read_bytes()
        return found

    whole = all_of_them()
    for other in others:
        for file in (copy / "sites" / other).rglob("*.*"):
            file.write_bytes(b"spoiled")
    for file in ("metrics.jsonl", "metrics.parquet", "log.txt", "partition.json"):
        (copy / file).unlink()
    assert explain(copy, "--prototypes", "--site", others[0], "--out", "o.html")[0] == 2
    assert all_of_them() == whole
    for other in others:
        shutil.rmtree(copy / "sites" / other)
    assert all_of_them() == whole


def test_a_row_of_another_site_is_not_shown_whatever_the_file_says(made, tmp_path):
    from vitrail.report.explain_images import Explainer

    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    run = vitrail.load(copy)
    site, other = run.sites[:2]
    file = copy / "sites" / site / "personal.safetensors"
    tensors, meta = read_tensors(file)
    foreign = load_run_federation(run).sites[other].train[0]
    tensors["own/push/row"] = tensors["own/push/row"].fill_(int(foreign))
    write_tensors(file, tensors, meta)
    patches = Explainer(run, site).patches
    assert all(patches.get(unit) is None for unit in range(6))
    assert patches.explain_missing(0) == ELSEWHERE


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK"])
@pytest.mark.parametrize("size", [(40, 90), (90, 40), (3, 3)])
def test_another_size_and_color_mode(explain, tmp_path, mode, size):
    pixels = np.random.Generator(np.random.PCG64(1)).integers(0, 255, (*size[::-1], 3), np.uint8)
    name = "a.tif" if mode == "CMYK" else "a.png"
    Image.fromarray(pixels).convert(mode).save(tmp_path / name)
    assert explain("run", "--image", name, "--out", "a.json", "--force")[0] == 0
    found = json.loads((tmp_path / "a.json").read_text())
    boxes = [row["box"] for row in found[0]["contributions"] if row["box"]]
    assert boxes
    for x0, y0, x1, y1 in boxes:
        assert 0 <= x0 < x1 <= size[0] and 0 <= y0 < y1 <= size[1]


def test_a_folder_other_classes_and_hostile_names(read_page, explain, made, tmp_path):
    folder = tmp_path / "images"
    shutil.copytree(made / "images", folder)
    (folder / "<script>alert(1)<").mkdir()
    shutil.copy(folder / "0.png", folder / "<script>alert(1)<" / "$x_1$ & co.png")
    (folder / "broken.png").write_bytes(b"no image")
    run = vitrail.load(made / "run")
    words = ("--image", folder, "--class", run.classes[0], "--class", run.classes[1])
    code, out, err = explain("run", *words, "--out", "a.html")
    page = read_page(tmp_path / "a.html")
    assert code == 0 and len(out.splitlines()) == 4 and "broken.png" in err
    assert "Could not be read" in page.text and "alert(1)" in page.text
    assert page.text.count("What speaks for") >= 8
    assert explain("run", *words, "--out", "a.json")[0] == 0
    told = json.loads((tmp_path / "a.json").read_text())
    assert len(told) == 4 and all(len(one["evidence"]) in (2, 3) for one in told)
    odd = folder / "<script>alert(1)<" / "$x_1$ & co.png"
    assert explain("run", "--image", odd, "--class", run.classes[0], "--out", "a.png")[0] == 0
    assert Image.open(tmp_path / "a.png").size[0] > 1000


def test_a_black_box_gets_grad_cam_and_says_so(read_page, explain, made, tmp_path):
    image = made / "images" / "0.png"
    code, _, err = explain("box", "--image", image, "--out", "a.html")
    assert code == 0 and "Grad-CAM" in err and "Grad-CAM" in read_page(tmp_path / "a.html").text
    assert explain("box", "--image", image, "--out", "a.png")[0] == 0
    explain("box", "--image", image, "--out", "a.json")
    (one,) = json.loads((tmp_path / "a.json").read_text())
    (row,) = one["contributions"]
    assert row["contribution"] == one["logit"] and row["box"] is None
    assert one["map"]["method"] == "grad-cam" and len(one["map"]["box"]) == 4
    code, _, err = explain("box", "--prototypes", "--out", "p.html")
    assert code == 2 and "no parts" in err


def test_prototypes_of_several_models_in_one_picture(explain, made, tmp_path):
    words = ("--beside", made / "run", "--site", "site-00", "--top", 2, "--out", "a.png")
    assert explain("run", "--prototypes", *words)[0] == 0
    assert Image.open(tmp_path / "a.png").size[0] > 400
    code, _, err = explain("run", "--prototypes", *words, "--force", "--class", "dodo")
    assert code == 2 and "no class 'dodo'" in err


def test_images_that_can_no_longer_be_read_are_said_to_be(read_page, explain, made, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(made / "run", copy)
    config = (copy / "config.toml").read_text()
    changed = re.sub(r"(\[data\.aviary\][^\[]*?seed = )\d+", r"\g<1>77", config)
    assert changed != config
    (copy / "config.toml").write_text(changed)
    site = vitrail.load(copy).sites[0]
    assert explain(copy, "--prototypes", "--site", site, "--out", "p.html")[0] == 0
    page = read_page(tmp_path / "p.html")
    assert "no longer those it was trained on" in page.text and not page.labels


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "a.html"], "nothing to explain"),
        (["--prototypes", "--image", "IMAGE", "--out", "a.html"], "both"),
        (["--prototypes", "--out", "a.png"], ".html"),
        (["--image", "IMAGE", "--out", "a.pdf"], ".html or .png or .json"),
        (["--image", "absent.png", "--out", "a.html"], "nothing here"),
        (["--image", "FOLDER", "--out", "a.png"], "one image"),
        (["--image", "IMAGE", "--out", "a.html", "--class", "dodo"], "no class 'dodo'"),
        (["--image", "IMAGE", "--out", "a.html", "--site", "nowhere"], "no site 'nowhere'"),
        (["--image", "IMAGE", "--out", "a.html", "--model", "local"], "belongs to a site"),
        (["--image", "IMAGE", "--out", "a.html", "--model", "globe"], "Did you mean 'global'"),
        (["--image", "IMAGE", "--out", "a.html", "--top", "0"], "1 or more"),
        (["--image", "IMAGE", "--out", "there.html"], "--force"),
        (["--image", "text.png", "--out", "a.html"], "text.png"),
        (["--prototypes", "--beside", "RUN", "--out", "a.html", "--site", "site-00"], ".png"),
        (["--prototypes", "--beside", "RUN", "--out", "a.png"], "Name one with --site"),
        (["--image", "IMAGE", "--beside", "RUN", "--out", "a.png"], "Add --prototypes"),
        (["--prototypes", "--beside", "RUN", "--out", "a.png", "--site", "x"], "no site 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(explain, made, tmp_path, words, told):
    (tmp_path / "there.html").write_text("mine")
    (tmp_path / "text.png").write_text("no image")
    places = {"IMAGE": made / "images" / "0.png", "FOLDER": made / "images", "RUN": made / "run"}
    code, _, err = explain("run", *[places.get(word, word) for word in words])
    assert code == 2 and told in err and "Traceback" not in err
    assert err.splitlines()[-1].startswith("vitrail: ")
    assert not list(tmp_path.glob("a.*")) and (tmp_path / "there.html").read_text() == "mine"
