"""How this package starts a Python process of its own: it imports what this one would.

`python -m` looks for modules in the working folder first. Whoever opens a run folder that somebody
handed over often stands in it, so a `struct.py` in there would run. `-P` leaves that folder out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def build_command(module: str, *words: str) -> list[str]:
    """The command that runs a module of this package."""
    return [sys.executable, "-P", "-m", module, *words]


def build_environment(**changes: str) -> dict[str, str]:
    """The environment of this process, with its own import path and some changes; only where this
    process imports from its working folder, as a notebook does, will the other one."""
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return {**os.environ, "PYTHONPATH": paths, **changes}
