"""How the C library keeps memory that was freed: not at all, where a piece of it was large.

Threads that handle contents of messages get arenas of their own from glibc, and each arena keeps
what was freed in it: with contents of 4 MB, about 16 arenas kept some 12 MB each.
"""

from __future__ import annotations

import ctypes
import sys

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of malloc.h
_LARGE = 2**19
_ARENAS = 2


def limit_arenas() -> None:
    """Few arenas, and large pieces from the system, to which they go back when they are freed."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and needs none
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _ARENAS)
            mallopt(_M_MMAP_THRESHOLD, _LARGE)
