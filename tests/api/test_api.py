"""The Python API: the words of the command line, results as tables, pictures and files."""

import json
import math
import sys
import types

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import vitrail
from vitrail.api.result import NO_DIAGNOSIS, Result
from vitrail.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_config):
    folder = tmp_path_factory.mktemp("api")
    config = tiny_config(
        method={"name": "myth-gm", "warm_epochs": 1, "last_epochs": 1},
        model={"backbone": "small-cnn", "width": 4, "prototypes": {"per_class": 2, "depth": 8}},
        run={"rounds": 2, "record_updates": True},
    )
    return vitrail.run(config, folder / "run")


@pytest.fixture
def picture():
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    return Image.fromarray(pixels)


def columns(result):
    table = result.to_arrow()
    assert isinstance(table, pa.Table)
    return table.column_names


def test_what_a_user_sees_is_what_is_meant_for_users():
    names = {name for name in dir(vitrail) if not name.startswith("_")}
    assert names == {"compare", "extend", "load", "resume", "run", "withdraw"}
    assert all(getattr(vitrail, name).__doc__ for name in names)


def test_arrays_pictures_and_files_are_predicted_alike(run, picture, tmp_path):
    picture.save(tmp_path / "one.png")
    by_file = run.predict(tmp_path / "one.png").rows()[0]
    by_picture = run.predict(picture).rows()[0]
    by_array = run.predict(np.stack([np.asarray(picture)] * 2)).rows()
    assert len(by_array) == 2
    for name in run.classes:
        assert by_file[name] == pytest.approx(by_picture[name], abs=1e-6)
        assert by_file[name] == pytest.approx(by_array[1][name], abs=1e-6)
    assert sum(by_file[name] for name in run.classes) == pytest.approx(1, abs=1e-5)
    assert run.predict([]).rows() == []


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.zeros((4, 4, 3)), "uint8"),
        (np.zeros((2, 2, 2, 2, 2), np.uint8), "holds no images"),
        (3, "no image"),
    ],
)
def test_what_is_no_image_is_refused(run, images, words):
    with pytest.raises(DataError, match=words):
        run.predict(images)


