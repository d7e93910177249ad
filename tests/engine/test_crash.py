"""Killed at any moment and resumed, a run ends with the same bits."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import vitrail
from vitrail.rng import derive_server_key

KILLS = int(os.environ.get("VITRAIL_KILLS", "6"))
CASES = (("scaffold", 2, 1), ("fedavg", 1, 3), ("scaffold", 1, 3), ("fedavg", 2, 1))
ROUNDS = 8
START = "import json, sys, vitrail; vitrail.run(json.loads(sys.argv[1]), sys.argv[2])"
RESUME = "import sys, vitrail; vitrail.resume(sys.argv[2])"


def launch(code, config, out):
    arguments = [sys.executable, "-c", code, json.dumps(config), str(out)]
    paths = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        arguments, env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.PIPE
    )


def wait_for(path, process, since=0.0):
    """Until a file is there (or newer than `since`), or the process ends."""
    while process.poll() is None and not (path.exists() and path.stat().st_mtime > since):
        time.sleep(0.005)


@pytest.fixture(scope="module")
def references(tmp_path_factory, tiny_config):
    """Each case once without a kill: the folder, and how long its rounds took."""
    made = {}

    def get(case):
        if case not in made:
            name, workers, every = case
            run = {"rounds": ROUNDS, "workers": workers, "checkpoint_every": every, "dropout": 0.2}
            config = tiny_config(method={"name": name}, run=run)
            out = tmp_path_factory.mktemp("reference") / "run"
            process = launch(START, config, out)
            wait_for(out / "config.toml", process)
            began = time.monotonic()
            assert process.wait() == 0, process.stderr.read().decode()
            made[case] = config, out, time.monotonic() - began
        return made[case]

    return get


def quiet(rows):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.very_slow
@pytest.mark.parametrize("kill", range(KILLS))
def test_sigkill_at_a_random_moment(kill, references, tmp_path, same_bits, releases):
    config, reference, seconds = references(CASES[kill % len(CASES)])
    moments = derive_server_key(9).at("kills", kill).numpy().uniform(0.0, 1.0, 2)
    out = tmp_path / "run"
    process = launch(START, config, out)
    wait_for(out / "config.toml", process)
    time.sleep(float(moments[0]) * seconds)
    process.kill()
    process.communicate()
    if kill % 3 == 0:  # and the resume is killed as well
        process = launch(RESUME, config, out)
        wait_for(out / "log.txt", process, time.time())
        time.sleep(float(moments[1]) * seconds / 2)
        process.kill()
        process.communicate()
    run = vitrail.resume(out)
    assert run.finished and same_bits(out, reference)
    assert quiet(run.rows()) == quiet(vitrail.load(reference).rows())
    expected = releases(reference)
    for site, lines in releases(out).items():
        assert max(Counter(line["round"] for line in lines).values()) == 1
        assert lines == expected[site]


def workers_of(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if parent == pid and b"vitrail.engine.workers.worker" in words:
            found.append(int(stat.parent.name))
    return found


@pytest.mark.very_slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the workers")
@pytest.mark.parametrize("delay", [0.0, 0.03])
def test_a_dead_worker_is_replaced_and_its_site_computed_again(
    delay, references, tmp_path, same_bits, releases
):
    config, reference, _ = references(("scaffold", 2, 1))
    killed = []

    def kill():
        for pid in workers_of(os.getpid())[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    def on_round(progress):
        if progress.round in (2, 5) and not progress.note:
            threading.Timer(delay, kill).start() if delay else kill()

    run = vitrail.run(config, tmp_path / "run", on_round)
    assert len(killed) == 2 and run.finished
    assert same_bits(run.path, reference) and releases(run.path) == releases(reference)
    assert workers_of(os.getpid()) == []
