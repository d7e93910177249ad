"""Flower's own processes, started so that nothing phones home and nothing outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from vitrail.errors import RunError

INSTALL = 'Install the extra: pip install -c constraints.txt "vitrail[flower]".'
_PATIENCE = 10.0


def find_program(name: str) -> str:
    """A program of the Flower that is installed beside this Python."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise RunError(
            f"{name} is not installed",
            hint=INSTALL,
        )
    return str(path)


def make_environment(home: Path) -> dict[str, str]:
    """Flower's environment: a home of its own, no telemetry, no update check, one thread; a
    message waits for its process a moment, not a second."""
    here = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }


def start_process(
    command: Sequence[str], home: Path, log: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, which is asked to end when this process dies."""
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "vitrail.flower.guardian", *command],
        env=make_environment(home),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def stop_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process and all it started to end; insist after a while."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def wait_for_port(host: str, port: int, process: subprocess.Popen[bytes], patience: float) -> None:
    """Wait until somebody listens, unless the process that should is gone."""
    deadline = time.monotonic() + patience
    while process.poll() is None and time.monotonic() < deadline:
        if is_listening(host, port):
            return
        time.sleep(0.2)
    raise RunError(f"nothing listens on {host}:{port}", hint="Its log stands beside this message.")


def is_listening(host: str, port: int) -> bool:
    """Whether a connection can be opened."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


def find_free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
