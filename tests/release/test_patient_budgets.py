"""Where patients are known, a guarantee for one image is told from one for a patient."""

import csv

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.config import parse
from vitrail.data.patients import PatientCount
from vitrail.engine.plan import make_plan
from vitrail.engine.run import start
from vitrail.errors import ConfigError
from vitrail.release.patient_budgets import (
    list_patient_budgets,
    list_worst_budgets,
    plan_patient_budgets,
)
from vitrail.report.compose import compose
from vitrail.report.viewer import Viewer
from vitrail.runs.ledgers import read_ledgers


def write_images(folder, images_per_patient):
    """Two classes; patients of two sites, each with so many images."""
    draw, rows = np.random.default_rng(0), []
    for number, count in enumerate(images_per_patient):
        for _ in range(count):
            name = f"{len(rows):03d}.png"
            Image.fromarray(draw.integers(0, 256, (16, 16, 3), np.uint8)).save(folder / name)
            rows.append([name, "ab"[len(rows) % 2], f"s{number % 2}", f"p{number}"])
    with (folder / "list.csv").open("w", newline="") as handle:
        csv.writer(handle).writerows([["image", "label", "site", "who"], *rows])


def make_config(folder, unit="image", patient="who"):
    data = {"source": "manifest", "path": str(folder / "list.csv"), "image_size": 16}
    return {
        "data": {**data, "site": "site", **({"patient": patient} if patient else {})},
        "partition": {"kind": "column", "column": "site", "minimum": 2},
        "model": {"backbone": "small-cnn", "width": 8, "norm": "group"},
        "release": {
            "defenses": ["dp-sgd"],
            "dp-sgd": {"noise": 2.0, "delta": 1e-3, **({"unit": unit} if unit else {})},
        },
        "run": {"rounds": 1, "local_epochs": 1, "batch_size": 4, "device": "cpu", "seed": 5},
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("patients")
    write_images(folder, [7, 3, 2, 3, 2, 3, 2, 3])
    return {
        unit: vitrail.run(make_config(folder, unit), folder / unit).path
        for unit in ("image", "patient")
    }


def test_the_largest_patient_and_its_epsilon_are_told(runs, command):
    ledgers = read_ledgers(runs["image"])
    largest = {
        ledger.site: next(x["largest"] for x in ledger.lines if x["kind"] == "patients")
        for ledger in ledgers.sites
    }
    site = max(largest, key=largest.get)
    (budget,) = list_worst_budgets({x.site: x.lines for x in ledgers.sites})
    spent = next(x for x in ledgers.sites if x.site == site).budgets[0]
    assert (budget.site, budget.images) == (site, max(largest.values())) and budget.images > 1
    assert budget.epsilon > 1.5 * spent["epsilon"]
    words = f"a patient of {site} has {budget.images} images"
    code, out, _ = command("ledger", str(runs["image"]))
    assert code == 0 and words in out and f"{budget.epsilon:.4g}" in out
    assert words in (runs["image"] / "log.txt").read_text()
    page = compose([runs["image"]], Viewer(None, False)).html
    assert "No guarantee for a patient" in page and words in page


def test_the_patient_as_the_unit_is_what_ledger_and_report_say(runs, command):
    ledgers = read_ledgers(runs["patient"])
    assert not ledgers.mismatches
    for ledger in ledgers.sites:
        assert {budget["unit"] for budget in ledger.budgets} == {"one patient"}
        assert not list_patient_budgets(ledger.site, ledger.lines)
        first = next(x for x in ledger.lines if x["kind"] == "release")
        assert "for one patient" in first["guarantee"]
        assert first["defenses"][0]["parameters"]["unit"] == "patient"
    code, out, _ = command("ledger", str(runs["patient"]))
    assert code == 0 and "one patient" in out and "No guarantee" not in out
    page = compose([runs["patient"]], Viewer(None, False)).html
    assert "one patient" in page and "No guarantee for a patient" not in page


def test_processes_come_to_the_same_model(runs, tmp_path, crew):
    config = make_config(runs["patient"].parent, "patient")
    config["run"]["workers"] = 2
    other = vitrail.load(start(parse(config, tmp_path), tmp_path / "two", None, crew).path)
    one = vitrail.load(runs["patient"]).model().network.state_dict()
    for name, tensor in other.model().network.state_dict().items():
        assert tensor.equal(one[name]), name


def test_the_unit_is_refused_where_patients_are_not_known(tmp_path):
    write_images(tmp_path, [2] * 8)
    with pytest.raises(ConfigError, match="does not say whose images they are"):
        vitrail.run(make_config(tmp_path, "patient", patient=None), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    loaded = parse(make_config(tmp_path, "patient"), tmp_path)
    (defense,) = make_plan(loaded, ("a", "b"), 3)[0].defenses()
    with pytest.raises(ConfigError, match="does not say of 2 images whose images they are"):
        defense.check_patients("here", PatientCount(5, 3, unknown=2))


def test_before_a_run_the_budget_of_a_patient_is_that_of_the_whole_run(tmp_path):
    """What a site's operator reads: nothing where each patient has one image, or is the unit."""

    def plan_budgets(unit, largest):
        loaded = parse(make_config(tmp_path, unit), tmp_path)
        defenses = make_plan(loaded, ("a", "b"), 3)[0].defenses()
        return plan_patient_budgets("here", 20, PatientCount(5, largest), defenses)

    few, many = plan_budgets("image", 2)[0], plan_budgets("image", 6)[0]
    assert few.epsilon < many.epsilon
    assert "a patient of here has 6 images" in many.sentence()
    assert "over the whole run" in many.sentence()
    assert not plan_budgets("image", 1) and not plan_budgets("patient", 6)
