"""ONNX: the same network for programs without Python. Written only if it gives the same numbers."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import torch

from vitrail.errors import ConfigError, RunError
from vitrail.rng import derive_server_key
from vitrail.runs.deployed import DeployedModel

TOLERANCE = 1e-4


def make_onnx(model: DeployedModel) -> bytes:
    """The model as an ONNX file: `images` float32 [N, C, H, W] in 0..1 to `logits`, any N."""
    runtime = _import_onnx()
    shape = (2, model.channels, model.image_size, model.image_size)
    images = torch.rand(shape, generator=derive_server_key(0).at("onnx").torch())
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Tracing notes every branch on a shape; here all shapes but N are constants on purpose.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(),
            (images,),
            Path(folder, "model.onnx"),
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
            dynamo=False,  # ten times quicker, and all backbones pass the check below
        )
        raw = Path(folder, "model.onnx").read_bytes()
    _verify(model, raw, runtime)
    return raw


def _import_onnx() -> ModuleType:
    try:
        import onnx  # noqa: F401  the exporter needs it
        import onnxruntime
    except ImportError as err:
        raise ConfigError(
            f"ONNX needs the package {err.name or 'onnx'}",
            where="--out",
            hint="Install it with `pip install 'vitrail[onnx]'`.",
        ) from err
    runtime: ModuleType = onnxruntime
    return runtime


def _verify(model: DeployedModel, raw: bytes, runtime: ModuleType) -> None:
    """Batches of 1 and 5 must give the network's own logits to `TOLERANCE`."""
    session = runtime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    for count in (1, 5):
        shape = (count, model.channels, model.image_size, model.image_size)
        images = torch.rand(
            shape, generator=derive_server_key(0).at("onnx", "check", count).torch()
        )
        with torch.inference_mode():
            wanted = model(images).numpy()
        logits = session.run(["logits"], {"images": images.numpy()})[0]
        error = np.abs(logits - wanted) / np.maximum(1.0, np.abs(wanted))
        if logits.shape != wanted.shape or not error.max() <= TOLERANCE:
            raise RunError(
                f"the ONNX file gives other numbers than the network (by {error.max():.2g})",
                hint="It was not written; use .safetensors.",
            )
