"""`python -m vitrail.flower.guardian COMMAND...`: runs a command and takes it along when it goes.

Flower's processes start others. This one leads their group; when its parent dies, or it is told
to end, the whole group ends, so that a restart finds its port and its run folder free.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from types import FrameType

from vitrail.engine.workers.processes import die_with_parent

_GRACE = 5.0


def main() -> None:
    """Run the command; end with its exit code."""
    parent = os.getppid()
    die_with_parent(signal.SIGTERM)
    if parent == 1:
        sys.exit(1)
    child = subprocess.Popen(sys.argv[1:])

    def leave(number: int, frame: FrameType | None) -> None:
        del number, frame
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(143)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    sys.exit(child.wait())


if __name__ == "__main__":
    main()
