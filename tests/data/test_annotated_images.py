"""Regions that never count are gone from every image they hold for; what may not leave stays."""

import json

import numpy as np
import pytest
import torch

import vitrail
from vitrail.config import load, parse
from vitrail.config.annotation_section import Annotation, read_annotations
from vitrail.data.annotated_images import fill_regions, hide_regions, list_unshared
from vitrail.data.image_set import ImageSet
from vitrail.data.partition.partition import SiteRows
from vitrail.engine.federation import load_federation
from vitrail.errors import ConfigError
from vitrail.local.inputs import Inputs
from vitrail.local.sharing.unshared import drop_withheld, find_withheld_pixels

SIDE = 16


def make_images(count=6):
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (count, SIDE, SIDE, 3), np.uint8)
    names = np.array([f"i{n}" for n in range(count)])
    return ImageSet(pixels, np.arange(count) % 2, ("a", "b"), names)


SITES = {
    "north": SiteRows("north", np.array([0, 1]), np.array([2])),
    "south": SiteRows("south", np.array([3, 4]), np.array([5])),
}
CORNER = (0.0, 0.0, 0.25, 0.5)  # 4 columns, 8 rows


@pytest.mark.parametrize(
    ("about", "rows"),
    [({}, [0, 1, 2, 3, 4, 5]), ({"site": "north"}, [0, 1, 2]), ({"image": "i4"}, [4]),
     ({"site": "south", "image": "i5"}, [5])],
)  # fmt: skip
def test_a_region_is_gone_where_it_holds_and_nothing_else_moves(about, rows):
    images = make_images()
    hidden = hide_regions(images, SITES, [Annotation(box=CORNER, **about)], alone=False)
    changed = (hidden.images != images.images).any(3)
    inside = np.zeros((SIDE, SIDE), bool)
    inside[:8, :4] = True
    assert not changed[:, ~inside].any()
    assert sorted(set(np.nonzero(changed)[0].tolist())) == rows
    # nothing of the region is left: other pixels in it give the same picture
    other = ImageSet(
        np.where(inside[..., None], 255 - images.images, images.images),
        images.labels, images.classes, images.names,
    )  # fmt: skip
    again = hide_regions(other, SITES, [Annotation(box=CORNER, **about)], alone=False)
    assert (again.images[rows] == hidden.images[rows]).all()


def test_nothing_drawn_changes_nothing():
    images = make_images()
    assert hide_regions(images, SITES, (), alone=False) is images
    assert list_unshared(images, SITES, (), alone=False) is None
    only = [Annotation(image="i0", use="training")]
    assert hide_regions(images, SITES, only, alone=False) is images


def test_a_plain_picture_stays_plain():
    gray = np.full((2, SIDE, SIDE, 1), 77, np.uint8)
    holes = np.zeros((2, SIDE, SIDE), bool)
    holes[:, 3:9, 2:5] = True
    assert (fill_regions(gray, holes) == 77).all()


@pytest.mark.parametrize("about", [{"image": "i9"}, {"site": "nowhere"},
                                   {"site": "north", "image": "i5"}])  # fmt: skip
def test_what_is_not_there_is_never_passed_over(about):
    with pytest.raises(ConfigError, match="there is no"):
        hide_regions(make_images(), SITES, [Annotation(box=CORNER, **about)], alone=False)


def test_a_site_of_a_federation_passes_over_others():
    drawn = [Annotation(box=CORNER, site="elsewhere")]
    images = make_images()
    assert hide_regions(images, SITES, drawn, alone=True) is images


@pytest.mark.parametrize("raw", [
    {"box": [0.5, 0, 0.5, 1]}, {"box": [0, 0, 1, 2]}, {"box": [0, 0, 1]}, {}, {"use": "sharing"},
    {"box": [0, 0, 0.5, 0.5], "zzz": 1}, {"box": ["a", 0, 1, 1]}, 3, None,
])  # fmt: skip
def test_a_file_that_makes_no_sense_is_one_sentence(tmp_path, raw):
    file = tmp_path / "annotations.json"
    file.write_text(json.dumps({"annotations": [raw]}))
    with pytest.raises(ConfigError, match="no file of annotations"):
        read_annotations(file)
    for text in ("", "[]", '{"annotations": 3}', "\x00"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="no file of annotations"):
            read_annotations(file)


