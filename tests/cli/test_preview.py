"""The preview: a page of what would be shared, and not a trace of anything having left."""

import re

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.config.load import parse
from vitrail.errors import ConfigError, RunError
from vitrail.report.pages.preview_page import render_preview_page
from vitrail.report.preview_sharing import Previewer

FILE = """
[data]
image_size = 16
[data.aviary]
images = 64
classes = 3
[partition]
sites = 3
[model]
backbone = "resnet8"
width = 8
[method]
name = "{name}"
{more}
[run]
rounds = 6
"""


@pytest.fixture
def toml(tmp_path):
    def write(name="fedxds", more=""):
        path = tmp_path / "federation.toml"
        path.write_text(FILE.format(name=name, more=more))
        return path

    return write


def preview(*args):
    return CliRunner().invoke(app, ["preview", *map(str, args)])


def test_a_page_of_every_site_and_nothing_else_is_written(toml, tmp_path):
    file = toml()
    before = set(tmp_path.rglob("*"))
    done = preview(file, "--out", tmp_path / "page.html", "--images", 3)
    assert done.exit_code == 0, done.exception
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "page.html"}
    page = (tmp_path / "page.html").read_text()
    assert page.count("<section>") == 3 and page.count("<img") == 3 * 3 * 4
    assert "no formal guarantee" in page and "http" not in page.replace("http-equiv", "")
    assert not re.search(r"<img(?![^>]*alt=\"[^\"]+\")", page)
    assert done.stdout.count("images,") == 3


def test_what_is_shown_is_what_the_options_say(tiny_config):
    method = {"name": "fedxds", "removed": 0.75, "sigma": 0.0, "boxes": [[0, 0, 1, 0.25]]}
    one = next(Previewer(parse(tiny_config(method=method)), rounds=0).sites(("site-02",)))
    assert one.site == "site-02" and one.shared.pixels[:, :4].eq(0).all()
    kept = one.chosen.mask.gt(0)
    assert int(kept.flatten(1).sum(1).max()) <= 64
    raw = one.images.astype("float32") / 255
    shown = one.shared.pixels.numpy()
    assert abs(shown[kept.numpy()] - raw[kept.numpy()]).max() < 1e-6


def test_a_fraction_is_told_as_one(tiny_config):
    method = {"name": "fedxds", "fraction": 0.5}
    one = next(Previewer(parse(tiny_config(method=method)), rounds=0).sites(("site-02",)))
    assert len(one.images) == round(one.held / 2) < one.held
    assert f"{len(one.images)} of {one.held} images" in render_preview_page([one], "t", 0, 1)


def test_the_noise_of_a_preview_is_not_that_of_the_run(tiny_config, tmp_path):
    import vitrail
    from vitrail.files import read_tensors

    config = tiny_config(
        method={"name": "fedxds", "warmup": 0, "attribution": "gradient"},
        run={"record_updates": True},
    )
    one = next(Previewer(parse(config)).sites(("site-03",)))
    run = vitrail.run(config, tmp_path / "run")
    file = run.path / "server/transcript/round-00001/updates/site-03.safetensors"
    sent = read_tensors(file)[0]["images/pixels"]
    # no warm-up: the same model, so the same masks and another noise
    assert sent.shape == one.shared.pixels.shape
    ours, theirs = one.shared.pixels - one.chosen.pixels, sent - one.chosen.pixels
    assert 0.05 < float(theirs.std()) < 0.15
    correlation = float((ours * theirs).mean() / (ours.std() * theirs.std()))
    assert abs(correlation) < 0.1


def test_means_and_curves_are_shown_too(tiny_config):
    for method, words in (
        ({"protection": "local-dp", "group": 3}, ("formal: local DP: epsilon 10", "pictures made")),
        ({"protection": "metric", "sigma": 0.5}, ("epsilon by l2 distance", "nearest neighbor")),
        ({"protection": "local-dp", "group": 60}, ("No group of images",)),
    ):
        config = tiny_config(method={"name": "fedxds", **method})
        found = list(Previewer(parse(config), rounds=0).sites(("site-03",)))
        page = render_preview_page(found, "<b>", 0, 4)
        assert all(word in page for word in words) and "&lt;b&gt;" in page


def test_what_cannot_be_previewed_is_a_sentence(toml, tmp_path):
    with pytest.raises(ConfigError, match="fedavg shares no images"):
        Previewer(parse({"method": {"name": "fedavg"}}))
    done = preview(toml(), "--out", tmp_path / "page.pdf")
    assert isinstance(done.exception, ConfigError) and "a preview is a page" in str(done.exception)
    (tmp_path / "there.html").write_text("mine")
    done = preview(toml(), "--out", tmp_path / "there.html")
    assert isinstance(done.exception, RunError) and (tmp_path / "there.html").read_text() == "mine"
    done = preview(toml(), "--out", tmp_path / "a.html", "--site", "nobody", "--rounds", 0)
    assert "no site 'nobody'" in str(done.exception) and not (tmp_path / "a.html").exists()
