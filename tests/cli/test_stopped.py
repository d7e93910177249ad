"""The command line as a process: stopped by hand, and read by somebody who stops reading."""

import signal
import subprocess
import sys
import time

import vitrail

FILE = """
[data]
image_size = 16
[data.aviary]
images = 40
classes = 2
[partition]
sites = 2
[model]
backbone = "small-cnn"
width = 4
[run]
rounds = 100000
"""


def started(folder, *words):
    call = [sys.executable, "-c", "from vitrail.cli import main; main()", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(call, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def test_ctrl_c_says_that_what_was_finished_is_kept_and_how_to_go_on(tmp_path):
    (tmp_path / "birds.toml").write_text(FILE)
    process = started(tmp_path, "run", "birds.toml")
    checkpoints = tmp_path / "runs" / "birds" / "server" / "checkpoints"
    try:
        while process.poll() is None and not (checkpoints / "round-00001.safetensors").exists():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "vitrail: stopped; what was finished is kept. `vitrail resume RUN` goes on.\n" in err
    assert "Traceback" not in err and vitrail.load(tmp_path / "runs" / "birds").round >= 1


def test_a_reader_who_stops_reading_is_no_error(tmp_path):
    process = started(tmp_path, "methods")
    process.stdout.close()
    err = process.stderr.read()
    assert (process.wait(60), err) == (0, "")
