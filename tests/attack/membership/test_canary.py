"""`vitrail attack RUN --attacks canary`: declared canaries are audited, and none without them."""

from __future__ import annotations

import math
import re

import pytest
import torch
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.config import parse
from vitrail.errors import ConfigError
from vitrail.flower.run_terms import make_terms
from vitrail.local.canaries import draw_direction, is_canary_site
from vitrail.release.accounting import gaussian


def make_config(tiny_config, **options):
    dp_sgd = {"noise": 0.3, "delta": 1e-3, **options}
    config = tiny_config(
        model={"norm": "group"}, release={"defenses": ["dp-sgd"], "dp-sgd": dp_sgd}
    )
    config["run"] |= {"record_updates": True, "local_reference": False}
    return config


@pytest.mark.slow
def test_canaries_of_a_run_with_little_noise_prove_an_epsilon(tiny_config, tmp_path):
    vitrail.run(make_config(tiny_config, canaries=1000, guesses=200), tmp_path / "run")
    words = ["attack", str(tmp_path / "run"), "--attacks", "canary"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    bounds = [float(x) for x in re.findall(r"epsilon is at least ([0-9.]+)", text)]
    assert len(bounds) >= 2 and max(bounds) > 1.0, text


def test_an_audit_of_few_canaries_is_refused(tiny_config, tmp_path):
    with pytest.raises(ConfigError, match="at least 1000 canaries"):
        vitrail.run(make_config(tiny_config, canaries=10), tmp_path / "run")


def make_site_config(tiny_config, sites=12, **options):
    client_dp = {"noise": 2.0, "delta": 1e-3, "canary_sites": 1.0, **options}
    release = {"defenses": ["client-dp"], "client-dp": client_dp}
    release["secure_sum"] = options.get("where") == "distributed"
    config = tiny_config(
        data={"aviary": {"images": 96}},
        partition={"kind": "iid", "sites": sites, "minimum": 4},
        model={"backbone": "small-cnn", "width": 8, "norm": "group"},
        release=release,
    )
    config["run"] |= {"record_updates": True, "local_reference": False, "rounds": 4}
    return config


def estimate(tiny_config, folder, **options):
    vitrail.run(make_site_config(tiny_config, **options), folder)
    result = CliRunner().invoke(app, ["attack", str(folder), "--attacks", "canary"])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "no bound" in text and "12 of them" in text
    return float(re.search(r"epsilon is about ([0-9.]+)", text)[1])


def expect(noise, extra=1.0, rounds=4, canaries=12, errors=0.0):
    """The epsilon of as many rounds, with the mean of the cosines some standard errors off."""
    shift = math.sqrt(rounds / extra) / noise + errors / math.sqrt(canaries)
    return gaussian.compute_epsilon(1.0, 1e-3, max(1e-9, shift))


@pytest.mark.slow
@pytest.mark.parametrize("where, extra", [("site", 1.0), ("sum", 1.0), ("distributed", 12 / 9)])
def test_canary_sites_come_near_the_accounted_epsilon_and_above_it(
    where, extra, tiny_config, tmp_path
):
    """Through the whole run: clip, noise, masks, mean. Refuted if the estimate is four standard
    errors off what the noise that is there costs, or does not rise when it is divided by 4."""
    told = estimate(tiny_config, tmp_path / "run", where=where)
    assert expect(2.0, extra, errors=-4) <= told <= expect(2.0, extra, errors=4)
    lying = estimate(tiny_config, tmp_path / "lying", where=where, noise=0.5)
    assert lying > expect(2.0, errors=2)


def test_too_few_canary_sites_are_refused_and_real_federations_have_none(tiny_config, tmp_path):
    with pytest.raises(ConfigError, match="at least 10 canary sites"):
        vitrail.run(make_site_config(tiny_config, sites=4), tmp_path / "run")
    config = make_site_config(tiny_config)
    config["data"] |= {"classes": ["a", "b"], "channels": 3}
    with pytest.raises(ConfigError, match="canary sites are for simulations"):
        make_terms(parse(config, tmp_path).config)


def test_canaries_are_as_many_as_the_coins_say_and_point_nowhere_together():
    sites = [f"site-{n:03d}" for n in range(400)]
    chosen = [site for site in sites if is_canary_site(1, site, 0.25)]
    assert 70 <= len(chosen) <= 130
    assert not any(is_canary_site(1, site, 0.0) for site in sites)
    shapes = {"model/a": (40, 5), "model/b": (100,)}
    flat = torch.stack(
        [torch.cat([t.flatten() for t in draw_direction(1, s, shapes).values()]) for s in chosen]
    )
    assert torch.allclose(flat.norm(dim=1), torch.ones(len(chosen), dtype=torch.float64))
    cosines = (flat @ flat.mT).fill_diagonal_(0.0)
    assert float(cosines.abs().max()) < 6 / math.sqrt(300)
    assert torch.equal(
        draw_direction(1, "s", shapes)["model/b"], draw_direction(1, "s", shapes)["model/b"]
    )
    assert draw_direction(1, "s", {}) == {}
