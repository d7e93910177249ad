"""What a run folder comes to: digests that one changed bit changes, and a sketch of numbers that
another machine comes to as well, up to rounding.

Run folders are read as files: nothing here depends on how the package is arranged.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import vitrail

KINDS = ("checkpoint", "state", "ledger", "metrics")
LIBRARIES = ("torch", "numpy", "scipy", "pillow", "dp-accounting")  # whose figures go into results
CLOCK = ("seconds",)  # what no two runs share
LATER_COLUMNS = ("alignment_residual",)  # of the metrics: left out where nothing stands in them
CHAIN = "chain"  # the hash of a ledger's line: it covers the seconds too
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile")
PROJECTIONS = 3


def machine() -> dict[str, Any]:
    """What decides on the last bits of a float: libraries, and the kind of processor."""
    return {
        "libraries": {name: version(name) for name in LIBRARIES},
        "processor": {
            "architecture": platform.machine(),
            "vendor": _cpuinfo("vendor_id"),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "flags": [flag for flag in FLAGS if flag in _cpuinfo("flags").split()],
        },
    }


def _cpuinfo(key: str) -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    found = re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def measure(run: Path, sites: Mapping[str, Path] | None = None) -> dict[str, Any]:
    """Digests and sketch of a run; `sites` are the run folders of sites that have their own."""
    server, state = server_tensors(run), site_tensors(run, sites)
    rows = [_drop_later_columns(row) for row in vitrail.load(run).rows()]
    ledgers = {
        path.parent.name: [_unchained(line) for line in path.read_text().splitlines()]
        for path in _of_sites(run, sites, "ledger.jsonl")
    }
    return {
        "checkpoint": digest_of(server),
        "state": digest_of(state),
        "ledger": _digest(_json(_timeless(ledgers))),
        "metrics": _digest(_json(_timeless(rows))),
        "sketch": {**_sketch("checkpoint", server), **_sketch("state", state), **_ends(rows)},
    }


def server_tensors(run: Path) -> dict[str, torch.Tensor]:
    """The last checkpoint, what never moves, and what sites shared through the server."""
    files = [_newest(run), run / "server" / "frozen.safetensors"]
    files += sorted((run / "server" / "assets").glob("*.safetensors"))
    names = ["", "frozen/", *(f"assets/{number}/" for number in range(len(files) - 2))]
    return _read(zip(names, files, strict=True))


def site_tensors(run: Path, sites: Mapping[str, Path] | None = None) -> dict[str, torch.Tensor]:
    """What every site keeps: its state of the last accepted round, and models of its own."""
    with safe_open(_newest(run), "pt") as handle:
        accepted = json.loads(handle.metadata()["vitrail"])["accepted"]
    found = []
    for site in sorted(accepted):
        for path in _of_sites(run, sites, f"state/round-{accepted[site]:05d}.safetensors"):
            if path.parents[1].name == site:
                found.append((f"{site}/state/", path))
    for kind in ("personal", "local"):
        for path in _of_sites(run, sites, f"{kind}.safetensors"):
            found.append((f"{path.parent.name}/{kind}/", path))
    return _read(found)


def digest_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Of names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _newest(run: Path) -> Path:
    return max((run / "server" / "checkpoints").glob("round-*.safetensors"))


def _of_sites(run: Path, sites: Mapping[str, Path] | None, pattern: str) -> list[Path]:
    """Files in the sites' folders, in the order of the sites' names."""
    roots = [run] if sites is None else list(sites.values())
    found = [path for root in roots for path in root.glob(f"sites/*/{pattern}")]
    return sorted(found, key=lambda path: path.parts[-2 - pattern.count("/") :])


def _read(files: Iterable[tuple[str, Path]]) -> dict[str, torch.Tensor]:
    return {
        f"{prefix}{name}": tensor
        for prefix, path in files
        for name, tensor in load_file(path).items()
    }


def _drop_later_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the metrics without empty columns that came after most rows were recorded."""
    return {k: v for k, v in row.items() if v is not None or k not in LATER_COLUMNS}


def _timeless(value: Any) -> Any:
    """JSON without what a clock says."""
    if isinstance(value, Mapping):
        return {k: _timeless(v) for k, v in value.items() if k not in CLOCK}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def _unchained(line: str) -> dict[str, Any]:
    """A line of a ledger without its hash, and without the name of an attempt at a secure sum,
    whose keys come fresh from the operating system."""
    read = {key: value for key, value in json.loads(line).items() if key != CHAIN}
    if "masked" in read:
        read["masked"].pop("id", None)
    return read


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _sketch(what: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """The norm of all numbers, and a few sums of them with fixed random signs."""
    squares, sums = 0.0, np.zeros(PROJECTIONS)
    for name in sorted(tensors):
        if tensors[name].is_floating_point():
            values = np.nan_to_num(tensors[name].double().numpy().reshape(-1))
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
            signs = np.random.Generator(np.random.PCG64(seed)).integers(
                0, 2, (PROJECTIONS, values.size)
            )
            squares += float(values @ values)
            sums += (2 * signs - 1) @ values
    if not tensors:
        return {}
    found = {f"{what} norm": squares**0.5}
    found |= {f"{what} sum {i}": float(total) for i, total in enumerate(sums)}
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def _ends(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The mean over sites of the last accuracy and loss."""
    found = {}
    for figure in ("accuracy", "loss"):
        last = {row["site"]: row[figure] for row in rows if row.get(figure) is not None}
        if last:
            found[figure] = float(f"{sum(last.values()) / len(last):.6g}")
    return found
