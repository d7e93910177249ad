"""Large arrays that other processes can see without a copy, and that vanish with the process."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from vitrail.data.image_set import Array
from vitrail.errors import DataError

Place = Literal["auto", "memory", "disk"]
SITE_CACHE = "site-cache"
"""The cache folder of a site of a real federation, in the site's own folder."""

_SHARE_OF_MEMORY = 4
_UNKNOWN_MEMORY = 4 << 30
_SPARE_DISK = 1 << 26  # what others on the same disk need to go on


class _Map(mmap.mmap):
    """A memory map that keeps the descriptor it was made from open as long as it lives."""

    fd: int


def _map(fd: int, length: int) -> _Map:
    view = _Map(fd, max(1, length), access=mmap.ACCESS_WRITE)
    view.fd = fd
    weakref.finalize(view, os.close, fd)
    return view


class SharedArray:
    """An array in memory or in a file, with a descriptor that a child process can attach to.

    The descriptor lives as long as `array` or anything made from it.
    """

    def __init__(self, view: _Map, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self._view = view
        self.array: Array = np.ndarray(tuple(shape), np.dtype(dtype), buffer=view)

    @property
    def fd(self) -> int:
        """The file descriptor to hand to a child (`pass_fds`); it closes with the array."""
        return self._view.fd

    @classmethod
    def zeros(
        cls, shape: Sequence[int], dtype: npt.DTypeLike = np.uint8, place: Place = "auto"
    ) -> SharedArray:
        """Zeros of a shape, in memory or in an unlinked file of the cache folder."""
        length = prod(shape) * np.dtype(dtype).itemsize
        if choose_place(place, length) == "memory":
            return cls.from_descriptor(_open_memory_file(), shape, dtype)
        folder = ensure_cache_folder()
        if length > shutil.disk_usage(folder).free - _SPARE_DISK:  # it is filled page by page
            raise _describe_no_room(length, "the disk of the cache folder is too full")
        return cls.from_descriptor(_open_nameless_file(folder), shape, dtype)

    @classmethod
    def from_descriptor(cls, fd: int, shape: Sequence[int], dtype: npt.DTypeLike) -> SharedArray:
        """An array over an open file, which is brought to the needed length; `fd` is taken over."""
        length = prod(shape) * np.dtype(dtype).itemsize
        try:
            os.ftruncate(fd, max(1, length))
            return cls(_map(fd, length), shape, dtype)
        except (OSError, ValueError) as err:
            os.close(fd)
            raise _describe_no_room(length, str(err)) from err

    @classmethod
    def adopt(cls, array: Array, place: Place = "auto") -> SharedArray:
        """A store that holds a copy of `array`."""
        store = cls.zeros(array.shape, array.dtype, place)
        np.copyto(store.array, array)
        return store

    @staticmethod
    def attach(fd: int, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """The same array in another process: read-only, no copy; `fd` may be closed after."""
        length = prod(shape) * np.dtype(dtype).itemsize
        view = mmap.mmap(fd, max(1, length), access=mmap.ACCESS_READ)
        return np.ndarray(tuple(shape), np.dtype(dtype), buffer=view)

    def as_read_only(self) -> Array:
        """A view of the array that refuses to be written."""
        view = self.array.view()
        view.flags.writeable = False
        return view


def _describe_no_room(length: int, why: str) -> DataError:
    return DataError(
        f"there is no room for {length / 2**30:.1f} GiB of decoded images ({why})",
        where="data.cache",
        hint="Set a smaller data.image_size or data.limit, or VITRAIL_CACHE to a larger disk.",
    )


def share(array: Array) -> SharedArray:
    """The store behind an array, without a copy where it already lives in one."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, _Map) and array.flags.c_contiguous:
        start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
        if array.__array_interface__["data"][0] == start:
            return SharedArray(base, array.shape, array.dtype)
    return SharedArray.adopt(array)


def choose_place(place: Place, length: int) -> Literal["memory", "disk"]:
    """`auto` is memory for less than a quarter of what is available, else disk."""
    if place == "auto":
        return "memory" if length < get_available_memory() // _SHARE_OF_MEMORY else "disk"
    return place


def get_available_memory() -> int:
    """Bytes that this process could still use, as the machine and its container say."""
    limits = []
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        limits += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            limits.append(max(0, int(limit) - used))
    except (OSError, ValueError):
        pass
    if not limits and hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return min(limits, default=_UNKNOWN_MEMORY)


def get_cache_path() -> Path:
    """VITRAIL_CACHE, else `~/.cache/vitrail`, whether it is there or not."""
    return Path(os.environ.get("VITRAIL_CACHE") or Path.home() / ".cache" / "vitrail")


def use_site_cache(folder: Path) -> None:
    """Keep caches in a site's own folder from now on, in this process and those it starts: what
    is made of a site's images lies where the site's other files lie, and goes with them."""
    os.environ["VITRAIL_CACHE"] = str(folder.resolve() / SITE_CACHE)
    with suppress(OSError):  # what is wrong with it is said of the cache folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ensure_cache_folder()


def find_site_folder(run: Path) -> Path | None:
    """The site's folder that a run folder lies in, if it is one at a site."""
    runs = run.resolve().parent
    return runs.parent if runs.name == "runs" and (runs.parent / SITE_CACHE).is_dir() else None


def ensure_cache_folder() -> Path:
    """The cache folder, made when it is not there."""
    folder = get_cache_path()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise DataError(
            f"the cache folder {folder} cannot be made ({err.strerror})",
            where="VITRAIL_CACHE",
            hint='Point it at a folder that can be written, or set data.cache = "memory".',
        ) from err
    return folder


def _open_memory_file() -> int:
    create = getattr(os, "memfd_create", None)  # Linux only
    return int(create("vitrail")) if create is not None else _open_nameless_file(None)


def _open_nameless_file(folder: Path | None) -> int:
    try:
        with tempfile.TemporaryFile(dir=folder) as handle:
            return os.dup(handle.fileno())
    except OSError as err:
        raise DataError(
            f"the cache folder {folder} cannot be written ({err.strerror})", where="VITRAIL_CACHE"
        ) from err
