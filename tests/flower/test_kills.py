"""Processes killed at random moments: a small edition of `benchmarks/flower_kills.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")
pytestmark = [pytest.mark.very_slow, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "flower_kills.py"


def test_three_kills_cost_no_bit_and_no_line_of_a_ledger():
    """Pauses are short, so that all three come before the last round on a fast machine too; the
    time that a busy machine may take is bounded by the test's own limit alone."""
    words = ["--kills", "3", "--rounds", "30", "--images", "60", "--seed", "3", "--pause", "1"]
    done = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n3 kills: " in done.stdout
    assert "same bits: True; same ledgers: True" in done.stdout
