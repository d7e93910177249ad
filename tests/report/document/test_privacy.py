"""The section on privacy: formal and empirical apart, budgets, what attacks got."""

import json
import math
import shutil
from types import SimpleNamespace

import torch

from vitrail.attack.assault import Assault
from vitrail.attack.scores import Score
from vitrail.attack.trial import Row
from vitrail.engine.loaded import Run
from vitrail.report.document.account import Account
from vitrail.report.document.block import leaves, render
from vitrail.report.document.budgets import budgets, spends
from vitrail.report.document.chart_timeline import Event, timeline
from vitrail.report.document.leakage import attack_rows, leakage, reference
from vitrail.report.document.privacy import formal, lines_of, privacy, sent_sentence
from vitrail.report.document.stolen import keep_attack, stolen

SPEND = {
    "mechanism": "dp-sgd",
    "unit": "one image",
    "against": "the server and everybody after it",
    "delta": 1e-5,
    "target": 8.0,
    "accountant": "pld",
    "events": [[1.0, 0.1, 10]],
}


def line(round_, epsilon):
    spend = {**SPEND, "epsilon": epsilon}
    told = f"formal: (epsilon, delta) = ({epsilon:.4g}, 1e-05) for one image"
    return {"kind": "release", "round": round_, "bytes": 100, "spends": [spend], "guarantee": told}


def test_a_guarantee_is_formal_only_if_its_line_says_so():
    assert formal(line(1, 2.0))
    assert not formal({"guarantee": "empirical: no formal guarantee"})
    assert not formal({}) and not formal({"guarantee": "informal"})


def test_the_budget_of_a_site_is_that_of_its_last_release():
    ledger = [("a", line(1, 1.5)), ("a", line(2, 2.5)), ("b", line(1, 1.25))]
    assert len(spends(ledger)) == 3
    figure, table = budgets("run", ledger)
    assert {(row[0], row[2]) for row in table.rows} == {("a", 2.5), ("b", 1.25)}
    assert "against" in render(table)
    drawn = figure.draw(860).inline()
    assert "a, dp-sgd, round 2: 2.5" in drawn  # an epsilon is no percentage


def test_nothing_spent_is_no_budget():
    assert budgets("run", [("a", {"kind": "release", "guarantee": "empirical"})]) == ()
    (table,) = budgets("run", [("a", line(1, 0.0) | {"spends": [{**SPEND, "epsilon": None}]})])
    assert table.rows[0][2] is None  # no finite epsilon is a dash, not a zero


def test_every_attack_stands_beside_its_defense_and_the_references():
    found = {
        "references": [{"attack": "mean image", "psnr": 14.0, "psnr_sd": 1.0, "iterations": 0}],
        "defenses": [
            {"defense": "none", "accuracy": 0.8, "attacks": [{"attack": "ig", "psnr": 31.0}]},
            {
                "defense": "tip",
                "accuracy": 0.7,
                "attacks": [{"attack": "ig", "psnr": 12.0, "threat": {"sees": "update"}}],
            },
        ],
    }
    rows = attack_rows(found)
    assert [(r["defense"], r["psnr"]) for r in rows] == [
        ("reference", 14.0),
        ("none", 31.0),
        ("tip", 12.0),
    ]
    assert [reference(row) for row in rows] == [True, False, False]
    (one,) = attack_rows({"rows": [{"attack": "ig", "note": "labels inferred"}]})
    assert one["attack"] == "ig (labels inferred)"
    blocks = leakage("run", found)
    table = next(x for x in leaves(blocks) if hasattr(x, "csv"))
    assert len(table.rows) == 3 and "accuracy of the model" in table.csv()
    assert "sees one site" in "".join(map(render, blocks))


def test_a_file_of_attacks_of_any_shape_is_no_crash():
    for found in ({}, {"rows": "x"}, {"rows": [3, None]}, {"defenses": [{"attacks": None}]}):
        assert "has no rows" in "".join(map(render, leakage("run", found)))


def test_a_thousand_rounds_of_a_hundred_sites_are_still_a_picture():
    sites = [f"site-{n:03d}" for n in range(100)]
    events = [Event(s, r, 8.0, "release", r % 2 == 0) for s in sites for r in range(1000)]
    for width in (330.0, 860.0):
        scene = timeline(events, sites, "t", width)
        assert len(scene.shapes) < 6000 and scene.height < 1500
        assert "60 sites not drawn" in scene.about


def test_members_and_released_parts_have_tables_of_their_own():
    found = {
        "rows": [],
        "members": [{"name": "loss", "target": "global model", "auc": 0.61, "tpr": 0.02}],
        "patches": {"site-00": [{"name": "prototype", "units": 6, "psnr": 11.0, "ssim": 0.1}]},
    }
    told = [x.csv() for x in leaves(leakage("run", found))]
    assert any("global model,0.61" in text for text in told)
    assert any("site-00,prototype,6,11.0" in text for text in told)


def test_recovered_pictures_are_kept_only_where_images_are_public(birds, tmp_path):
    for public in (True, False):
        copy = tmp_path / str(public)
        shutil.copytree(birds / "fedavg", copy)
        run = Run(copy)
        scores = (Score(0, 0.01, math.inf, 0.5, True),)
        row = Row("ig", scores, images=torch.rand(1, 3, 16, 16))
        keep_attack(run, Assault(copy, (row,), torch.rand(1, 3, 16, 16), 1.0, public=public))
        assert (stolen(run, "a") is not None) == public
        assert json.loads((copy / "attack.json").read_text())["rows"][0]["psnr"] is None
        assert any((copy / "server").glob("attack-*")) == public


def test_pictures_are_not_shown_if_the_images_are_no_longer_public(birds, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(birds / "fedavg", copy)
    row = Row("ig", (Score(0, 0.01, 20.0, 0.5, True),), images=torch.rand(1, 3, 16, 16))
    keep_attack(Run(copy), Assault(copy, (row,), torch.rand(1, 3, 16, 16), 1.0, public=True))
    card = json.loads((copy / "server" / "card.json").read_text())
    (copy / "server" / "card.json").write_text(json.dumps({**card, "public": False}))
    assert stolen(Run(copy), "a") is None


def test_a_remark_on_a_part_of_an_update_adds_no_bytes_and_no_release():
    update = {"kind": "release", "round": 2, "bytes": 100, "mechanism": ["none"]}
    remark = {"kind": "images", "round": 2, "bytes": 90, "mechanism": "local-dp"}
    ledger = [
        {**update, "guarantee": "empirical: no formal guarantee"},
        {**remark, "guarantee": "formal: local DP", "epsilon": 10.0, "delta": 1e-5},
    ]
    run = SimpleNamespace(sites=("a",), card={})
    account = Account(run, "run", [], None, {"a": ledger})
    assert [line["bytes"] for _, line in lines_of(account)] == [100]
    assert "100 B" in str(sent_sentence(account)) and "1 release" in str(sent_sentence(account))
    page = "".join(map(render, privacy(account)))
    told = "images, formal: local DP: epsilon 10, delta 1e-05."
    assert f"Of a part of the updates: {told}" in page
    table = next(x for x in leaves(privacy(account)) if getattr(x, "rows", ()))
    assert [row[1:5] for row in table.rows] == [
        ("update", 1, 100.0, "none"), ("images, in an update", 1, None, "local-dp"),
    ]  # fmt: skip