def test_withheld_images_and_pixels_by_the_plain_rule():
    images = make_images()
    drawn = [
        Annotation(image="i1", use="training"),
        Annotation(image="i3", box=CORNER, use="training"),
        Annotation(site="south", box=(0.5, 0.5, 1.0, 1.0)),
    ]
    unshared = list_unshared(images, SITES, drawn, alone=False)
    inputs = Inputs(images.images, images.labels, None, unshared=unshared)
    rows = np.array([4, 3, 1, 0])
    assert drop_withheld(inputs, rows).tolist() == [4, 3, 0]
    withheld = find_withheld_pixels(inputs, rows)
    expected = torch.zeros(4, SIDE, SIDE, dtype=torch.bool)
    expected[1, :8, :4] = True
    expected[2] = True
    expected[0, 8:, 8:] = expected[1, 8:, 8:] = True
    assert bool((withheld == expected).all())
    assert drop_withheld(Inputs(images.images, images.labels, None), rows) is rows


SHARING = {
    "data": {"aviary": {"images": 60, "classes": 2, "seed": 7}},
    "partition": {"kind": "iid", "sites": 2},
    "run": {"rounds": 3, "local_epochs": 1},
    "model": {},
}


@pytest.mark.parametrize(
    "method", [{"name": "fedxds", "warmup": 1, "sigma": 0.0}, {"name": "fedfed"}]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_may_not_leave_does_not_in_a_run(tmp_path, tiny_config, method, workers):
    plain = tiny_config(**SHARING, method=method)
    tree = {**plain, "run": {**plain["run"], "workers": workers, "record_updates": True}}
    federation = load_federation(parse(tree))
    name, held = next(iter(federation.sites.items()))
    secret = [str(n) for n in federation.images.names[held.train[:3]]]
    drawn = [{"site": name, "image": image, "use": "training"} for image in secret]
    tree["data"] = {**tree["data"], "annotations": drawn}
    run = vitrail.run(tree, tmp_path / "run")
    shared = {row["site"]: row["shared_images"] for row in run.rows() if row.get("shared_images")}
    views = 2 if method["name"] == "fedfed" else 1
    assert shared[name] == views * (len(held.train) - 3)
    other = next(site for site in federation.sites if site != name)
    assert shared[other] == views * len(federation.sites[other].train)


def test_no_image_left_to_share_is_no_crash(tmp_path, tiny_config):
    tree = tiny_config(**SHARING, method={"name": "fedxds", "warmup": 1})
    drawn = [{"site": "site-1", "use": "training"}]
    federation = load_federation(parse(tree))
    drawn[0]["site"] = next(iter(federation.sites))
    tree["data"] = {**tree["data"], "annotations": drawn}
    run = vitrail.run(tree, tmp_path / "run")
    assert run.finished


def test_a_run_obeys_a_file_and_goes_on_with_what_it_began_with(tmp_path, tiny_config):
    import tomli_w
    from typer.testing import CliRunner

    from vitrail.cli.app import app
    from vitrail.config import to_stored_tree

    tree = tiny_config(**{**SHARING, "run": {"rounds": 1, "local_epochs": 1}},
                       method={"name": "fedavg"})  # fmt: skip
    (tmp_path / "run.toml").write_text(tomli_w.dumps(to_stored_tree(parse(tree).config)))
    line = {"box": [0.0, 0.0, 0.5, 0.5], "note": "a marker", "by": "me", "at": "now"}
    file = tmp_path / "annotations.json"
    file.write_text(json.dumps({"annotations": [line]}))
    ran = CliRunner().invoke(
        app,
        ["run", str(tmp_path / "run.toml"), "--annotations", str(file), "--out",
         str(tmp_path / "out"), "--quiet"],
    )  # fmt: skip
    assert ran.exit_code == 0, ran.output
    stored = load(tmp_path / "out" / "config.toml", stored=True).config.data.annotations
    assert stored == read_annotations(file)
    file.unlink()  # the run folder has all it needs
    run = vitrail.load(tmp_path / "out")
    plain = load_federation(parse(tree)).images.images
    seen = load_federation(run.loaded).images.images
    side = plain.shape[1] // 2
    assert (plain[:, side:] == seen[:, side:]).all()
    assert (plain[:, :side, :side] != seen[:, :side, :side]).any()
    # a new image is seen without the region too: what is in it changes nothing
    image = plain[0].copy()
    before = run.ask(image, calibrated=False).logits
    image[:side, :side] = 255 - image[:side, :side]
    assert run.ask(image, calibrated=False).logits == before
