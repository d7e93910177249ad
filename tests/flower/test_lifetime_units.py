"""Whose budget the lifetime ledger adds up: images and patients meet, whatever they are read as."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
from PIL import Image

from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.flower.site.site_config import SiteConfig
from vitrail.release.accounting.accountant import Event, compute_epsilon
from vitrail.release.accounting.group_privacy import compute_group_epsilon, compute_mixed_epsilon

from .conftest import SITES
from .test_lifetime import DELTA, NOISE, play


@pytest.fixture
def clinic(birds, tmp_path):
    """East's images on a disk of its own, with a column that says whose they are: of five to a
    patient, but for copies."""
    root = tmp_path / "clinic"
    shutil.copytree(birds.root, root)
    rows = list(csv.DictReader((root / "east.csv").open()))
    train = [row for row in rows if row["split"] == "train"]
    for number, row in enumerate(train):
        row["who"] = f"patient {number // 5}"
    with (root / "east.csv").open("w", newline="") as handle:
        out = csv.DictWriter(handle, ["path", "label", "site", "split", "who"])
        out.writeheader()
        out.writerows({"who": "tested", **row} for row in rows)
    return root


def make_configs(birds, folder, data="", **changes):
    """The sites, of which east reads its images as `data` says."""
    configs = {s: birds.home(s, folder) for s in SITES}
    file = configs["east"].file
    text = file.read_text().split("[data]")[0]
    file.write_text(f"{text}[data]\n{data}\n")
    opened = SiteConfig.open(file)
    object.__setattr__(opened, "wait", lambda run, terms, lines, patience: True)
    return {**configs, "east": opened}


def describe(root, more=""):
    return f'source = "manifest"\npath = "{root / "east.csv"}"\nsplit = "split"\n{more}'


def read_spent(config):
    shares = LifetimeLedger(config).list_shares()
    return max(share.spending.compute_epsilon(DELTA) for share in shares), shares


def make_events(config):
    """What one run of dp-sgd costs an image, from its number of images."""
    count = sum(LifetimeLedger(config).list_runs()[0].keys.values())
    return count, [Event(NOISE, 8 / count, 2 * -(-count // 8))]


def test_a_patient_has_spent_what_all_its_images_have(birds, clinic, tmp_path):
    """The number held for one image of the patient."""
    configs = make_configs(birds, tmp_path / "homes", describe(clinic, 'patient = "who"'))
    play(birds, tmp_path / "homes", tmp_path / "one", configs=configs)
    spent, shares = read_spent(configs["east"])
    count, events = make_events(configs["east"])
    assert sum(share.images for share in shares) == -(-count // 5)
    assert max(size for share in shares for size in share.sizes) == 5
    assert spent == pytest.approx(compute_group_epsilon(events, 5, DELTA), rel=1e-3)
    assert spent > 2 * compute_epsilon(events, DELTA)


@pytest.mark.parametrize("first", ["", 'patient = "who"'])
def test_a_run_by_image_and_one_by_patient_add_up(first, birds, clinic, tmp_path):
    """They had different keys, and each run saw images that no other had seen."""
    second = 'patient = "who"' if not first else ""
    for number, more in enumerate((first, second)):
        configs = make_configs(birds, tmp_path / "homes", describe(clinic, more))
        play(birds, tmp_path / "homes", tmp_path / f"run-{number}", configs=configs)
    spent, shares = read_spent(configs["east"])
    _, events = make_events(configs["east"])
    assert all(len(share.runs) == 2 for share in shares)
    both = [Event(e.noise, e.rate, 2 * e.times) for e in events]
    assert spent == pytest.approx(compute_group_epsilon(both, 5, DELTA), rel=1e-3)


def test_a_patient_under_two_names_is_one(birds, clinic, tmp_path):
    configs = make_configs(birds, tmp_path / "homes", describe(clinic, 'patient = "who"'))
    play(birds, tmp_path / "homes", tmp_path / "one", configs=configs)
    file = clinic / "east.csv"
    file.write_text(file.read_text().replace("patient ", "P-00"))
    play(birds, tmp_path / "homes", tmp_path / "two", configs=configs)
    _, shares = read_spent(configs["east"])
    assert all(len(share.runs) == 2 and max(share.sizes) <= 5 for share in shares)


def test_an_image_that_is_there_twice_has_spent_as_a_pair(birds, clinic, tmp_path):
    rows = list(csv.DictReader((clinic / "east.csv").open()))
    row = next(r for r in rows if r["split"] == "train")
    shutil.copy(clinic / row["path"], clinic / "copy.png")
    with (clinic / "east.csv").open("a", newline="") as handle:
        csv.writer(handle).writerow(["copy.png", row["label"], "east", "train", row["who"]])
    configs = make_configs(birds, tmp_path / "homes", describe(clinic))
    play(birds, tmp_path / "homes", tmp_path / "one", configs=configs)
    spent, shares = read_spent(configs["east"])
    _, events = make_events(configs["east"])
    assert max(share.sizes for share in shares) == (2,)
    assert spent == pytest.approx(compute_group_epsilon(events, 2, DELTA), rel=1e-3)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_an_image_without_a_file_is_the_same_at_another_size(kind, birds, clinic, tmp_path):
    """It was known by its pixels after resizing: terms with another image_size made it new."""
    rows = list(csv.DictReader((clinic / "east.csv").open()))
    labels, splits = [r["label"] for r in rows], [r["split"] for r in rows]
    if kind == "npz":
        pixels = np.stack([np.asarray(Image.open(clinic / r["path"])) for r in rows])
        np.savez(tmp_path / "east.npz", x=pixels, y=np.array(labels), split=np.array(splits))
    else:
        pa = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        raw = [(clinic / r["path"]).read_bytes() for r in rows]
        parquet.write_table(
            pa.table({"image": raw, "label": labels, "split": splits}), tmp_path / "east.parquet"
        )
    data = f'source = "{kind}"\npath = "{tmp_path / f"east.{kind}"}"\nsplit = "split"\n'
    configs = make_configs(birds, tmp_path / "homes", data)
    for size in (32, 24):
        terms = {**birds.terms, "data": {**birds.terms["data"], "image_size": size}}
        play(
            type(birds)(birds.root, terms),
            tmp_path / "homes",
            tmp_path / f"at-{size}",
            configs=configs,
        )
    _, shares = read_spent(configs["east"])
    assert [len(share.runs) for share in shares] == [2]


def test_what_the_operator_and_the_ledger_are_told(birds, clinic, tmp_path):
    """Unit, adversary and what was spent over all runs, in the consent and in the run's ledger."""
    configs = make_configs(birds, tmp_path / "homes", describe(clinic, 'patient = "who"'))
    heard = []
    object.__setattr__(
        configs["east"], "wait", lambda run, terms, lines, patience: heard.extend(lines) or True
    )
    release = {"secure_sum": True, "defenses": ["client-dp"]}
    release["client-dp"] = {"where": "distributed", "noise": NOISE, "delta": 1e-3, "colluding": 1}
    play(birds, tmp_path / "homes", tmp_path / "one", release, configs)
    line = next(text for text in heard if text.startswith("over all runs here"))
    assert "one patient with all images (up to 5 in this run" in line
    assert "the server with 1 of the sites" in line and "epsilon 0 is spent" in line
    ledger = next((configs["east"].folder / "runs").glob("*/sites/east/ledger.jsonl"))
    told = next(t for t in ledger.read_text().splitlines() if '"kind":"lifetime"' in t)
    assert "one patient" in told and "the server with 1 of the sites" in told and '"spent"' in told


def test_groups_of_one_cost_what_images_do_and_more_cost_more():
    events = [Event(4.0, 0.1, 50)]
    assert compute_mixed_epsilon({1: events}, DELTA) == compute_group_epsilon(events, 1, DELTA)
    assert compute_mixed_epsilon({0: events}, DELTA) == compute_mixed_epsilon({}, DELTA) == 0.0
    mixed = compute_mixed_epsilon({1: events, 3: events}, DELTA)
    assert compute_group_epsilon(events, 3, DELTA) < mixed
    twice = [Event(4.0, 0.1, 100)]
    assert mixed < compute_group_epsilon(twice, 3, DELTA)
    whole = compute_mixed_epsilon({2: [Event(4.0)], 1: [Event(2.0)]}, DELTA)
    assert whole == pytest.approx(compute_epsilon([Event(2.0, 1.0, 2)], DELTA), rel=1e-4)
