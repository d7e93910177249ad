"""Features of a frozen backbone: computed once per image and view, kept in a memory-mapped file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from numpy.lib.format import open_memmap

from vitrail.data.normalize import Normalize
from vitrail.data.shared_memory import ensure_cache_folder
from vitrail.engine.federation import Federation
from vitrail.engine.plan import Plan
from vitrail.engine.workers.pool import Pool, split_rows
from vitrail.errors import RunError
from vitrail.files import report_write_errors
from vitrail.local.inputs import Rows, to_file_layout
from vitrail.models.network import Network
from vitrail.models.onnx_prefix import describe_runtime, open_session

_CHUNK = 32
_VERSION = 2
Features = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]


def ensure_feature_cache(
    plan: Plan,
    network: Network,
    federation: Federation,
    pool: Pool,
    progress: Progress | None = None,
) -> Path:
    """The features of all images as a file [images, views, ...], computed if it is not there yet.

    Maps lie channels last in it. The file is named by a digest of pixels, frozen weights,
    normalization, views and runtime, so that runs on the same images share it and nothing stale
    is read. Where a bias was injected and the features of the images before it are there, only
    chunks that it touched are computed.
    """
    views = plan.config.data.views
    path = (
        ensure_cache_folder() / f"features-{_digest(plan, network, federation.images.images)}.npy"
    )
    if path.exists():
        return path
    if network.runtime == "onnx" and len(federation.images):
        height, width, channels = federation.images.images.shape[1:]
        shape = (int(channels), int(height), int(width))
        open_session(network, shape, network.pools_in_prefix)  # exported here; workers find it
    rows = np.arange(len(federation.images), dtype=np.int64)
    chunks = split_rows(rows, _CHUNK)
    before, known, chunks = _find_reusable_chunks(plan, network, federation, chunks)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    target = None
    try:
        with report_write_errors(path):
            for number, view in enumerate(views):
                for at, features in enumerate(pool.prefix(chunks, view)):
                    values = to_file_layout(features)
                    if target is None:
                        size = (len(rows), len(views), *values.shape[1:])
                        _check_room(path.parent, 4 * int(np.prod(size)))
                        target = open_memmap(temporary, "w+", np.float32, size)
                        for part in known:
                            target[part] = before[part]
                    target[chunks[at], number] = values
                    if progress is not None:
                        progress(number * len(chunks) + at + 1, len(views) * len(chunks))
            if target is not None:
                target.flush()
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _find_reusable_chunks(
    plan: Plan, network: Network, federation: Federation, chunks: list[Rows]
) -> tuple[Features, list[Rows], list[Rows]]:
    """Features from before a bias, the chunks that it left alone, and those still to compute.

    Whole chunks: a row's features depend, in the last bit, on the rows beside it.
    """
    nothing = np.empty(0, np.float32)
    if federation.original is None:
        return nothing, [], chunks
    images, before = federation.images.images, federation.original.images
    path = ensure_cache_folder() / f"features-{_digest(plan, network, before)}.npy"
    if not path.exists():
        return nothing, [], chunks
    last = min(len(images), len(before))  # copies of images are appended
    same = [rows[-1] < last and np.array_equal(images[rows], before[rows]) for rows in chunks]
    if all(same):  # nothing was touched: let the last chunk say what the shape is
        same[-1] = False
    known = [rows for rows, equal in zip(chunks, same) if equal]
    todo = [rows for rows, equal in zip(chunks, same) if not equal]
    return np.load(path, mmap_mode="r"), known, todo


def _digest(plan: Plan, network: Network, images: npt.NDArray[np.uint8]) -> str:
    config = plan.config
    hasher = hashlib.blake2b(digest_size=16)
    head = [
        _VERSION,
        config.model.backbone,
        network.cut,
        network.end,
        network.pools_in_prefix,
        list(config.data.views),
    ]
    reduce = type(network.head).reduce.__qualname__ if network.pools_in_prefix else ""
    normalize = Normalize.of(config, plan.channels)
    runtime = [] if network.runtime == "torch" else [describe_runtime(network.runtime)]
    settings = [*head, reduce, normalize, images.shape, *runtime]
    hasher.update(repr(settings).encode())
    for name, tensor in network.state_dict().items():
        if network.is_frozen(name):
            hasher.update(name.encode() + tensor.cpu().contiguous().numpy().tobytes())
    hasher.update(np.ascontiguousarray(images).reshape(-1).data)
    return hasher.hexdigest()


def _check_room(folder: Path, needed: int) -> None:
    stat = os.statvfs(folder)
    if stat.f_bavail * stat.f_frsize < needed + 2**28:
        raise RunError(
            f"the features need {needed / 2**30:.1f} GiB and the disk has no room for them",
            where=str(folder),
            hint="Point VITRAIL_CACHE at a larger disk, or set model.cache_features = false.",
        )
