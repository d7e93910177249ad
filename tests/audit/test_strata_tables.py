"""A site whose positives are all of one view: the view explains it, and the ledger tells."""

import csv
import json

import numpy as np
import pytest
from PIL import Image

import vitrail
from vitrail.audit.audit_run import audit_run
from vitrail.engine.storage.site_folder import SiteFolder
from vitrail.rng import derive_server_key

SITES = ("north", "east", "south", "west")


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    """Noise of two classes at four sites; one view is brighter, and north has it in one class."""
    folder = tmp_path_factory.mktemp("views")
    draw = derive_server_key(3).at("views").numpy()
    rows = []
    for site in SITES:
        for label in ("no", "yes"):
            for _ in range(36):
                ap = draw.uniform() < (1.0 if (site, label) == ("north", "yes") else 0.4)
                pixels = draw.normal(110 + 45 * ap, 30, (16, 16)).clip(0, 255).astype(np.uint8)
                name = f"{len(rows)}.png"
                Image.fromarray(pixels).save(folder / name)
                view, sex = "AP" if ap else "PA", draw.choice(["F", "M"])
                rows.append([name, label, site, view, sex, f"scanner of {site}"])
    with (folder / "list.csv").open("w", newline="", encoding="utf-8") as handle:
        head = ["image", "label", "hospital", "view", "sex", "scanner"]
        csv.writer(handle).writerows([head, *rows])
    config = {
        "data": {
            "source": "manifest", "path": str(folder / "list.csv"), "site": "hospital",
            "image_size": 16, "duplicates": "ignore",
        },
        "partition": {"kind": "column", "column": "hospital"},
        "model": {"backbone": "small-cnn", "width": 4},
        "method": {"name": "fedavg"},
        "run": {"rounds": 1, "local_epochs": 1, "device": "cpu"},
    }  # fmt: skip
    return vitrail.run(config, folder / "run")


def test_the_view_explains_it_and_nothing_else_does(hospitals):
    audit = audit_run(hospitals)
    entries = {(s["site"], e["class"]): e for s in audit.to_json()["sites"] for e in s["classes"]}
    entry = entries["north", "yes"]
    assert entry["verdict"] != "clear" and entry["explained_by"] == ["view"]
    assert set(entry["within"]) == {"view", "sex"}  # a scanner names its site, and is no group
    assert entry["plan"] == [] and "explained by view" in entry["action"]
    ledger = [
        json.loads(line)
        for line in SiteFolder(hospitals.path, "east").ledger().path.read_text().splitlines()
    ]
    assert [line["kind"] for line in ledger].count("audit strata") == 1
    audit_run(hospitals)  # told once
    text = SiteFolder(hospitals.path, "east").ledger().path.read_text()
    assert text.count("audit strata") == 1
