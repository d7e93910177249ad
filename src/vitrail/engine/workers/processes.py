"""Worker processes, started before there is work for them and kept from one run to the next.

A worker spends seconds on its imports. Started first, it does so while this process reads the
images; this module imports nothing heavy, so that it can be first.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

from vitrail.child_python import build_command, build_environment
from vitrail.config.schema import Run

_PATIENCE = 5.0
_PR_SET_PDEATHSIG = 1


def die_with_parent(sign: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Ask Linux to send this process a signal when the one that started it dies. `parent` is that
    one, where it is known: if it is dead already, no signal comes, and this process ends here."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(sign))
    if parent is not None and os.getppid() != parent:
        sys.exit("the process that started this one is gone")


@dataclass
class WorkerProcess:
    """A process, the channel to it, and the numbers of the jobs it has been dealt."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    jobs: deque[int] = field(default_factory=deque)

    @classmethod
    def start(cls) -> WorkerProcess:
        """`python -m`, so that a notebook or a script without a main guard may start it."""
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            build_command("vitrail.engine.workers.worker", str(theirs.fileno())),
            pass_fds=(theirs.fileno(),),
            env=build_environment(OMP_NUM_THREADS="1"),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        return cls(process, ours)

    def dismiss(self) -> None:
        """Close the channel: the process ends by itself."""
        self.channel.close()

    def end(self) -> None:
        """Close the channel and wait for the process, not for ever."""
        self.dismiss()
        try:
            self.process.wait(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class WorkerProcesses:
    """Idle workers. `take` one, `give` it back; whoever is idle at the end is dismissed."""

    def __init__(self, count: int = 0) -> None:
        self._idle = [WorkerProcess.start() for _ in range(count)]

    def take(self) -> WorkerProcess:
        """An idle worker that is still alive, else a new one."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            worker.dismiss()
        return WorkerProcess.start()

    def give(self, worker: WorkerProcess) -> None:
        """Take a worker back that has nothing left to do."""
        self._idle.append(worker)

    def close(self) -> None:
        """Dismiss everyone first, then wait for each."""
        for worker in self._idle:
            worker.dismiss()
        while self._idle:
            self._idle.pop().end()

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def start_workers(run: Run, workers: int | None = None) -> WorkerProcesses:
    """The workers a run will need, or nobody where it plays in this process."""
    count = workers or run.workers
    return WorkerProcesses(count if count > 1 and run.device in ("cpu", "auto") else 0)
