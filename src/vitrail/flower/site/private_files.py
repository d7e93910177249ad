"""Files of a site are for its own account alone, whoever made the folder and when."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from vitrail.errors import RunError

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
            changed += _close_to_others(path)
    return changed


def _close_to_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & _OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~_OTHERS)
    except FileNotFoundError:  # a temporary file of somebody who is still at work
        return False
    except OSError as err:
        raise RunError(
            f"{path.name} is open to others, and this account may not change that ({err.strerror})",
            where=str(path.parent),
            hint="Make this account the owner of all files of the site's folder.",
        ) from err
    return True


def use_private_scratch(folder: Path) -> None:
    """Temporary files go into the site's folder too; what a killed process left there is gone."""
    scratch = folder / _SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    tempfile.tempdir = str(scratch)
