"""The process that answers at a site, seen from its parent: started, asked, started again."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vitrail.child_python import build_command, build_environment
from vitrail.engine.workers.byte_frames import ChannelClosedError, receive_frame, send_frame
from vitrail.errors import RunError

Tell = Callable[[str], None]
_TRIES = 3
_PATIENCE = 10.0


class ResidentLostError(RunError):
    """Nobody could answer a message here."""


@dataclass
class ResidentProcess:
    """One process a site. A message during which it ends is put to a new one, twice at most; the
    stored reply, or the same draws, make its answer the same."""

    file: Path
    keys: Path | None
    seeded: bool
    log: Path
    tell: Tell
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _channel: socket.socket | None = field(default=None, init=False)

    def start(self) -> None:
        """Start it and wait until it can answer. One that is killed meanwhile is started again;
        one that ends by itself has said why, and would say it again."""
        for tries_left in reversed(range(_TRIES)):
            code = self._start_once()
            if code is None:
                return
            if code >= 0 or not tries_left:
                raise ResidentLostError(
                    f"the process that answers could not start (code {code}): "
                    f"{self._read_last_line()}",
                    where=str(self.log),
                )
            self.tell(f"the process that answers was ended (code {code}); it is started again")

    def _start_once(self) -> int | None:
        """Start it; the code it ended with before it could answer, or None."""
        ours, theirs = socket.socketpair()
        settings = {
            "file": str(self.file),
            "keys": None if self.keys is None else str(self.keys.resolve()),
            "seeded": self.seeded,
            "parent": os.getpid(),
        }
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        module = "vitrail.flower.site.resident"
        handle = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "ab") as log:
            self._process = subprocess.Popen(
                build_command(module, str(theirs.fileno()), json.dumps(settings)),
                pass_fds=(theirs.fileno(),),
                env=build_environment(OMP_NUM_THREADS="1"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        theirs.close()
        self._channel = ours
        try:
            receive_frame(ours)
        except ChannelClosedError:
            code = self._process.wait()
            self.stop()
            return code
        return None

    def answer(self, raw: bytes) -> bytes:
        """The answer to a message, by a new process if the one that was asked ended."""
        for _ in range(_TRIES):
            if self._process is None or self._process.poll() is not None:
                self.start()
            assert self._channel is not None and self._process is not None
            try:
                send_frame(self._channel, raw)
                return bytes(receive_frame(self._channel))
            except ChannelClosedError:
                code = self._process.wait()
                self.tell(f"the process that answers ended (code {code}); it is started again")
        raise ResidentLostError(
            "the process that answers ended again and again on the same message"
        )

    def stop(self) -> None:
        """Close the channel: the process ends by itself, and is ended if it does not."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None and self._process.poll() is None:
            try:
                self._process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self._channel = None

    def _read_last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"
