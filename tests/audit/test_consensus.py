"""Who agrees on which class: numbers the server has, against distances counted by hand."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from vitrail.audit.consensus import Agreement, averages_subspaces, compute_excesses, read_agreement
from vitrail.cli import audit
from vitrail.cli.app import app
from vitrail.errors import ConfigError, RunError
from vitrail.files import read_tensors
from vitrail.geometry import grassmann
from vitrail.report.figures.consensus_picture import describe_consensus, draw_consensus
from vitrail.runs.opened_run import Run

FRAMES = "model/head.frames"


def fedgrasp(tiny, out="run", **run):
    method = {"name": "fedgrasp", "consensus": run.pop("consensus", "exact")}
    return tiny(out, method=method, run={"rounds": 2, "local_reference": False, **run})


@pytest.mark.parametrize("how", ["exact", "iterative", "karcher"])
def test_distances_are_those_of_what_was_sent_to_the_mean_that_came_of_it(tiny, how):
    run = fedgrasp(tiny, record_updates=True, consensus=how)
    found = read_agreement(run)
    assert found.sites == tuple(sorted(run.sites)) and found.round == 2
    mean = run.model().network.head.frames.detach().double()
    for row, site in zip(found.distance, found.sites, strict=True):
        (file,) = (run.path / "server/transcript").glob(f"round-00002/updates/{site}.safetensors")
        own = read_tensors(file)[0][FRAMES].double()
        expected = [
            float(grassmann.geodesic_distance(a, b)) for a, b in zip(own, mean, strict=True)
        ]
        assert row.tolist() == pytest.approx(expected, abs=1e-5)
    assert found.distance.max() <= found.largest
    assert ((found.consensus > 0) & (found.consensus <= 1 + 1e-6)).all()


def test_a_site_that_never_took_part_has_no_distance_and_keeps_its_last_one(tiny):
    run = fedgrasp(tiny, participation=0.3, rounds=1)
    found = read_agreement(run)
    silent = ~np.isfinite(found.distance).any(1)
    assert 0 < silent.sum() < 4
    names = {site for site, quiet in zip(found.sites, silent, strict=True) if quiet}
    assert names.isdisjoint(one.site for one in found.rank_deviations())
    both = read_agreement(fedgrasp(tiny, "more", participation=0.3, rounds=2))
    heard = np.isfinite(both.distance).any(1)
    assert (heard >= ~silent).all()  # the first round is the same in both runs


def test_it_reads_the_server_and_nothing_else(tiny):
    run = fedgrasp(tiny)
    before = read_agreement(run)
    for folder in (run.path / "sites").iterdir():
        folder.rename(folder.with_name(folder.name + "-gone"))
    after = read_agreement(Run(run.path))
    assert np.array_equal(before.distance, after.distance)


def test_nobody_stands_apart_where_all_are_equally_far_and_one_does_where_not():
    assert (compute_excesses(np.full((4, 2), 0.7)) == 0).all()
    distance = np.array([[0.1, 0.5], [0.2, 0.5], [0.3, np.nan], [0.4, 0.5], [2.0, 0.5]])
    found = compute_excesses(distance)
    spread = 1.4826 * 0.1  # the median is 0.3, the median deviation from it 0.1
    assert found[:, 0].tolist() == pytest.approx([(d - 0.3) / spread for d in distance[:, 0]])
    assert np.isnan(found[2, 1]) and (found[[0, 1, 3, 4], 1] == 0).all()
    assert compute_excesses(np.empty((0, 3))).shape == (0, 3)
    assert np.isnan(compute_excesses(np.full((2, 1), np.nan))).all()


def made(**changes):
    values = {
        "classes": ("a $1", "b" * 60, "c"),
        "sites": ("s1", "s2", "s3"),
        "consensus": np.array([0.5, 0.9, 0.2]),
        "eigengap": np.array([0.4, 0.8, 0.0]),
        "distance": np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.4], [0.9, np.nan, 0.5]]),
        "largest": 2.7,
        "round": 3,
    }
    return Agreement(**{**values, **changes})


def test_the_lines_name_the_ends():
    lines = describe_consensus(made())
    assert "bbb" in lines[0] and "0.90" in lines[0]
    assert lines[1].startswith("agreed least: c (consensus 0.20, eigengap 0.00")
    assert "s3 on a $1" in lines[2] or "s3 on c" in lines[2] or "s2 on c" in lines[2]
    assert "no site's own subspaces" in describe_consensus(made(distance=None))[-1]


@pytest.mark.parametrize("form", ["png", "svg"])
def test_the_picture_is_drawn_with_and_without_distances(tmp_path, form):
    for at, one in enumerate((made(), made(distance=None))):
        file = tmp_path / f"{at}.{form}"
        draw_consensus(one, file)
        raw = file.read_bytes()
        assert raw.startswith(b"\x89PNG" if form == "png" else b"<svg")
        if form == "svg":
            assert b"a $1" in raw and (b"s3" in raw) == (at == 0)
    with pytest.raises(ConfigError, match=r"cannot be written as 'a\.pdf'"):
        draw_consensus(made(), tmp_path / "a.pdf")


def test_the_command_writes_a_picture_and_numbers_that_are_strict_json(tiny, tmp_path):
    run = fedgrasp(tiny, participation=0.3, rounds=1)
    for name in ("a.png", "a.json"):
        args = ["explain", str(run.path), "--consensus", "--out", str(tmp_path / name)]
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, result.output
        assert "agreed least" in result.output
    both = ["explain", str(run.path), "--consensus", "--prototypes", "--out", "b.png"]
    refused = CliRunner().invoke(app, both)
    assert refused.exit_code and "both --prototypes and --consensus" in str(refused.exception)
    told = json.loads((tmp_path / "a.json").read_text(), parse_constant=lambda _: pytest.fail())
    assert len(told["classes"]) == 3 and len(told["sites"]) == 4
    assert any(d is None for site in told["sites"] for d in site["distance"])


def test_an_audit_tells_it_where_there_are_subspaces(tiny, capsys):
    audit._print_agreement(fedgrasp(tiny, rounds=1))
    assert "furthest from the others" in capsys.readouterr().out


def test_a_run_without_subspaces_says_so(tiny, capsys):
    run = tiny(run={"rounds": 1})
    assert not averages_subspaces(run)
    audit._print_agreement(run)
    assert not capsys.readouterr().out
    with pytest.raises(RunError, match="fedavg does not average subspaces"):
        read_agreement(run)


def test_frames_of_very_many_sites_are_not_kept(tiny, monkeypatch):
    monkeypatch.setattr("vitrail.aggregate.subspace_rules.MAX_WATCHED_SITES", 3)
    found = read_agreement(fedgrasp(tiny))
    assert found.distance is None and found.rank_deviations() == []
    assert torch.isfinite(torch.from_numpy(found.consensus)).all()
