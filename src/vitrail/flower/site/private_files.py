"""Files of a site are for its own account alone, whoever made the folder and when."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

_OTHERS = 0o077
_SCRATCH = "scratch"


def protect_new_files() -> None:
    """What this process and those it starts make from now on is for this account alone."""
    os.umask(_OTHERS)


def repair_permissions(folder: Path) -> int:
    """Take everything in a folder away from others; how many files and folders that changed.

    Links are left alone: what they lead to is not the site's to change.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    changed = 0
    for at, folders, files in os.walk(folder):
        for path in (Path(at), *(Path(at) / name for name in (*folders, *files))):
            mode = path.lstat().st_mode
            if not stat.S_ISLNK(mode) and mode & _OTHERS:
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
                changed += 1
    return changed


def use_private_scratch(folder: Path) -> None:
    """Temporary files go into the site's folder too; what a killed process left there is gone."""
    scratch = folder / _SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    tempfile.tempdir = str(scratch)
