"""Prototypes side by side: which models stand there, and what may not stand beside what."""

import io

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.errors import RunError
from vitrail.report.figures.prototypes_picture import draw_prototypes, iterate_site_models

QUICK = {
    "partition": {"kind": "iid", "sites": 2},
    "model": {"prototypes": {"per_class": 2, "depth": 8}},
    "run": {"rounds": 2, "local_epochs": 1},
}
EPOCHS = {"warm_epochs": 1, "last_epochs": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("beside")
    methods = {
        "cm": {"name": "centralized", "model": "protopnet", **EPOCHS},
        "gm": {"name": "myth-gm", **EPOCHS},
        "pm": {"name": "myth-pm", **EPOCHS},
    }
    return {
        name: vitrail.run(tiny_config(**QUICK, method=method), folder / name)
        for name, method in methods.items()
    }


def test_the_models_of_the_papers_and_their_patches(runs):
    rows = list(iterate_site_models([runs["cm"], runs["pm"], runs["gm"]], "site-01"))
    names = [name.rpartition(" ")[2] for name, _ in rows]
    assert names == ["(CM)", "(LM)", "(PM)", "(LM)", "(GM)"]
    for _, explainer in rows:  # every model has something to show: real training patches
        assert any(explainer.patches.get(unit) is not None for unit in range(6))
    assert rows[0][1].site == "pooled" and {explainer.site for _, explainer in rows[1:]} == {
        "site-01"
    }


def test_the_picture_grows_with_models_and_classes_and_shows_the_patches(runs):
    rows = list(iterate_site_models([runs["cm"], runs["gm"]], "site-00"))
    names = rows[0][1].model.classes
    picture = Image.open(io.BytesIO(draw_prototypes(rows, names[:1], top=2)))
    every = Image.open(io.BytesIO(draw_prototypes(rows, (), top=2)))
    assert every.width == picture.width and every.height == pytest.approx(
        3 * picture.height, rel=0.02
    )
    colors = len(np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0))
    assert colors > 200  # photographs, not only boxes and words
    assert draw_prototypes(rows, names[:1], top=2) == draw_prototypes(rows, names[:1], top=2)


def test_models_of_other_classes_do_not_stand_side_by_side(runs, tiny_config, tmp_path):
    other = vitrail.run(
        tiny_config(**QUICK, method={"name": "myth-gm", **EPOCHS}, data={"aviary": {"classes": 2}}),
        tmp_path / "other",
    )
    with pytest.raises(RunError, match="other classes"):
        draw_prototypes(list(iterate_site_models([runs["gm"], other], "site-00")), ())
