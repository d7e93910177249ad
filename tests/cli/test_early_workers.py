"""Workers spend seconds on their imports: they start before this process begins with its own."""

import subprocess
import sys

SPY = """
import sys
import vitrail.engine.workers.processes as processes
from vitrail.cli import main

begin = processes.WorkerProcess.start

def start():
    print("worker started,", "torch" if "torch" in sys.modules else "nothing heavy", "imported")
    return begin()

processes.WorkerProcess.start = start
sys.argv = ["vitrail", *sys.argv[1:]]
main()
"""


def call(folder, *words):
    done = subprocess.run(
        [sys.executable, "-c", SPY, *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("worker started")]


def test_workers_of_run_and_resume_start_before_torch_is_imported(tmp_path, birds_file):
    birds_file()
    early = ["worker started, nothing heavy imported"] * 2
    assert call(tmp_path, "run", "birds.toml", "--set", "run.workers=2") == early
    (tmp_path / "runs" / "birds" / "server" / "finished").unlink()
    assert call(tmp_path, "resume", "runs/birds") == early
    assert call(tmp_path, "resume", "runs/birds") == []  # it is finished: nobody is needed
