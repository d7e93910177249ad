"""A secure sum over a few of the sites that a run was said to have is refused by each of them."""

from __future__ import annotations

import pytest

from vitrail.engine import round as rounds
from vitrail.engine.sampling import Draw
from vitrail.flower.coordinator.coordinate import run_federation
from vitrail.flower.site.site_server import SiteServer
from vitrail.flower.site.told_sites import compute_least_cohort, note_told_sites

from .conftest import SITES

pytest.importorskip("cryptography")
SECURE = {"release": {"secure_sum": True}}


def test_a_server_does_not_play_a_round_with_two_of_those_it_named(birds, tmp_path, monkeypatch):
    """Of two sites one may work for it: then their sum is the other one's update. Here it told ten
    sites from the start, and then asks two."""
    loop = birds.loop(tmp_path)
    told = SiteServer._hear_shares
    monkeypatch.setattr(
        SiteServer,
        "_hear_shares",
        lambda self, folder, shares: told(self, folder, shares.model_copy(update={"sites": 10})),
    )
    choose = rounds._choose_sites

    def choose_two(*given):
        draw = choose(*given)
        return Draw(draw.sites[:2], {})

    monkeypatch.setattr(rounds, "_choose_sites", choose_two)
    run_federation(loop, birds.coordinator(**SECURE), tmp_path / "run", len(SITES))
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "round 1: void" in log and "fewer sites than this site's policy asks for" in log


def test_the_most_that_was_told_counts_and_outlives_a_restart(birds, tmp_path):
    loop = birds.loop(tmp_path)
    run_federation(loop, birds.coordinator(**SECURE), tmp_path / "run", len(SITES))
    station = loop.stations["east"]
    run = next((station.config.folder / "runs").iterdir()).name
    folder = station.config.run_folder(run)
    plan = station._open_run(run, folder.open()).plan
    assert compute_least_cohort(folder, plan, station.config.policy) == 2  # of three
    for sites, least in ((10, 7), (2, 7), (0, 7), (100, 67)):
        note_told_sites(folder, sites)
        assert compute_least_cohort(folder, plan, station.config.policy) == least
