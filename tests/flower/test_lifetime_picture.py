"""The picture of lifetime spending: by run, what is left, in the report and in `vitrail budget`."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from vitrail.cli.app import app
from vitrail.flower.site.lifetime_history import describe_history
from vitrail.flower.site.lifetime_ledger import LifetimeLedger
from vitrail.report.charts.chart_budget import BudgetStep, draw_budget
from vitrail.report.compose import compose
from vitrail.report.viewer import Viewer

from .test_lifetime import DELTA, play, spend_on, tighten


def test_runs_and_what_is_left_are_in_the_report_and_in_the_picture(birds, tmp_path):
    configs = play(birds, tmp_path / "homes", tmp_path / "one")
    (one,) = spend_on(configs["east"])
    configs["east"] = tighten(configs["east"], 4 * one)
    play(birds, tmp_path / "homes", tmp_path / "two", configs=configs)
    ledger = LifetimeLedger(configs["east"])
    history = describe_history(ledger, configs["east"].policy)
    (two,) = spend_on(configs["east"])
    assert [run["total"] for run in history["runs"]] == pytest.approx([one, two], rel=1e-6)
    assert history["limit"] == 4 * one and history["delta"] == DELTA
    last = configs["east"].folder / "runs" / history["runs"][-1]["run"]
    assert json.loads((last / "lifetime.json").read_text()) == history
    page = compose([last], Viewer()).html
    assert "Spent over a lifetime, by run" in page and "this run" in page
    assert f"{4 * one - two:.3g} left" in page
    assert str(birds.root) not in page
    for name in ("spent.svg", "spent.png"):
        target = tmp_path / name
        words = ["budget", str(configs["east"].file), "--picture", str(target)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        assert target.stat().st_size > 1000
    assert "left" in (tmp_path / "spent.svg").read_text()


@pytest.mark.parametrize("width", [320.0, 860.0])
@pytest.mark.parametrize("limit", [None, 0.001, 12.0])
def test_a_picture_of_nothing_of_one_run_and_of_no_bound(width, limit):
    inf = float("inf")
    for steps in (
        [],
        [BudgetStep("a", 0.0, 8.0, 8.0, True)],
        [BudgetStep("a", 0.0, 8.0, 8.0, True), BudgetStep("b", 8.0, inf, inf, False)],
        [BudgetStep("x" * 80, 0.0, 1e-9, 1e-9, False)],
    ):
        drawing = draw_budget(steps, limit, width)
        svg = drawing.to_svg_file()
        assert not re.search(r"[\s\",=](nan|inf)[\s\",]", svg)
        if len(steps) == 2:
            assert "no bound" in svg
            assert limit is None or "nothing left" in svg
