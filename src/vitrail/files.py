"""Files that are either whole or not there: temporary file, fsync, rename."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitrail.errors import RunError

if TYPE_CHECKING:  # torch takes seconds to import, and not everybody who writes a file needs it
    import torch

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the folder is read-only",
    errno.EACCES: "the folder may not be written",
    errno.EPERM: "the folder may not be written",
    errno.EFBIG: "the file is larger than this disk or account allows",
}


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Turn a failed write into one sentence that says what is still intact."""
    try:
        yield
    except OSError as err:
        reason = _REASONS.get(err.errno or 0, err.strerror or str(err))
        raise RunError(
            f"cannot write {path.name}: {reason}",
            where=str(path.parent),
            hint="What was finished before is intact; make room, then `vitrail resume`.",
        ) from err


def write_bytes(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically and durably, never with looser permissions than `mode`."""
    with report_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with os.fdopen(os.open(temporary, flags, mode), "wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)


def create(path: Path, data: bytes, mode: int) -> None:
    """Write a new file, never with looser permissions than `mode`; one that exists is an error."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as handle:
        handle.write(data)


def load_or_create_secret(path: Path, what: str) -> bytes:
    """32 random bytes that are made once and kept where nobody else can read them."""
    with suppress(FileExistsError):
        create(path, secrets.token_bytes(32), 0o600)
    raw = path.read_bytes()
    if len(raw) != 32:
        raise RunError(
            f"{what} is damaged",
            where=str(path),
            hint="Restore it; with another one a run cannot be continued.",
        )
    return raw


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically; NaN is not JSON and is an error here."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def is_readable_by_others(private: Path) -> bool:
    """Whether others than the owner may read a private key."""
    return bool(private.stat().st_mode & 0o077)


def is_locked(file: Path) -> bool:
    """Whether a process holds the lock; it is looked at and let go, never kept."""
    if not file.is_file():
        return False
    with file.open("rb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None:
    """Write named tensors and a JSON header as one safetensors file, atomically."""
    from safetensors.torch import save

    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, save(flat, {"vitrail": json.dumps(meta, sort_keys=True)}))


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read what `write_tensors` wrote. No code is ever loaded from the file."""
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_file

    try:
        with safe_open(path, "pt") as handle:
            meta = handle.metadata() or {}
        return load_file(path), json.loads(meta.get("vitrail", "{}"))
    except (SafetensorError, OSError, ValueError) as err:
        raise RunError(f"{path.name} cannot be read ({err})", where=str(path.parent)) from err


def read_header(path: Path) -> dict[str, Any]:
    """The JSON header alone of what `write_tensors` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as handle:
            found: dict[str, Any] = json.loads((handle.metadata() or {}).get("vitrail", "{}"))
            return found
    except (SafetensorError, OSError, ValueError) as err:
        raise RunError(f"{path.name} cannot be read ({err})", where=str(path.parent)) from err


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def make_folder_name(name: str) -> str:
    """A file name for any name at all: plain names as they are, others as a slug and a digest."""
    if _PLAIN.fullmatch(name) and not name.endswith("."):
        return name
    slug = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:40] or "site"
    return f"{slug}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
