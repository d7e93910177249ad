"""A killed private run: the ledger neither forgets a release nor counts one twice."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import vitrail
from vitrail.runs.ledgers import read_ledgers

SCRIPT = """
import json, sys, vitrail
vitrail.run(json.loads(sys.argv[1]), sys.argv[2])
"""


def config_of(tiny_config):
    config = tiny_config(
        model={"norm": "group"},
        release={"defenses": ["dp-sgd"], "dp-sgd": {"epsilon": 4.0, "delta": 1e-3}},
    )
    config["run"] |= {"rounds": 6, "local_reference": False, "checkpoint_every": 3}
    return config


def ledger(path, site="site-00"):
    file = path / "sites" / site / "ledger.jsonl"
    return [json.loads(x) for x in file.read_bytes().splitlines(True) if x.endswith(b"\n")]


@pytest.mark.very_slow
def test_a_kill_and_a_resume_spend_no_more_than_one_run(tmp_path, tiny_config, same_bits):
    config = config_of(tiny_config)
    whole = vitrail.run(config, tmp_path / "whole")
    killed = tmp_path / "killed"
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(config), str(killed)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
    )
    try:
        deadline = time.monotonic() + 120
        while child.poll() is None and time.monotonic() < deadline:
            file = killed / "sites" / "site-00" / "ledger.jsonl"
            if file.exists() and b'"round":5' in file.read_bytes():
                break  # past the checkpoint of round 3, so rounds are played again
            time.sleep(0.01)
        assert child.poll() is None, "the run ended before it could be killed"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    before = ledger(killed)
    assert any(line.get("round") == 5 for line in before)
    resumed = vitrail.resume(killed)
    after = ledger(killed)
    assert after[: len(before)] == before  # never rolled back, never rewritten
    rounds = [line["round"] for line in after if line["kind"] == "release"]
    assert rounds == sorted(set(rounds)) == list(range(1, 8))
    assert same_bits(resumed.path, whole.path)
    one, other = read_ledgers(killed), read_ledgers(whole.path)
    assert not one.mismatches and not other.mismatches
    spent = [[b["epsilon"] for b in site.budgets] for site in one.sites]
    assert spent == [[b["epsilon"] for b in site.budgets] for site in other.sites]
    assert all(0.98 * 4.0 <= eps[0] <= 4.0 for eps in spent)
