"""`vitrail attack RUN --attacks canary`: declared canaries are audited, and none without them."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

import vitrail
from vitrail.cli.app import app
from vitrail.errors import ConfigError


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