def test_an_explanation_adds_up_shows_a_picture_and_says_what_it_is_not(run, picture, tmp_path):
    why = run.explain(picture, classes=[run.classes[0]])
    for entry in why.to_json():
        total = math.fsum(row["contribution"] for row in entry["contributions"])
        assert total == pytest.approx(entry["logit"], abs=1e-6)
    assert why.prediction in run.classes and 0 <= why.probability <= 1
    html = why._repr_html_()
    assert "data:image/png;base64," in html and NO_DIAGNOSIS in html
    assert why.save(tmp_path / "why.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(why.save(tmp_path / "why.json").read_text()) == why.to_json()
    assert "<html" in why.save(tmp_path / "why.html").read_text()
    with pytest.raises(DataError, match="one image is explained at a time"):
        run.explain([picture, picture])


def test_ledger_audit_attack_personalize_and_report(run, tmp_path):
    ledger = run.ledger()
    assert not ledger.mismatches and {"site", "kind", "bytes"} <= set(columns(ledger))
    assert {row["site"] for row in run.ledger("site-00").rows()} == {"site-00"}
    audit = run.audit()
    assert {site["site"] for site in audit.to_json()["sites"]} == set(run.sites)
    assert audit.save(tmp_path / "audit.html").stat().st_size > 1000
    attack = run.attack(images=1, iterations=2)
    names = [row["attack"] for row in attack.rows()]
    assert "ig" in names and "random image" in names  # never without what it is measured against
    report = run.report(tmp_path / "report.html")
    assert report.path.read_text().startswith("<!DOCTYPE html>")
    assert "open the report" in report._repr_html_()


def test_personalize_and_evaluate(run, tmp_path):
    tuned = run.personalize("site-01", epochs=1)
    assert {"figure", "global", "personal"} == set(columns(tuned))
    draw = np.random.default_rng(1)
    for name in run.classes:
        (tmp_path / "new" / name).mkdir(parents=True)
        for number in range(3):
            pixels = draw.integers(0, 256, (16, 16, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "new" / name / f"{number}.png")
    measured = run.evaluate(tmp_path / "new")
    assert 0 <= measured["balanced_accuracy"] <= 1
    assert NO_DIAGNOSIS in measured._repr_html_()


def test_a_table_goes_to_a_frame_and_to_files(run, picture, tmp_path):
    result = run.predict(picture)
    frame = result.to_frame()
    assert len(frame) == 1
    assert pq.read_table(result.save(tmp_path / "a.parquet")).num_rows == 1
    text = result.save(tmp_path / "a.csv").read_text().splitlines()
    assert text[0].startswith("path,prediction,") and len(text) == 2
    with pytest.raises(ConfigError, match="cannot be written"):
        result.save(tmp_path / "a.docx")


def test_a_cell_that_a_spreadsheet_would_compute_is_quoted(tmp_path):
    class Sheet(Result):
        def rows(self):
            return [{"a": "=1+1", "b": 2.0}, {"a": None, "b": 1}, {"a": "<b>", "b": None}]

    text = Sheet().save(tmp_path / "a.csv").read_text()
    assert "'=1+1" in text and "<b>" not in Sheet()._repr_html_()


def test_continue_and_compare(run, tiny_config, tmp_path):
    config = tiny_config(model={"backbone": "small-cnn", "width": 4}, run={"rounds": 1})
    short = vitrail.run(config, tmp_path / "short")
    longer = short.continue_(rounds=1, out=tmp_path / "longer")
    assert longer.round == 2 and "fedavg" in repr(longer)
    prox = vitrail.run({**config, "method": {"name": "fedprox"}}, tmp_path / "prox")
    table = vitrail.compare([short, prox.path])
    assert len(table.rows()) == 2 and "<table>" in table._repr_html_()


def test_a_notebook_hears_of_every_round(monkeypatch, tiny_config, tmp_path):
    shown = []

    class Handle:
        def update(self, line):
            shown.append(repr(line))

    fake = types.ModuleType("IPython")
    fake.get_ipython = lambda: object()
    fake.display = types.SimpleNamespace(display=lambda line, display_id: Handle())
    monkeypatch.setitem(sys.modules, "IPython", fake)
    vitrail.run(tiny_config(run={"rounds": 2}), tmp_path / "run")
    assert any(line.startswith("round 2 of 2") for line in shown)


@pytest.mark.parametrize("method", ["myth-gm", "fedgrasp"])
def test_why_this_class_and_not_that_one(method, tiny, picture, tmp_path, command):
    own = {"warm_epochs": 1, "last_epochs": 1} if method == "myth-gm" else {"personal_epochs": 1}
    spans = {"dimension": 2, "depth": 8, "hidden": 8, "top": 2}
    run = tiny(
        method={"name": method, **own},
        model={"prototypes": {"per_class": 2, "depth": 8}, "subspaces": spans},
        run={"rounds": 2},
    )
    for name in run.classes:  # the predicted class among them: then the next one is set against it
        why = run.explain(picture, against=name)
        last = why.to_json()[-1]
        logits = {
            one["class"]: one["logit"]
            for one in run.explain(picture, classes=run.classes).to_json()
        }
        first = last["class"].removesuffix(f" rather than {name}")
        assert last["against"] == name and first in run.classes and first != name
        assert last["logit"] == pytest.approx(logits[first] - logits[name], abs=1e-5)
        assert math.fsum(r["contribution"] for r in last["contributions"]) == pytest.approx(
            last["logit"], abs=1e-5
        )
    picture.save(tmp_path / "one.png")
    for form in ("png", "html"):
        words = ("--image", "one.png", "--against", run.classes[0], "--out", f"why.{form}")
        code, _, err = command("explain", str(run.path), *words)
        assert code == 0, err
    assert "rather than" in (tmp_path / "why.html").read_text()
    code, _, err = command("explain", str(run.path), *words, "--against", "whale", "--force")
    assert code != 0 and "whale" in err and "--against" in err
