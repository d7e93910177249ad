"""The command line as a process: stopped by hand, and read by somebody who stops reading."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vitrail


def heard():
    """A shell that starts something in the background lets it ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(folder, *words):
    call = [sys.executable, "-c", "from vitrail.cli import main; main()", *words]
    path = str(Path(vitrail.__file__).parents[1])  # of the source under test, from any folder
    return subprocess.Popen(
        call,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
    )


def rounds(folder):
    """The rounds on disk; those of a run that goes on come and go."""
    return {path.stem for path in (folder / "server" / "checkpoints").glob("*.safetensors")}


@pytest.mark.very_slow
def test_ctrl_c_says_that_what_was_finished_is_kept_and_how_to_go_on(tmp_path, birds_file):
    birds_file(rounds=100_000)
    process = started(tmp_path, "run", "birds.toml")
    folder = tmp_path / "runs" / "birds"
    try:
        while process.poll() is None and not rounds(folder) - {"round-00000"}:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "vitrail: stopped; what was finished is kept. `vitrail resume RUN` goes on.\n" in err
    assert "Traceback" not in err and vitrail.load(folder).round >= 1


def test_a_reader_who_stops_reading_is_no_error(tmp_path):
    process = started(tmp_path, "methods")
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(60), err) == (0, "")
