"""What the lifetime ledger once missed: releases after the end, images that a run only looked at,
and lines of an older version that no image matches any more."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.release.door import Door
from vitrail.release.lifetime_spending import Spending

from .test_lifetime import play, spend_on, tighten
from .test_lifetime_units import describe, make_configs, read_spent


@pytest.fixture
def clinic(birds, tmp_path):
    """East's images on a disk of its own."""
    root = tmp_path / "clinic"
    shutil.copytree(birds.root, root)
    return root


def test_what_leaves_after_the_end_leaves_no_bound(birds, tmp_path):
    """A model of the site's own that is lent for an audit leaves without a proof, after the run was
    settled: the lifetime ledger went on to say a finite epsilon."""
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    east = configs["east"]
    (before,) = spend_on(east)
    assert np.isfinite(before) and LifetimeLedger(east).list_runs()[0].over
    (run,) = (east.folder / "runs").iterdir()
    door = Door("east", SiteFolder(run, "east").ledger(), (), ())
    door.release_model("lent", {"weight": torch.ones(3)})
    assert spend_on(east) == [float("inf")]


def test_what_was_settled_is_counted_once(birds, tmp_path):
    """The run's own ledger is read again: its events must not be added to themselves."""
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    ledger = LifetimeLedger(configs["east"])
    (line,) = [x for x in ledger._read() if x["kind"] == "over"]
    (run,) = ledger.list_runs()
    assert run.spending == Spending.read(line["spent"])


def test_images_that_a_run_without_a_proof_was_tested_on_have_no_bound(birds, clinic, tmp_path):
    """Its accuracy on them left as it was. Trained on in the next run, with a proof, they counted
    as never seen."""
    configs = make_configs(birds, tmp_path / "homes", describe(clinic))
    play(birds, tmp_path / "homes", tmp_path / "one", None, configs)
    table = clinic / "east.csv"
    rows = list(csv.DictReader(table.open()))
    other = {"train": "test", "test": "train"}
    with table.open("w", newline="") as handle:
        out = csv.DictWriter(handle, list(rows[0]))
        out.writeheader()
        out.writerows({**row, "split": other[row["split"]]} for row in rows)
    tested = sum(row["split"] == "test" for row in rows)
    play(birds, tmp_path / "homes", tmp_path / "two", configs=configs)
    shares = LifetimeLedger(configs["east"]).list_shares()
    both = [share for share in shares if len(share.runs) == 2]
    assert sum(share.images for share in both) == tested > 0
    assert all(not np.isfinite(spent) for spent in spend_on(configs["east"]))


def test_images_that_a_run_with_a_proof_is_tested_on_spend_nothing(birds, tmp_path):
    """Nothing about them leaves."""
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    ledger = LifetimeLedger(configs["east"])
    (begun,) = [x for x in ledger._read() if x["kind"] == "begin"]
    (run,) = ledger.list_runs()
    assert begun["tested"] and not set(begun["tested"]) & set(run.keys)


def write_old_line(config, source, keys):
    """As version 0.2.0 wrote it: keys alone, no patients."""
    plan = {"events": [[60.0, 0.1, 10]], "others": [], "bounded": True}
    line = {"kind": "begin", "run": "old-run", "data": source, "images": keys, "plan": plan}
    LifetimeLedger(config).ledger.write(line)
    enrolled = {"kind": "enroll", "facts": {}, "guarantee": "nothing leaves"}
    SiteFolder(config.folder / "runs" / "old-run", config.name).ledger().write(enrolled)


def make_array_site(birds, clinic, tmp_path):
    rows = list(csv.DictReader((clinic / "east.csv").open()))
    pixels = np.stack([np.asarray(Image.open(clinic / r["path"])) for r in rows])
    labels, splits = [r["label"] for r in rows], [r["split"] for r in rows]
    np.savez(tmp_path / "east.npz", x=pixels, y=np.array(labels), split=np.array(splits))
    data = f'source = "npz"\npath = "{tmp_path / "east.npz"}"\nsplit = "split"\n'
    return make_configs(birds, tmp_path / "homes", data)


def test_an_old_run_on_arrays_leaves_no_bound_and_is_said(birds, clinic, tmp_path):
    """Its keys, of resized pixels, match no image of today: the run was not added up, and nobody
    was told."""
    configs = make_array_site(birds, clinic, tmp_path)
    east = configs["east"]
    write_old_line(east, "npz:east.npz", ["ab" * 12, "cd" * 12])
    heard = []
    object.__setattr__(
        east, "wait", lambda run, terms, lines, patience: heard.extend(lines) or True
    )
    play(birds, tmp_path / "homes", tmp_path / "one", configs=configs)
    assert all(not np.isfinite(spent) for spent in spend_on(east))
    assert any("old-run by their pixels after resizing" in line for line in heard)
    said = " ".join(CliRunner().invoke(app, ["budget", str(east.file)]).output.split())
    assert "old-run by their pixels after resizing" in said and "without a bound" in said
    with pytest.raises(Exception, match="lifetime_epsilon"):
        play(
            birds,
            tmp_path / "homes",
            tmp_path / "two",
            configs={**configs, "east": tighten(east, 1000.0)},
        )


def test_an_old_run_on_files_or_on_images_known_today_adds_up(birds, clinic, tmp_path):
    """Files were known by their digests before, too."""
    for number, (source, known) in enumerate((("manifest:east.csv", False), ("npz:x", True))):
        homes = tmp_path / f"homes-{number}"
        configs = make_configs(birds, homes, describe(clinic))
        play(birds, homes, tmp_path / f"new-{number}", configs=configs)
        ledger = LifetimeLedger(configs["east"])
        keys = sorted(ledger.list_runs()[0].keys)
        (one,) = spend_on(configs["east"])
        write_old_line(configs["east"], source, keys if known else [*keys, "ab" * 12])
        spent, shares = read_spent(configs["east"])
        assert one < spent < float("inf")
        assert max(len(share.runs) for share in shares) == 2
