"""Recovered pictures are kept and shown only where the images are public."""

import json
import math
import shutil

import torch

from vitrail.attack.findings import Row
from vitrail.attack.image_scores import Score
from vitrail.attack.run_attacks import AttackResults
from vitrail.report.sections.attack_pictures import keep_attack, render_attack_pictures
from vitrail.runs.opened_run import Run


def test_recovered_pictures_are_kept_only_where_images_are_public(birds, tmp_path):
    for public in (True, False):
        copy = tmp_path / str(public)
        shutil.copytree(birds / "fedavg", copy)
        run = Run(copy)
        scores = (Score(0, 0.01, math.inf, 0.5, True),)
        row = Row("ig", scores, images=torch.rand(1, 3, 16, 16))
        keep_attack(
            run, AttackResults((row,), torch.rand(1, 3, 16, 16), 1.0, run=copy, public=public)
        )
        assert (render_attack_pictures(run, "a") is not None) == public
        assert json.loads((copy / "attack.json").read_text())["rows"][0]["psnr"] is None
        assert any((copy / "server").glob("attack-*")) == public


def test_pictures_are_not_shown_if_the_images_are_no_longer_public(birds, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(birds / "fedavg", copy)
    row = Row("ig", (Score(0, 0.01, 20.0, 0.5, True),), images=torch.rand(1, 3, 16, 16))
    keep_attack(
        Run(copy), AttackResults((row,), torch.rand(1, 3, 16, 16), 1.0, run=copy, public=True)
    )
    card = json.loads((copy / "server" / "card.json").read_text())
    (copy / "server" / "card.json").write_text(json.dumps({**card, "public": False}))
    assert render_attack_pictures(Run(copy), "a") is None
